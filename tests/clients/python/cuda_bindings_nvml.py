"""Prints the memory of every device and MIG instance that NVML reports to cuda.bindings.nvml."""
from cuda.bindings import nvml


def number_of(call, *arguments):
    """Returns a count, or 0 if the call fails."""
    try:
        return call(*arguments)
    except nvml.NvmlError:
        return 0


def tell(handle):
    name = f"nvml {nvml.device_get_uuid(handle)}"
    try:
        memory = nvml.device_get_memory_info_v2(handle)
        print(
            f"{name} v2 total={memory.total} reserved={memory.reserved}"
            f" free={memory.free} used={memory.used}"
        )
    except nvml.NvmlError as error:
        print(f"{name} v2 error={int(error.status)}")


nvml.init_v2()
for index in range(nvml.device_get_count_v2()):
    device = nvml.device_get_handle_by_index_v2(index)
    tell(device)
    for place in range(number_of(nvml.device_get_max_mig_device_count, device)):
        try:
            instance = nvml.device_get_mig_device_handle_by_index(device, place)
        except nvml.NvmlError:
            continue
        tell(instance)
        size = nvml.device_get_attributes_v2(instance).memory_size_mb
        print(f"nvml {nvml.device_get_uuid(instance)} memorySizeMB={size}")
nvml.shutdown()
