"""nvidia-ml-py: both versions of the memory query, and the process list."""
import tell


def check():
    nvml = tell.need("pynvml")
    nvml.nvmlInit()
    device = nvml.nvmlDeviceGetHandleByIndex(0)
    one = nvml.nvmlDeviceGetMemoryInfo(device)
    two = nvml.nvmlDeviceGetMemoryInfo(device, version=nvml.nvmlMemory_v2)
    tell.fact("v1", {"total": one.total, "free": one.free, "used": one.used})
    tell.fact("v2", {"total": two.total, "free": two.free, "used": two.used, "reserved": two.reserved})
    tell.fact("driver", nvml.nvmlSystemGetDriverVersion())
    tell.fact("pids", [process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(device)])
    if tell.IN_SLICE:
        tell.equal("totals", (one.total, two.total), (tell.LIMIT, tell.LIMIT))
        tell.equal("used and free", one.used + one.free, tell.LIMIT)


tell.main(check)
