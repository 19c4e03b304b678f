"""How the driver's pools grow and shrink, what a destroyed pool keeps, and how fast a trim is."""
import ctypes as c
import functools
import math
import time

import tell
from driver import OUT_OF_MEMORY

MIB = tell.MIB
ALL = (1 << 64) - 1
SIZES = [1, MIB, 2 * MIB, 2 * MIB + 1, 31 * MIB, 32 * MIB, 33 * MIB, 100 * MIB, 1024 * MIB]
RESERVED, USED = 5, 7


def growth(cuda):
    """Returns the reserved memory after each of many allocations of 1 MiB, where it changed.

    Also returns it after one allocation in a fresh pool, by size.
    """
    code, pool = cuda.new_pool(ALL)
    if code:
        return None
    held, steps, last, free = [], [], 0, cuda.info()[0]
    for at in range(100):
        code, address = cuda.alloc_from(pool, MIB)
        if code:
            break
        held.append(address)
        reserved = cuda.pool_value(pool, RESERVED)
        if reserved != last:
            steps.append([at + 1, (reserved - last) / MIB, (free - cuda.info()[0]) / MIB])
        last = reserved
    for address in held:
        cuda.free_async(address)
    cuda.must("cuMemPoolDestroy", pool)
    cuda.synchronize()
    first = {}
    for size in SIZES:
        _, fresh = cuda.new_pool(ALL)
        before = cuda.info()[0]
        code, address = cuda.alloc_from(fresh, size)
        first[size] = [code, cuda.pool_value(fresh, RESERVED) / MIB, (before - cuda.info()[0]) / MIB]
        if code == 0:
            cuda.free_async(address)
        cuda.must("cuMemPoolDestroy", fresh)
        cuda.synchronize()
    return {"MiB asked one by one: [after how many, reserved grew by MiB, CUDA free fell by MiB]": steps,
            "one allocation in a new pool: [code, reserved MiB, CUDA free fell by MiB]": first,
            "step in MiB": functools.reduce(math.gcd, [int(step[1]) for step in steps], 0)}


def near_full(cuda):
    """Makes a pool grow while less than its growth step is free."""
    held, part = [], 1 << 30
    while part >= 2 * MIB:
        if cuda.info()[0] < part + 20 * MIB:
            part //= 2
            continue
        code, at = cuda.alloc(part)
        if code:
            part //= 2
        else:
            held.append(at)
    left = cuda.info()[0]
    _, pool = cuda.new_pool(ALL)
    had, code = [], 0
    while code == 0 and len(had) < 40:
        code, at = cuda.alloc_from(pool, 2 * MIB)
        if code == 0:
            had.append(at)
    found = {"free before, in MiB": tell.mib(left), "allocations of 2 MiB had": len(had), "then": code,
             "reserved, in MiB": tell.mib(cuda.pool_value(pool, RESERVED)), "free after, in MiB": tell.mib(cuda.info()[0])}
    for at in had:
        cuda.free_async(at)
    cuda.must("cuMemPoolDestroy", pool)
    for at in held:
        cuda.free(at)
    cuda.synchronize()
    return found, code == OUT_OF_MEMORY and len(had) * 2 * MIB > left - 4 * MIB


def shrinks(cuda):
    """Returns the reserved memory of a pool that keeps nothing: after the free, after a query, and
    after each kind of synchronisation.
    """
    found = {}
    stream = c.c_void_p()
    cuda.must("cuStreamCreate", c.byref(stream), 1)
    for what, work in (("cuCtxSynchronize", lambda: cuda.synchronize()),
                       ("cuStreamSynchronize of the stream", lambda: cuda.must("cuStreamSynchronize", None)),
                       ("cuStreamSynchronize of another stream", lambda: cuda.must("cuStreamSynchronize", stream)),
                       # Whether a pool returns free memory after some time without a call.
                       ("50 ms", lambda: time.sleep(0.05))):
        _, pool = cuda.new_pool(0)
        _, at = cuda.alloc_from(pool, 256 * MIB)
        held = cuda.pool_value(pool, RESERVED)
        cuda.free_async(at)
        freed = cuda.pool_value(pool, RESERVED)
        work()
        found[what] = [tell.mib(value) for value in (held, freed, cuda.pool_value(pool, RESERVED))]
        cuda.must("cuMemPoolDestroy", pool)
        cuda.synchronize()
    cuda.must("cuStreamDestroy_v2", stream)
    return {"reserved in MiB: allocated, freed, after it": found}, \
        found["50 ms"][2] > 0 and found["cuStreamSynchronize of the stream"][2] == 0


