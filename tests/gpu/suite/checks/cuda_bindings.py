"""NVIDIA's cuda-bindings: the driver, the static runtime and NVML of one process agree."""
import tell


def value(said, what):
    """Returns the result of a call that returns (error, ...)."""
    tell.equal(f"{what}: its code", int(said[0]), 0)
    return said[1:] if len(said) > 2 else said[1] if len(said) > 1 else None


def check():
    try:
        from cuda.bindings import driver, runtime
    except Exception as error:  # noqa: BLE001
        tell.skip(f"cuda-bindings: {type(error).__name__}: {error}"[:200])
    try:
        value(driver.cuInit(0), "cuInit")
        context = value(driver.cuDevicePrimaryCtxRetain(0), "cuDevicePrimaryCtxRetain")
        driver.cuCtxSetCurrent(context)
    except Exception as error:  # noqa: BLE001
        tell.skip(f"cuda-bindings sees no GPU: {error}"[:200])
    said = {"driver": value(driver.cuMemGetInfo(), "cuMemGetInfo")}
    if not tell.SIM:
        # The real runtime needs private tables of the driver, which the simulated one lacks.
        said["runtime"] = value(runtime.cudaMemGetInfo(), "cudaMemGetInfo")
        said["properties"] = value(runtime.cudaGetDeviceProperties(0), "cudaGetDeviceProperties").totalGlobalMem
    try:
        from cuda.bindings import nvml
        nvml.init_v2()
        memory = nvml.device_get_memory_info_v2(nvml.device_get_handle_by_index_v2(0))
        said["NVML"] = [memory.free, memory.total]
    except Exception as error:  # noqa: BLE001: older ones have no NVML
        said["NVML"] = f"{type(error).__name__}: {error}"[:200]
    totals = {name: one if isinstance(one, int) else one[1] for name, one in said.items() if not isinstance(one, str)}
    tell.answer("cuda-bindings", said, all(total == tell.LIMIT for total in totals.values()) if tell.IN_SLICE else None)
    if tell.IN_SLICE:
        tell.equal("every total", sorted(set(totals.values())), [tell.LIMIT])


tell.main(check)
