"""The CUDA runtimes of this machine: the layouts of cudaDeviceProp, and the functions that
cudaGetDriverEntryPoint returns.
"""
import ctypes as c
import os
import sys

import cudart
import loader
import tell

ROOM, UNTOUCHED = 4096, 0xAA
SIZES = {(11, "cudaGetDeviceProperties"): 728, (12, "cudaGetDeviceProperties"): 728, (12, "cudaGetDeviceProperties_v2"): 1032,
         (13, "cudaGetDeviceProperties"): 1008}


def open_runtime(major):
    """Loads a libcudart of that version; None if there is none."""
    folder = cudart.folder(major)
    for path in filter(None, [folder and os.path.join(folder, cudart.soname(major)), cudart.soname(major)]):
        try:
            return c.CDLL(path)
        except OSError:
            pass
    return None


def layout(runtime, name, total):
    """Returns how many bytes a function writes, and the offset of the total."""
    room = (c.c_ubyte * ROOM)(*[UNTOUCHED] * ROOM)
    function = getattr(runtime, name, None)
    if function is None:
        return "not exported"
    code = function(room, 0)
    if code:
        return {"code": code}
    data = bytes(room)
    written = len(data.rstrip(bytes([UNTOUCHED])))
    places = [at for at in range(0, ROOM - 8, 8) if data[at:at + 8] == total.to_bytes(8, "little")]
    return {"code": 0, "bytes": written, "total at": places}


def entry_point(runtime, major):
    """Returns the library of the cuMemGetInfo that cudaGetDriverEntryPoint returns."""
    at, status = c.c_void_p(), c.c_int()
    name = "cudaGetDriverEntryPointByVersion" if hasattr(runtime, "cudaGetDriverEntryPointByVersion") else "cudaGetDriverEntryPoint"
    function = getattr(runtime, name, None)
    if function is None:
        return "not exported", None
    if name.endswith("ByVersion"):
        code = function(b"cuMemGetInfo", c.byref(at), 3020, c.c_uint64(0), c.byref(status))
    elif major == 11:
        code = function(b"cuMemGetInfo", c.byref(at), c.c_uint64(0))
    else:
        code = function(b"cuMemGetInfo", c.byref(at), c.c_uint64(0), c.byref(status))
    place = loader.of_address(at.value) if at.value else None
    return {"function": name, "code": code, "status": status.value, "in": place and os.path.basename(place[0])}, \
        None if code or place is None else "libgpuslice" in place[0]


def one(major):
    """Runs in a process of its own, because this check is not about two runtimes in one process."""
    runtime = open_runtime(major)
    if runtime is None:
        return
    free, total = c.c_size_t(), c.c_size_t()
    code = runtime.cudaMemGetInfo(c.byref(free), c.byref(total))
    tell.fact("cudaMemGetInfo", [code, free.value, total.value])
    tell.fact("layouts", {name: layout(runtime, name, total.value)
                          for name in ("cudaGetDeviceProperties", "cudaGetDeviceProperties_v2")})
    tell.fact("entry point", entry_point(runtime, major))
    tell.fact("path", loader.libraries("libcudart"))


def check():
    if len(sys.argv) > 1:
        return one(int(sys.argv[1]))
    import json
    found, sizes, ours = {}, [], []
    for major in cudart.MAJORS:
        status, out, err = tell.run([sys.executable, "-B", os.path.abspath(__file__), str(major)], timeout=15)
        said = {}
        for line in out.splitlines():
            if line.startswith("FACT "):
                said.update(json.loads(line[5:]))
        if not said:
            continue
        found[major] = said if status == 0 else dict(said, ended=status, error=err[-200:])
        for name, place in said.get("layouts", {}).items():
            if isinstance(place, dict) and place["code"] == 0 and (major, name) in SIZES:
                sizes.append(place["bytes"] <= SIZES[major, name] and 288 in place["total at"])
        ours.append(said.get("entry point", [None, None])[1])
    if not found:
        tell.skip("no libcudart is here")
    tell.answer("cudart-layout", {major: [one.get("layouts"), one.get("cudaMemGetInfo"), one.get("path")]
                                  for major, one in found.items()}, all(sizes) if sizes else None)
    known = [one for one in ours if one is not None]
    tell.answer("cudart-entry-point", {major: one.get("entry point") for major, one in found.items()},
                all(one == tell.IN_SLICE for one in known) if known else None)
    if tell.IN_SLICE:
        tell.expect(all(known), "cudaGetDriverEntryPoint hands out the driver's own cuMemGetInfo")


tell.main(check)
