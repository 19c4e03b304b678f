"""Prints the memory that every engine queries before it sizes its cache, through cuda-bindings."""
from cuda.bindings import driver as cuda


def ask(answer):
    error, *values = answer
    if error != cuda.CUresult.CUDA_SUCCESS:
        raise SystemExit(f"  {error.name}")
    return values[0] if len(values) == 1 else values


ask(cuda.cuInit(0))
device = ask(cuda.cuDeviceGet(0))
ask(cuda.cuCtxSetCurrent(ask(cuda.cuDevicePrimaryCtxRetain(device))))
free, total = ask(cuda.cuMemGetInfo())
integrated = ask(cuda.cuDeviceGetAttribute(cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_INTEGRATED, device))
kind = "integrated: it shares the host's memory" if integrated else "discrete"
print(f"  cuMemGetInfo: {total / 2**30:.2f} GiB total, {free / 2**30:.2f} free ({kind})")
