"""Records the driver's own answers as one file for tests/sim/recorded.

The simulator must then give the same answers. `answers` contains only answers that the next run on
such a card and driver must repeat: no addresses, no pids, and no memory of other programs.
"""
import ctypes as c
import datetime
import json
import os

import elf
import tell
from driver import Cuda, Memory1, Memory2, Nvml, ArrayDescriptor

SCENARIOS = {"NVIDIA H200": "h200", "NVIDIA GeForce RTX 3090": "rtx3090", "NVIDIA GB10": "gb10"}
# Fields that depend on other GPUs, other programs or the boot, and not on the card.
NOT_THE_CARD = {33, 34, 50, 85}


def before_init():
    """Returns the answers before cuInit and to wrong arguments. The driver is not started yet."""
    cuda, out = Cuda(), c.c_int()
    free, total = c.c_size_t(), c.c_size_t()
    return {"cuDeviceGetCount": cuda.call("cuDeviceGetCount", c.byref(out)),
            "cuMemGetInfo_v2": cuda.call("cuMemGetInfo_v2", c.byref(free), c.byref(total)),
            "cuInit with flags 1": cuda.call("cuInit", 1)}


def errors(cuda, nvml):
    at, out = c.c_uint64(), c.c_int()
    free, total = c.c_size_t(), c.c_size_t()
    wrong = Memory2(version=0x1000028)
    found = {"cuMemGetInfo_v2 without a context": cuda.call("cuMemGetInfo_v2", c.byref(free), c.byref(total)),
             "cuMemAlloc_v2 without a context": cuda.call("cuMemAlloc_v2", c.byref(at), c.c_size_t(1 << 20)),
             "cuDeviceGet of ordinal 99": cuda.call("cuDeviceGet", c.byref(out), 99),
             "cuDeviceGetAttribute of 9999": cuda.call("cuDeviceGetAttribute", c.byref(out), 9999, cuda.device),
             "cuDeviceTotalMem_v2 of device 99": cuda.call("cuDeviceTotalMem_v2", c.byref(total), 99)}
    cuda.start()
    found.update({
        "cuMemAlloc_v2 of 0 bytes": cuda.alloc(0)[0],
        "cuMemAlloc_v2 of more than there is": cuda.alloc(cuda.total() + (1 << 30))[0],
        "cuMemAlloc_v2 of 2^63 bytes": cuda.alloc(1 << 63)[0],
        "cuMemFree_v2 of 0": cuda.call("cuMemFree_v2", c.c_uint64(0)),
        "cuMemFree_v2 of what was never allocated": cuda.call("cuMemFree_v2", c.c_uint64(0x1000)),
        "cuMemCreate of one byte": cuda.create(1)[0],
        "cuMemAllocAsync of 0 bytes": cuda.alloc_async(0)[0],
        "cuMemAllocAsync of more than there is": cuda.alloc_async(cuda.total() + (1 << 30))[0],
        "cuMemGetInfo_v2 after a refusal": cuda.call("cuMemGetInfo_v2", c.byref(free), c.byref(total)),
        "nvmlDeviceGetMemoryInfo": nvml.memory1()[0],
        "nvmlDeviceGetMemoryInfo_v2": nvml.memory2()[0],
        "nvmlDeviceGetMemoryInfo_v2 of version 1": nvml.lib.nvmlDeviceGetMemoryInfo_v2(nvml.device, c.byref(wrong)),
        "nvmlDeviceGetMemoryInfo into null": nvml.lib.nvmlDeviceGetMemoryInfo(nvml.device, None),
        "nvmlDeviceGetBAR1MemoryInfo": nvml.lib.nvmlDeviceGetBAR1MemoryInfo(nvml.device, c.byref(Memory1())),
        "nvmlDeviceGetComputeRunningProcesses_v3": nvml.processes()[0],
        "nvmlDeviceGetHandleByUUID of a wrong one": nvml.lib.nvmlDeviceGetHandleByUUID(b"GPU-0", c.byref(c.c_void_p())),
    })
    return found


