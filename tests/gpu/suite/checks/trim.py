"""Freed memory that a stream-ordered pool keeps: is it released for cuMemAlloc, and can it be
allocated again?
"""
import ctypes as c
import json
import os

import tell
from driver import Cuda
from tell import STEP


def check():
    cuda = Cuda().start()
    pool, all_ = c.c_void_p(), c.c_uint64((1 << 64) - 1)
    if cuda.call("cuDeviceGetDefaultMemPool", c.byref(pool), cuda.device):
        tell.skip("this driver has no pools")
    # The pool keeps all memory freed into it: attribute 4 is its release threshold.
    cuda.must("cuMemPoolSetAttribute", pool, 4, c.byref(all_))
    free, _ = cuda.info()
    size = free * 3 // 4 // STEP * STEP
    code, at = cuda.alloc_async(size)
    tell.equal("cuMemAllocAsync of three quarters", code, 0)
    cuda.free_async(at)
    cuda.synchronize()
    kept = c.c_uint64()
    cuda.must("cuMemPoolGetAttribute", pool, 5, c.byref(kept))
    after = cuda.info()[0]
    tell.fact("the pool kept, in MiB", tell.mib(kept.value))
    tell.fact("free while it keeps it, in MiB", tell.mib(after))
    code, again = cuda.alloc(size)
    was = tell.mib(kept.value)
    cuda.must("cuMemPoolGetAttribute", pool, 5, c.byref(kept))
    tell.answer("pool-for-alloc", {"the pool kept, in MiB": was, "cuMemAlloc of as much": code,
                                   "the pool kept afterwards, in MiB": tell.mib(kept.value)})
    # Without a slice, the driver decides whether it takes back the memory that a pool keeps. The library
    # takes it back; where it does not, because the driver enforces the limit, the answer is the driver's.
    path = os.path.join(os.environ["GPU_CHECK_OUT"], "trim.bare")
    if not tell.IN_SLICE:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(code, file)
    elif code != 0 and os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            tell.equal("cuMemAlloc of what a pool kept", code, json.load(file))
    if code == 0:
        cuda.free(again)
    code, at = cuda.alloc_async(size)
    tell.equal("cuMemAllocAsync again", code, 0)


tell.main(check)
