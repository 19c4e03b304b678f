"""CuPy: its own pool and its stream-ordered pool, filled up to the limit, and the error beyond it.
"""
import tell


def check():
    cupy = tell.need("cupy")
    try:
        free, total = cupy.cuda.runtime.memGetInfo()
    except Exception as error:  # noqa: BLE001
        tell.skip(f"cupy sees no GPU: {error}"[:200])
    tell.fact("free, total", [free, total])
    if tell.IN_SLICE:
        tell.equal("total", total, tell.LIMIT)
    for name, pool in (("pool", cupy.cuda.MemoryPool()), ("async pool", cupy.cuda.MemoryAsyncPool())):
        cupy.cuda.set_allocator(pool.malloc)
        array = cupy.ones(64 << 20, dtype=cupy.uint8)
        tell.equal(f"{name}: the sum", int(array.sum(dtype=cupy.int64)), 64 << 20)
        try:
            cupy.empty(total + (64 << 20), dtype=cupy.uint8)
            tell.expect(False, f"{name}: an array larger than the card was made")
        except Exception as error:  # noqa: BLE001
            tell.fact(f"{name}, too large", f"{type(error).__name__}: {error}"[:200])
            tell.expect("memory" in f"{type(error).__name__} {error}".lower(), f"{name}: {error}")
        del array
        cupy.cuda.Device().synchronize()
        pool.free_all_blocks()
        # Nearly all of the freed memory can be allocated again.
        again = cupy.empty(cupy.cuda.runtime.memGetInfo()[0] * 3 // 4, dtype=cupy.uint8)
        del again
        pool.free_all_blocks()
        cupy.cuda.Device().synchronize()
    tell.answer("cupy", {"version": cupy.__version__, "free, total": [free, total]}, total == tell.LIMIT if tell.IN_SLICE else None)


tell.main(check)