def overheads(cuda):
    """Returns the memory that allocations and contexts take beyond the requested size, by CUDA's
    free.

    Runs in a process with a context.
    """
    def took(work):
        before = cuda.info()[0]
        code, undo = work()
        after = cuda.info()[0]
        if code == 0:
            undo()
        return {"code": code, "took": before - after, "left behind": before - cuda.info()[0]}

    def linear(size):
        def work():
            code, at = cuda.alloc(size)
            return code, lambda: cuda.free(at)
        return work

    def context():
        handle = c.c_void_p()
        code = cuda.call("cuCtxCreate_v2", c.byref(handle), 0, cuda.device)

        def undo():
            cuda.must("cuCtxDestroy_v2", handle)
            cuda.must("cuCtxSetCurrent", cuda.context)
        cuda.must("cuCtxSetCurrent", cuda.context)
        return code, undo

    def array():
        handle = c.c_void_p()
        code = cuda.call("cuArrayCreate_v2", c.byref(handle), c.byref(ArrayDescriptor(1000, 1000, 0x20, 4)))
        return code, lambda: cuda.must("cuArrayDestroy", handle)

    sizes = (1, 1 << 20, (1 << 20) + 1, 2 << 20, 3 << 20, 256 << 20)
    found = {f"cuMemAlloc_v2 of {size}": took(linear(size)) for size in sizes}
    found["a second context"] = took(context)
    found["an array of 1000 x 1000 float4"] = took(array)
    granularity, prop = c.c_size_t(), cuda.prop()
    found["cuMemGetAllocationGranularity, minimum"] = [
        cuda.call("cuMemGetAllocationGranularity", c.byref(granularity), c.byref(prop), 0), granularity.value]
    return found


def memory(cuda, nvml):
    one, two, bar1 = nvml.memory1()[1], nvml.memory2()[1], Memory1()
    nvml.lib.nvmlDeviceGetBAR1MemoryInfo(nvml.device, c.byref(bar1))
    return {"cuDeviceTotalMem_v2": cuda.total(), "cuMemGetInfo_v2.total": cuda.info()[1],
            "nvmlDeviceGetMemoryInfo.total": one["total"], "nvmlDeviceGetMemoryInfo_v2.total": two["total"],
            "nvmlDeviceGetMemoryInfo_v2.reserved": two["reserved"], "nvmlDeviceGetBAR1MemoryInfo.total": bar1.total,
            "v1: total - used - free": one["total"] - one["used"] - one["free"],
            "v2: total - used - free - reserved": two["total"] - two["used"] - two["free"] - two["reserved"],
            "v1.used - v2.used": one["used"] - two["used"]}


def check():
    early = before_init()
    cuda = Cuda().init()
    nvml = Nvml(cuda.uuid())
    tell.equal("nvmlInit_v2, nvmlDeviceGetHandleByUUID", nvml.code, 0)
    answers = {
        "errors before cuInit": early,
        "errors": errors(cuda, nvml),
        "memory": memory(cuda, nvml),
        "attributes": {str(at): cuda.attribute(at) for at in range(1, 162) if at not in NOT_THE_CARD},
        "overheads": overheads(cuda),
        "exports": {name: elf.exported(elf.loaded(name)) for name in ("libcuda", "libnvidia-ml")},
    }
    for name, names in answers["exports"].items():
        wanted = "cu" if name == "libcuda" else "nvml"
        answers["exports"][name] = {one: True for one in names if one.startswith(wanted)}
    card, driver = cuda.name(), nvml.text("nvmlSystemGetDriverVersion")
    recording = {"format": 1, "source": "simulator" if tell.SIM else "driver", "card": card, "driver": driver,
                 "cuda": cuda.version(), "scenario": SCENARIOS.get(card), "command": "tests/gpu/run.sh --only record",
                 "date": datetime.date.today().isoformat(), "answers": answers}
    path = os.path.join(os.environ["GPU_CHECK_OUT"], f"{card}-{driver}.json".replace(" ", "-").lower())
    with open(path, "w", encoding="utf-8") as file:
        json.dump(recording, file, indent=1, sort_keys=True)
        file.write("\n")
    tell.fact("written", path)
    tell.fact("answers", sum(len(group) for group in answers.values()))
    tell.expect(all(answers.values()), "a group is empty")


tell.main(check)
