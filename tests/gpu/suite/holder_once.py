"""A short program of the driver's, for the tools: starts, allocates, asks, frees."""
from driver import Cuda

cuda = Cuda().start()
code, at = cuda.alloc(64 << 20)
print("info", code, *cuda.info(), flush=True)
cuda.free(at)
