"""numba-cuda: a context, get_memory_info, an array, and an array that is too large."""
import tell


def check():
    tell.need("numba")
    numpy = tell.need("numpy")
    from numba import cuda
    try:
        free, total = cuda.current_context().get_memory_info()
    except Exception as error:  # noqa: BLE001
        tell.skip(f"numba sees no GPU: {error}".splitlines()[0][:200])
    tell.fact("free, total", [free, total])
    array = cuda.device_array(64 << 20, numpy.uint8)
    tell.expect(cuda.current_context().get_memory_info()[0] <= free - (64 << 20), "an array took nothing")
    if tell.IN_SLICE:
        tell.equal("total", total, tell.LIMIT)
    try:
        cuda.device_array(total + (64 << 20), numpy.uint8)
        tell.expect(False, "an array larger than the card was made")
    except Exception as error:  # noqa: BLE001
        tell.fact("too large", str(error)[:200])
        tell.expect("OUT_OF_MEMORY" in str(error).upper() or "MEMORY" in type(error).__name__.upper(), f"too large: {error}")
    del array
    if tell.SIM:
        return

    @cuda.jit
    def add(data):
        at = cuda.grid(1)
        if at < data.size:
            data[at] += 1

    data = cuda.to_device(numpy.zeros(1 << 20, numpy.float32))
    add[(1 << 20) // 256, 256](data)
    tell.equal("a kernel's sum", float(data.copy_to_host().sum()), float(1 << 20))


tell.main(check)