def destroyed(cuda):
    """Destroys a pool while memory of it is in use."""
    start = cuda.info()[0]
    _, pool = cuda.new_pool(ALL)
    _, one = cuda.alloc_from(pool, 128 * MIB)
    _, two = cuda.alloc_from(pool, 128 * MIB)
    cuda.free_async(two)
    cuda.synchronize()
    before = cuda.info()[0]
    cuda.must("cuMemPoolDestroy", pool)
    after = cuda.info()[0]
    cuda.free_async(one)
    cuda.synchronize()
    took = [tell.mib(start - value) for value in (before, after, cuda.info()[0])]
    return {"MiB in use: before the end, after it, after the last free": took}, took[0] == took[1] and took[2] == 0


def current(cuda):
    """Returns whether a plain asynchronous allocation uses the pool that is set for the device."""
    _, pool = cuda.new_pool(ALL)
    default = cuda.default_pool()
    cuda.must("cuDeviceSetMemPool", cuda.device, pool)
    code, at = cuda.alloc_async(64 * MIB)
    found = {"code": code, "used of the current pool": tell.mib(cuda.pool_value(pool, USED)),
             "used of the default pool": tell.mib(cuda.pool_value(default, USED))}
    cuda.free_async(at)
    cuda.synchronize()
    cuda.must("cuDeviceSetMemPool", cuda.device, default)
    cuda.must("cuMemPoolDestroy", pool)
    return found, found["used of the current pool"] == 64 and found["used of the default pool"] == 0


def timed(work):
    start = time.perf_counter()
    said = work()
    return round((time.perf_counter() - start) * 1e3, 3), said


def speeds(cuda):
    """Returns the milliseconds of a trim, and of plain allocations and frees, by MiB."""
    found, free = {}, cuda.info()[0]
    for size in (64 * MIB, 1 << 30, 8 << 30):
        if size > free // 2:
            continue
        _, pool = cuda.new_pool(ALL)
        grow, (_, at) = timed(lambda: cuda.alloc_from(pool, size))
        cuda.free_async(at)
        cuda.synchronize()
        trim, _ = timed(lambda: cuda.must("cuMemPoolTrimTo", pool, c.c_size_t(0)))
        left = cuda.pool_value(pool, RESERVED)
        nothing, _ = timed(lambda: cuda.must("cuMemPoolTrimTo", pool, c.c_size_t(0)))
        cuda.must("cuMemPoolDestroy", pool)
        linear, (_, at) = timed(lambda: cuda.alloc(size))
        gone, _ = timed(lambda: cuda.free(at))
        found[size // MIB] = {"pool grows ms": grow, "trim ms": trim, "left MiB": tell.mib(left), "trim of nothing ms": nothing,
                              "cuMemAlloc ms": linear, "cuMemFree ms": gone}
    return found


def check():
    cuda = tell.started()
    if cuda.default_pool() is None:
        tell.skip("this driver has no pools")
    found = growth(cuda)
    if tell.expect(found, "no pool could be made"):
        tell.answer("pool-growth", found, found["step in MiB"] == 32)
    tell.answer("pool-shrinks", *shrinks(cuda))
    tell.answer("pool-destroyed", *destroyed(cuda))
    tell.answer("pool-current", *current(cuda))
    tell.answer("trim-speed", speeds(cuda))
    tell.answer("pool-near-full", *near_full(cuda))


tell.main(check)
