"""Does cuGetProcAddress return the addresses that the library exports?

In a slice: do both ways return ours?
"""
import ctypes as c

import tell
from driver import Cuda

# (name, version, exported as)
ASKED = [("cuMemGetInfo", 3020, "cuMemGetInfo_v2"), ("cuDeviceTotalMem", 3020, "cuDeviceTotalMem_v2"),
         ("cuMemAlloc", 3020, "cuMemAlloc_v2"), ("cuMemFree", 3020, "cuMemFree_v2"),
         ("cuMemAllocAsync", 11020, "cuMemAllocAsync"), ("cuMemCreate", 10020, "cuMemCreate"),
         ("cuGetProcAddress", 12000, "cuGetProcAddress_v2"), ("cuMemAllocManaged", 6000, "cuMemAllocManaged"),
         ("cuCtxCreate", 3020, "cuCtxCreate_v2"), ("cuInit", 2000, "cuInit"), ("cuLaunchKernel", 4000, "cuLaunchKernel"),
         ("cuDeviceGetName", 2000, "cuDeviceGetName")]


def check():
    cuda = Cuda().init()
    same, other, unknown = [], [], []
    for name, version, exported in ASKED:
        found, status = c.c_void_p(), c.c_int()
        code = cuda.call("cuGetProcAddress_v2", name.encode(), c.byref(found), version, c.c_uint64(0), c.byref(status))
        if code or not found.value:
            unknown.append(f"{name}@{version}: {code}/{status.value}")
            continue
        address = c.cast(getattr(cuda.lib, exported), c.c_void_p).value
        (same if address == found.value else other).append(exported)
    tell.fact("same address as the exported one", same)
    tell.fact("another address", other)
    tell.fact("not known to cuGetProcAddress", unknown)
    if not tell.IN_SLICE:
        tell.answer("same-address", {"same": same, "another": other, "not known": unknown}, bool(same) and not other)
    tell.expect(same or other, "cuGetProcAddress knew nothing")
    free, total = c.c_size_t(), c.c_size_t()
    found, status = c.c_void_p(), c.c_int()
    cuda.start()
    cuda.must("cuGetProcAddress_v2", b"cuMemGetInfo", c.byref(found), 3020, c.c_uint64(0), c.byref(status))
    code = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p)(found.value)(c.byref(free), c.byref(total))
    tell.equal("cuMemGetInfo by cuGetProcAddress, its code and answer", (code, free.value, total.value), (0, *cuda.info()))


tell.main(check)
