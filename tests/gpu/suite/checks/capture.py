"""The result of an allocation during stream capture, within and over the limit.

Also checks whether the capture stays valid.
"""
import ctypes as c

import tell
from driver import CUDA_NAMES, Cuda


def attempt(cuda, stream, mode, size, function):
    """Returns (code of the allocation, code of the end of the capture)."""
    code = cuda.call("cuStreamBeginCapture_v2", stream, mode)
    if code:
        return f"cuStreamBeginCapture_v2: {code}", None
    at, graph = c.c_uint64(), c.c_void_p()
    if function == "cuMemAllocAsync":
        code = cuda.call(function, c.byref(at), c.c_size_t(size), stream)
    else:
        code = cuda.call(function, c.byref(at), c.c_size_t(size))
    ended = cuda.call("cuStreamEndCapture", stream, c.byref(graph))
    if graph.value:
        cuda.call("cuGraphDestroy", graph)
    return CUDA_NAMES.get(code, code), CUDA_NAMES.get(ended, ended)


def check():
    cuda = Cuda().start()
    stream = c.c_void_p()
    # Flag 1: the stream does not wait for the default stream.
    cuda.must("cuStreamCreate", c.byref(stream), 1)
    if cuda.call("cuStreamBeginCapture_v2", stream, 2):
        tell.skip("this driver cannot capture")
    graph = c.c_void_p()
    cuda.must("cuStreamEndCapture", stream, c.byref(graph))
    over, found = cuda.info()[1] * 2, {}
    for mode, name in ((0, "global"), (1, "thread local"), (2, "relaxed")):
        for function in ("cuMemAlloc_v2", "cuMemAllocAsync"):
            for size, how in ((2 * tell.MIB, "that fits"), (over, "that does not fit")):
                said = attempt(cuda, stream, mode, size, function)
                found[f"{function} {how}, {name}"] = said
                if how == "that does not fit" and function == "cuMemAlloc_v2" and mode == 2:
                    tell.equal("cuMemAlloc over the limit in a relaxed capture", said, ("OUT_OF_MEMORY", "SUCCESS"))
    tell.answer("capture", {"[allocation, end of the capture]": found},
                found["cuMemAlloc_v2 that does not fit, relaxed"] == ("OUT_OF_MEMORY", "SUCCESS"))
    code, at = cuda.alloc(2 * tell.MIB)
    tell.equal("cuMemAlloc after all captures", code, 0)


tell.main(check)
