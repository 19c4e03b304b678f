"""Prints the memory of every device and MIG instance that NVML reports to nvidia-ml-py."""
import pynvml as nvml


def number_of(call, *arguments):
    """Returns a count, or 0 if the call fails."""
    try:
        return call(*arguments)
    except nvml.NVMLError:
        return 0


def tell(handle):
    name = f"nvml {nvml.nvmlDeviceGetUUID(handle)}"
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        print(f"{name} v1 total={memory.total} free={memory.free} used={memory.used}")
    except nvml.NVMLError as error:
        print(f"{name} v1 error={error.value}")
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
        print(
            f"{name} v2 total={memory.total} reserved={memory.reserved}"
            f" free={memory.free} used={memory.used}"
        )
    except nvml.NVMLError as error:
        print(f"{name} v2 error={error.value}")


nvml.nvmlInit()
for index in range(nvml.nvmlDeviceGetCount()):
    device = nvml.nvmlDeviceGetHandleByIndex(index)
    tell(device)
    for place in range(number_of(nvml.nvmlDeviceGetMaxMigDeviceCount, device)):
        try:
            instance = nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, place)
        except nvml.NVMLError:
            continue
        tell(instance)
        size = nvml.nvmlDeviceGetAttributes(instance).memorySizeMB
        print(f"nvml {nvml.nvmlDeviceGetUUID(instance)} memorySizeMB={size}")
nvml.nvmlShutdown()
