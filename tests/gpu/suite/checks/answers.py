"""CUDA and NVML agree about the first device. In a slice both report the slice."""
import tell
from driver import Cuda, Nvml


def check():
    cuda = Cuda().start()
    nvml = Nvml(cuda.uuid())
    (free, total), device_total = cuda.info(), cuda.total()
    (code1, one), (code2, two) = nvml.memory1(), nvml.memory2()
    tell.fact("cuMemGetInfo_v2", {"free": free, "total": total})
    tell.fact("cuDeviceTotalMem_v2", device_total)
    tell.fact("nvmlDeviceGetMemoryInfo", {"code": code1, **one})
    tell.fact("nvmlDeviceGetMemoryInfo_v2", {"code": code2, **two})
    tell.equal("cuDeviceTotalMem_v2", device_total, total)
    tell.expect(0 < free <= total, f"free is {free} of {total}")
    if code1 == 0 and code2 == 0:
        # The answer of a real driver is not known yet, so without a slice it is only recorded.
        left = two["total"] - two["used"] - two["free"] - two["reserved"]
        tell.answer("nvml-v2-sum", {"total - used - free - reserved": left, **two}, left == 0)
        tell.answer("nvml-v1-used", {"v1.used - v2.used": one["used"] - two["used"], "reserved": two["reserved"],
                                     "v1: total - used - free": one["total"] - one["used"] - one["free"]},
                    one["used"] - two["used"] == two["reserved"])
        tell.answer("cuda-total", {"NVML's total - CUDA's total": two["total"] - total, "reserved": two["reserved"]},
                    two["total"] - total == two["reserved"])
        tell.answer("cuda-free", {"NVML's free - CUDA's free": two["free"] - free, "by v1": one["free"] - free},
                    two["free"] == free)
    if tell.IN_SLICE:
        tell.equal("cuMemGetInfo_v2's total", total, tell.LIMIT)
        tell.equal("NVML's codes", (code1, code2), (0, 0))
        for memory in (one, two):
            tell.equal("NVML's total", memory["total"], tell.LIMIT)
            tell.equal("NVML's free", memory["free"], free)
            tell.equal("used and free together", memory["used"] + memory["free"] + memory.get("reserved", 0), tell.LIMIT)


tell.main(check)
