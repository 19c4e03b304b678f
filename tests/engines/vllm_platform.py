"""Prints the facts about a GPU that vLLM 0.33 queries before it has a context, as a JSON object.

Usage: vllm_platform.py FOLDER_OF_THE_VENDORS_FILES. `vllm/platforms` and vLLM's copy of pynvml are
the vendor's own files, and query NVML alone. The rest of vLLM and torch are empty stand-ins. Only
one of them works: it returns the device's properties, which vLLM queries from CUDA if NVML does not
report the amount of memory.
"""
import importlib
import importlib.metadata
import json
import sys
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock

from cuda.bindings import driver
from vendor import VERSION

UNKNOWN = [
    "torch",
    "torch.distributed",
    "torch.distributed.distributed_c10d",
    "vllm._C_stable_libtorch",
    "vllm.envs",
    "vllm.logger",
    "vllm.plugins",
    "vllm.v1.attention.backends.registry",
]


def called(result):
    status, *values = result
    assert status == driver.CUresult.CUDA_SUCCESS, status
    return values[0]


class Properties:
    """Stands in for `vllm.utils.platform_utils.cuda_get_device_properties`, and records a call."""

    asked = False

    def __call__(self, device, names):
        assert names == ("total_memory",)
        self.asked = True
        driver.cuInit(0)
        return (called(driver.cuDeviceTotalMem(called(driver.cuDeviceGet(device)))),)


def stand_in(folder, properties):
    """Makes imports find the vendor's files and the stand-ins."""
    for name in UNKNOWN:
        sys.modules[name] = MagicMock()
    vllm = ModuleType("vllm")
    vllm.__path__ = [str(folder / "vllm")]
    vllm.envs = sys.modules["vllm.envs"]
    sys.modules["vllm"] = vllm
    utils = ModuleType("vllm.utils.import_utils")
    utils.import_pynvml = lambda: importlib.import_module("vllm.third_party.pynvml")
    utils.resolve_obj_by_qualname = None
    sys.modules["vllm.utils.import_utils"] = utils
    platform_utils = ModuleType("vllm.utils.platform_utils")
    platform_utils.cuda_get_device_properties = properties
    sys.modules["vllm.utils.platform_utils"] = platform_utils
    typing = ModuleType("typing_extensions")
    typing.ParamSpec = importlib.import_module("typing").ParamSpec
    sys.modules["typing_extensions"] = typing
    # vLLM queries its own version, but is not installed.
    importlib.metadata.version = lambda _: VERSION


def main():
    properties = Properties()
    stand_in(Path(sys.argv[1]), properties)
    from vllm import platforms
    from vllm.platforms import cuda

    plugin = platforms.cuda_platform_plugin()
    platform = cuda.CudaPlatform
    capability = platform.get_device_capability(0)
    bus_ids = platform.get_all_gpu_pci_bus_ids()
    said = {
        "plugin": plugin,
        "platform": platform.__name__,
        "capability": [capability.major, capability.minor],
        "name": platform.get_device_name(0),
        "uuid": platform.get_device_uuid(0),
        "bus_ids": bus_ids,
        "connected": platform.is_fully_connected(list(bus_ids)),
        "total": platform.get_device_total_memory(0),
        "total_by": "CUDA" if properties.asked else "NVML",
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main()
