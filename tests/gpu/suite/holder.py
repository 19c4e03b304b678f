"""Allocates memory by kind on request, and reports the driver's answers.

Each request and each answer is one line of JSON.
"""
import ctypes as c
import json
import os
import sys

from driver import ArrayDescriptor, Cuda

cuda, held = Cuda(), {}
libc = c.CDLL(None)


def array(size):
    handle = c.c_void_p()
    described = ArrayDescriptor(16384, size // (16384 * 4), 0x20, 1)
    code = cuda.call("cuArrayCreate_v2", c.byref(handle), c.byref(described))
    return code, lambda: cuda.must("cuArrayDestroy", handle)


def asynchronous(size):
    code, at = cuda.alloc_async(size)

    def free():
        pool = c.c_void_p()
        cuda.free_async(at)
        cuda.synchronize()
        cuda.must("cuDeviceGetDefaultMemPool", c.byref(pool), cuda.device)
        cuda.must("cuMemPoolTrimTo", pool, c.c_size_t(0))
    return code, free


def linear(size):
    code, at = cuda.alloc(size)
    return code, lambda: cuda.free(at)


def managed(size):
    at = c.c_uint64()
    code = cuda.call("cuMemAllocManaged", c.byref(at), c.c_size_t(size), 1)
    if code == 0:
        # Managed memory takes device memory when it is resident: after a prefetch, or after a write
        # where prefetching is not supported.
        if cuda.call("cuMemPrefetchAsync", at, c.c_size_t(size), cuda.device, None):
            cuda.call("cuMemsetD8_v2", at, c.c_ubyte(1), c.c_size_t(size))
        cuda.synchronize()
    return code, lambda: cuda.free(at.value)


def physical(size):
    code, handle = cuda.create(size)
    if code:
        return code, None
    at = cuda.map(handle, size)

    def free():
        cuda.unmap(at, size)
        cuda.must("cuMemRelease", c.c_uint64(handle))
    return 0, free


def pinned(size):
    at = c.c_void_p()
    code = cuda.call("cuMemHostAlloc", c.byref(at), c.c_size_t(size), 0)
    return code, lambda: cuda.must("cuMemFreeHost", at)


def context(_size):
    handle = c.c_void_p()
    code = cuda.call("cuCtxCreate_v2", c.byref(handle), 0, cuda.device)
    if code == 0:
        cuda.must("cuCtxSetCurrent", cuda.context)
    return code, lambda: cuda.must("cuCtxDestroy_v2", handle)


KINDS = {"linear": linear, "pool": asynchronous, "array": array, "managed": managed, "physical": physical,
         "pinned": pinned, "context": context}


def answer(words):
    if words["do"] == "start":
        cuda.start()
        return {"pid": os.getpid(), "uuid": cuda.uuid(), "info": cuda.info()}
    if words["do"] == "info":
        return {"info": cuda.info()}
    if words["do"] == "fill":
        # Allocates all free memory in large pieces, and reports the sum.
        had, part = 0, 1 << 30
        while part >= 2 << 20:
            code, _ = cuda.alloc(part)
            had, part = (had + part, part) if code == 0 else (had, part // 2)
        return {"had": had, "info": cuda.info()}
    if words["do"] == "take":
        code, free = KINDS[words["kind"]](words.get("size", 0))
        held[words["kind"]] = free
        return {"code": code}
    held.pop(words["kind"])()
    return {"code": 0}


for line in sys.stdin:
    try:
        said = answer(json.loads(line))
    except Exception as error:  # noqa: BLE001: the answer reports it
        said = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(said), flush=True)
sys.stdout.flush()
os._exit(0)
