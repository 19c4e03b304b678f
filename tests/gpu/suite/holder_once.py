"""A short CUDA program for the tools: starts, allocates, queries, frees."""
from driver import Cuda

cuda = Cuda().start()
code, at = cuda.alloc(64 << 20)
print("info", code, *cuda.info(), flush=True)
cuda.free(at)
