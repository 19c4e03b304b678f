"""When a graph takes its memory, in which steps, and which calls free it.

Also checks frees and trims during stream capture.
"""
import ctypes as c

import tell

MIB = tell.MIB
# Attributes of cuDeviceGetGraphMemAttribute: memory in use and its peak, reserved memory and its
# peak.
USED, RESERVED = 0, 2


def look(cuda, start):
    values = []
    for attribute in (USED, RESERVED):
        value = c.c_uint64()
        code = cuda.call("cuDeviceGetGraphMemAttribute", cuda.device, attribute, c.byref(value))
        values.append(f"code {code}" if code else tell.mib(value.value))
    return values + [tell.mib(start - cuda.info()[0])]


def captured(cuda, stream, size, work=None):
    """Captures a graph that allocates and frees `size` bytes. Returns (graph, codes)."""
    at, graph = c.c_uint64(), c.c_void_p()
    # Mode 2: relaxed.
    codes = [cuda.call("cuStreamBeginCapture_v2", stream, 2),
             cuda.call("cuMemAllocAsync", c.byref(at), c.c_size_t(size), stream)]
    codes.append(cuda.call("cuMemsetD8Async", at, c.c_ubyte(1), c.c_size_t(size), stream))
    codes.append(cuda.call("cuMemFreeAsync", at, stream))
    codes.append(cuda.call("cuStreamEndCapture", stream, c.byref(graph)))
    return graph, codes


def life(cuda, stream, size):
    start, found = cuda.info()[0], {}
    graph, codes = captured(cuda, stream, size)
    found["codes of the capture"] = codes
    if not graph.value:
        return found
    found["captured"] = look(cuda, start)
    run = c.c_void_p()
    code = cuda.call("cuGraphInstantiateWithFlags", c.byref(run), graph, c.c_uint64(0))
    found["instantiated"] = [code, *look(cuda, start)]
    if code == 0:
        for what, name in (("uploaded", "cuGraphUpload"), ("launched", "cuGraphLaunch"), ("launched again", "cuGraphLaunch")):
            code = cuda.call(name, run, stream)
            cuda.call("cuStreamSynchronize", stream)
            found[what] = [code, *look(cuda, start)]
        cuda.call("cuGraphExecDestroy", run)
        found["executable destroyed"] = look(cuda, start)
    cuda.call("cuGraphDestroy", graph)
    found["graph destroyed"] = look(cuda, start)
    found["trimmed"] = [cuda.call("cuDeviceGraphMemTrim", cuda.device), *look(cuda, start)]
    return found


def sharing(cuda, stream):
    """Launches two graphs of 64 MiB after each other in one stream, and one of them in a second stream
    while the other may still run. Returns what each launch adds to the memory of graphs."""
    start, found, runs = cuda.info()[0], {}, []
    other = c.c_void_p()
    cuda.must("cuStreamCreate", c.byref(other), 1)
    for _ in range(2):
        graph, run = captured(cuda, stream, 64 * MIB)[0], c.c_void_p()
        if not graph.value or cuda.call("cuGraphInstantiateWithFlags", c.byref(run), graph, c.c_uint64(0)):
            return found
        runs.append((graph, run))
    (_, one), (_, two) = runs
    for what, run, where in (("one", one, stream), ("one again", one, stream), ("two, same stream", two, stream),
                             ("two, other stream", two, other)):
        found[what] = [cuda.call("cuGraphLaunch", run, where), *look(cuda, start)]
    cuda.synchronize()
    found["both have ended"] = look(cuda, start)
    for graph, run in runs:
        cuda.call("cuGraphExecDestroy", run)
        cuda.call("cuGraphDestroy", graph)
    cuda.call("cuDeviceGraphMemTrim", cuda.device)
    return found


def during(cuda, stream, mode, work):
    """Makes a call during a capture in this mode: (its code, the code of the capture's end)."""
    graph = c.c_void_p()
    if cuda.call("cuStreamBeginCapture_v2", stream, mode):
        return "no capture"
    said = work()
    ended = cuda.call("cuStreamEndCapture", stream, c.byref(graph))
    if graph.value:
        cuda.call("cuGraphDestroy", graph)
    return [said, ended]


def check():
    cuda = tell.started()
    stream = c.c_void_p()
    cuda.must("cuStreamCreate", c.byref(stream), 1)
    if cuda.call("cuStreamBeginCapture_v2", stream, 2):
        tell.skip("this driver cannot capture")
    cuda.call("cuStreamEndCapture", stream, c.byref(c.c_void_p()))
    lives = {f"{size} bytes": life(cuda, stream, size) for size in (1, 5 * MIB, 256 * MIB)}
    large = lives[f"{256 * MIB} bytes"]
    tell.answer("graph-memory", {"[code,] MiB used, reserved by the attribute, by CUDA's free": lives},
                large.get("trimmed", [0, 0, 1])[2] == 0 if "instantiated" in large else None)
    shared = sharing(cuda, stream)
    tell.answer("graph-sharing", {"[code,] MiB used, reserved by the attribute, by CUDA's free": shared},
                shared["one"][2] == shared["two, same stream"][2] and shared["both have ended"][0] > 0
                if "both have ended" in shared else None)
    pool = cuda.default_pool()
    frees, trims = {}, {}
    for mode, name in ((0, "global"), (1, "thread local"), (2, "relaxed")):
        _, at = cuda.alloc(2 * MIB)
        frees[name] = during(cuda, stream, mode, lambda: cuda.call("cuMemFree_v2", c.c_uint64(at)))
        if frees[name][0] != 0:
            cuda.call("cuMemFree_v2", c.c_uint64(at))
        if pool is not None:
            trims[name] = during(cuda, stream, mode, lambda: cuda.call("cuMemPoolTrimTo", pool, c.c_size_t(0)))
    tell.answer("capture-free", {"[cuMemFree, end of the capture]": frees}, frees["global"] == [900, 901])
    tell.answer("capture-trim", {"[cuMemPoolTrimTo, end of the capture]": trims},
                trims["global"][1] != 0 if trims else None)


tell.main(check)
