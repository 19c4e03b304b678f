"""Answers without a GPU: codes before initialisation, exported names, the driver's look-ups."""
import ctypes as c
import json
import os
import re
import sys

import elf
import tell

EARLY = """
import ctypes as c, json
cuda, nvml = c.CDLL("libcuda.so.1"), c.CDLL("libnvidia-ml.so.1")
out, room, one, two = c.c_int(), (c.c_ubyte * 4096)(), c.c_size_t(), c.c_size_t()
said = {
    "cuDeviceGetCount": cuda.cuDeviceGetCount(c.byref(out)),
    "cuMemGetInfo_v2": cuda.cuMemGetInfo_v2(c.byref(one), c.byref(two)),
    "cuMemGetInfo_v2 into null": cuda.cuMemGetInfo_v2(None, None),
    "cuDeviceTotalMem_v2": cuda.cuDeviceTotalMem_v2(c.byref(one), 0),
    "cuMemAlloc_v2": cuda.cuMemAlloc_v2(c.byref(one), c.c_size_t(1 << 20)),
    "cuCtxCreate_v2": cuda.cuCtxCreate_v2(c.byref(one), 0, 0),
    "cuDriverGetVersion": [cuda.cuDriverGetVersion(c.byref(out)), out.value],
    "nvmlDeviceGetCount_v2": nvml.nvmlDeviceGetCount_v2(c.byref(out)),
    "nvmlDeviceGetMemoryInfo": nvml.nvmlDeviceGetMemoryInfo(None, room),
    "nvmlDeviceGetMemoryInfo_v2": nvml.nvmlDeviceGetMemoryInfo_v2(None, room),
    "nvmlShutdown": nvml.nvmlShutdown(),
    "cuInit of flags 1": cuda.cuInit(1),
    "cuInit": cuda.cuInit(0),
    "nvmlInit_v2": nvml.nvmlInit_v2(),
}
print(json.dumps(said))
"""
ASKS = """
import ctypes as c
cuda = c.CDLL("libcuda.so.1")
code = cuda.cuInit(0)
print("cuInit", code)
nvml = c.CDLL("libnvidia-ml.so.1")
print("nvmlInit_v2", nvml.nvmlInit_v2())
"""
OWN = {"cuInit", "nvmlInit_v2"}


def check():
    status, out, err = tell.run([sys.executable, "-B", "-c", EARLY], timeout=15)
    if tell.expect(status == 0, f"the early questions ended with {status}: {err.strip()[-200:]}"):
        said = json.loads(out)
        expected = all(said[name] == 3 for name in ("cuDeviceGetCount", "cuMemGetInfo_v2", "cuMemAlloc_v2")) \
            and said["nvmlDeviceGetMemoryInfo"] == 1
        tell.answer("errors-early", said, expected)
    # LD_DEBUG names each look-up of the driver's own libraries in the loader.
    status, out, err = tell.run([sys.executable, "-B", "-c", ASKS], timeout=15, env={"LD_DEBUG": "symbols"})
    names = sorted(set(re.findall(r"symbol=((?:nvml|cu)[A-Z]\w+);", err)) - OWN)
    memory = [name for name in names if "Mem" in name]
    tell.answer("driver-self-lookup", {"names": names[:100], "count": len(names), "said": out.split("\n")[:2]}, not memory)
    found = {}
    for soname, prefix in (("libcuda.so.1", "cu"), ("libnvidia-ml.so.1", "nvml")):
        c.CDLL(soname)
        path = elf.loaded(soname[:-5])
        names = [name for name in elf.exported(path) if name.startswith(prefix)]
        found[soname] = {"file": os.path.realpath(path), "names": len(names)}
        with open(os.path.join(os.environ["GPU_CHECK_OUT"], f"exports-{soname.split('.')[0]}.txt"), "w", encoding="utf-8") as file:
            file.write("\n".join(names) + "\n")
        tell.expect(names, f"{path} exports nothing")
    tell.answer("exports", found)


tell.main(check)
