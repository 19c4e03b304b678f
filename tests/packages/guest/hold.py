"""A program in a slice that holds 1 GiB, and answers each line of input.

The answer is the total in GiB that the program sees and that a new child sees, and whether 7 GiB
more are granted to the child and to the program.
"""

import ctypes
import subprocess
import sys

ASK = """
import ctypes
nvml = ctypes.CDLL("libnvidia-ml.so.1")
device, memory = ctypes.c_void_p(), (ctypes.c_ulonglong * 3)()
assert nvml.nvmlInit_v2() == 0
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
assert nvml.nvmlDeviceGetMemoryInfo(device, memory) == 0
cuda = ctypes.CDLL("libcuda.so.1")
context, pointer = ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
result = cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(7 << 30))
print(memory[0] >> 30, {0: "granted", 2: "refused"}[result], flush=True)
"""


def allocate(gib: int) -> int:
    pointer = ctypes.c_void_p()
    return cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(gib << 30))


cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert allocate(1) == 0
print("ready", flush=True)
for line in sys.stdin:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    child = "-"
    if line.strip() == "child":
        child = subprocess.run([sys.executable, "-c", ASK], stdout=subprocess.PIPE).stdout.decode().strip()
    # CUDA_ERROR_OUT_OF_MEMORY
    print(total.value >> 30, child, "refused" if allocate(7) == 2 else "granted", flush=True)
