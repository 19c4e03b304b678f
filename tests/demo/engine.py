"""A small engine. It sizes itself by the memory that it finds, as vLLM does by default, and serves.

Usage: python engine.py NAME
"""
import signal
import sys

from cuda.bindings import driver as cuda

SHARE = 0.92  # of TOTAL: the default of --gpu-memory-utilization in vLLM 0.33


def call(answer):
    error, *values = answer
    if error != cuda.CUresult.CUDA_SUCCESS:
        print(f"  {sys.argv[1]} dies: {error.name}", flush=True)
        sys.exit(1)
    return values[0] if len(values) == 1 else values


call(cuda.cuInit(0))
call(cuda.cuCtxSetCurrent(call(cuda.cuDevicePrimaryCtxRetain(0))))
free, total = call(cuda.cuMemGetInfo())
wanted = int(total * SHARE)
print(
    f"  {sys.argv[1]} finds {total / 2**30:.2f} GiB, {free / 2**30:.2f} GiB free,"
    f" and allocates {wanted / 2**30:.2f} GiB",
    flush=True,
)
call(cuda.cuMemAlloc(wanted))
print(f"  {sys.argv[1]} serves", flush=True)
signal.pause()
