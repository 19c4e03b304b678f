"""Context ids, green contexts, module globals, stack limits, small blocks; last, a reset."""
import ctypes as c

import tell
from driver import Nvml

MIB = tell.MIB
GLOBALS = 64 * MIB
# A module with 64 MiB of global memory, and a kernel that uses it.
PTX = f""".version 6.3
.target sm_50
.address_size 64
.visible .global .align 8 .b8 room[{GLOBALS}];
.visible .entry touches() {{
    .reg .b64 %rd<3>;
    mov.u64 %rd1, room;
    cvta.global.u64 %rd2, %rd1;
    st.u64 [%rd2], %rd1;
    ret;
}}
""".encode()


def identity(cuda, context):
    number = c.c_uint64()
    code = cuda.call("cuCtxGetId", context, c.byref(number))
    return number.value if code == 0 else f"code {code}"


def ids(cuda):
    """Creates and destroys contexts in turn. Returns their addresses and ids."""
    seen = [[hex(cuda.context.value), identity(cuda, cuda.context), "primary"]]
    for _ in range(4):
        context = c.c_void_p()
        code = cuda.call("cuCtxCreate_v2", c.byref(context), 0, cuda.device)
        if code:
            return {"cuCtxCreate_v2": code}, None
        seen.append([hex(context.value), identity(cuda, context)])
        cuda.must("cuCtxDestroy_v2", context)
    cuda.must("cuCtxSetCurrent", cuda.context)
    addresses, numbers = [one[0] for one in seen], [one[1] for one in seen]
    known = all(isinstance(one, int) for one in numbers)
    return {"[address, id]": seen, "an address came twice": len(set(addresses)) < len(addresses)}, \
        len(set(numbers)) == len(numbers) if known else None


def took(cuda, nvml, work):
    """Returns a call's result and the MiB that it took, by CUDA's free and by NVML's used."""
    free, used = cuda.info()[0], nvml.used() or 0
    said = work()
    return {"said": said, "by CUDA": tell.mib(free - cuda.info()[0]), "by NVML": tell.mib((nvml.used() or 0) - used)}


def green(cuda, nvml):
    # CUdevResource is 144 bytes in CUDA 12 and 13. Type 1 is the multiprocessors.
    resource, description, context = (c.c_ubyte * 1024)(), c.c_void_p(), c.c_void_p()
    codes = [cuda.call("cuDeviceGetDevResource", cuda.device, resource, 1)]
    if codes[-1] == 0:
        codes.append(cuda.call("cuDevResourceGenerateDesc", c.byref(description), resource, 1))
    if codes[-1]:
        return {"codes": codes}, None
    found = {"created": took(cuda, nvml, lambda: cuda.call("cuGreenCtxCreate", c.byref(context), description, cuda.device, 1))}
    if found["created"]["said"] == 0:
        found["destroyed"] = took(cuda, nvml, lambda: cuda.call("cuGreenCtxDestroy", context))
    return found, found["created"]["by CUDA"] == 0 if found["created"]["said"] == 0 else None


def launch(cuda, function):
    code = cuda.call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, None, None)
    cuda.synchronize()
    return code


def module(cuda, nvml):
    handle, function = c.c_void_p(), c.c_void_p()
    found = {}
    for text in (PTX, PTX.replace(b"sm_50", b"sm_75")):
        found["cuModuleLoadData"] = took(cuda, nvml, lambda: cuda.call("cuModuleLoadData", c.byref(handle), text))
        if found["cuModuleLoadData"]["said"] in (0, 801):
            break
    if found["cuModuleLoadData"]["said"]:
        return found, None, None
    found["cuModuleGetFunction"] = took(cuda, nvml, lambda: cuda.call(
        "cuModuleGetFunction", c.byref(function), handle, b"touches"))
    found["first launch"] = took(cuda, nvml, lambda: launch(cuda, function))
    return found, function, handle


def stack(cuda, nvml, function):
    """Sets limit 0, the stack of each thread, and limit 2, the heap of kernels."""
    found = {}
    for what, limit, size in (("stack 16 KiB", 0, 16 << 10), ("heap 512 MiB", 2, 512 * MIB)):
        found[f"{what}, set"] = took(cuda, nvml, lambda: cuda.call("cuCtxSetLimit", limit, c.c_size_t(size)))
        if function:
            found[f"{what}, launch"] = took(cuda, nvml, lambda: launch(cuda, function))
    return found


def small(cuda, nvml):
    """Makes many allocations of one size. Returns the memory that they take together."""
    found = {}
    for size, count in ((1, 1000), (4096, 1000), (512 << 10, 20), (1 * MIB, 20), (MIB + 1, 20), (2 * MIB, 20), (3 * MIB, 20)):
        held = []
        grown = took(cuda, nvml, lambda: [held.append(cuda.alloc(size)[1]) for _ in range(count)] and None)
        found[f"{count} of {size} bytes"] = [grown["by CUDA"], grown["by NVML"]]
        for at in held:
            cuda.free(at)
    expected = {"1000 of 1 bytes": 2, "20 of 1048576 bytes": 20, "20 of 1048577 bytes": 40, "20 of 3145728 bytes": 80}
    return {"MiB by CUDA, by NVML": found}, all(found[what][0] == size for what, size in expected.items())


def reset(cuda):
    """Resets the primary context. Checks the earlier pool and the memory in it."""
    pool = cuda.default_pool()
    if pool is None:
        return {"no pools": True}, None
    cuda.must("cuMemPoolSetAttribute", pool, 4, c.byref(c.c_uint64((1 << 64) - 1)))
    start = cuda.info()[0]
    code, _ = cuda.alloc_async(256 * MIB)
    linear, _ = cuda.alloc(256 * MIB)
    held = cuda.info()[0]
    tell.fact("before the reset", {"codes": [code, linear], "took MiB": tell.mib(start - held)})
    cuda.must("cuDevicePrimaryCtxReset_v2", cuda.device)
    again = c.c_void_p()
    cuda.must("cuDevicePrimaryCtxRetain", c.byref(again), cuda.device)
    cuda.must("cuCtxSetCurrent", again)
    after, fresh = cuda.info()[0], cuda.default_pool()
    found = {"free, MiB: before, with 512 MiB, after the reset": [tell.mib(value) for value in (start, held, after)],
             "the default pool has the same handle": fresh.value == pool.value,
             "the context has the same handle": again.value == cuda.context.value,
             "reserved of the pool afterwards, MiB": tell.mib(cuda.pool_value(fresh, 5))}
    return found, after >= start and found["reserved of the pool afterwards, MiB"] == 0


def check():
    cuda = tell.started()
    nvml = Nvml(cuda.uuid())
    tell.answer("small-blocks", *small(cuda, nvml))
    tell.answer("context-id", *ids(cuda))
    tell.answer("green-context", *green(cuda, nvml))
    found, function, _ = module(cuda, nvml)
    tell.answer("module-globals", found)
    tell.answer("stack-limit", stack(cuda, nvml, function))
    # A real driver may not survive the reset, so it comes last.
    tell.answer("primary-reset", *reset(cuda))


tell.main(check)
