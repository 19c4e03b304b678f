"""The memory that contexts and a kernel's module take, by CUDA's free and by NVML."""
import ctypes as c
import os

import tell
from driver import Cuda, Nvml

# A kernel that does nothing. Its target is the oldest, for any card; newer drivers may refuse it.
PTX = b""".version 6.3
.target sm_50
.address_size 64
.visible .entry nothing() { ret; }
"""


def namespaces():
    """Returns this process's pid in each pid namespace that is visible here."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        return [line.split()[1:] for line in file if line.startswith("NSpid")]


def check():
    cuda = Cuda().init()
    nvml = Nvml(cuda.uuid())
    seen, sizes = [], {}

    def look(what):
        code, memory = nvml.memory1()
        _, processes = nvml.processes()
        used = memory["used"] if code == 0 else None
        free = cuda.info()[0] if cuda.context else None
        seen.append((what, used, free))
        before = seen[-2] if len(seen) > 1 else None
        sizes[what] = {
            "NVML used grew by": used - before[1] if before and used is not None else None,
            "CUDA free shrank by": before[2] - free if before and before[2] and free else None,
            "NVML says of this process": processes.get(os.getpid()),
            "pids that NVML names": sorted(processes)[:20], "own pid": os.getpid()}
        tell.fact(what, sizes[what])

    look("cuInit")
    cuda.start()
    look("primary context")
    named = sizes["primary context"]["pids that NVML names"]
    tell.answer("nvml-pids", {"named": named, "own pid": os.getpid(), "NSpid": namespaces()}, os.getpid() in named)
    second = c.c_void_p()
    code = cuda.call("cuCtxCreate_v2", c.byref(second), 0, cuda.device)
    if tell.expect(code == 0, f"cuCtxCreate_v2 answered {code}"):
        look("a second context")
        cuda.must("cuCtxDestroy_v2", second)
        cuda.must("cuCtxSetCurrent", cuda.context)
        look("the second context destroyed")
    module, function = c.c_void_p(), c.c_void_p()
    code = cuda.call("cuModuleLoadData", c.byref(module), PTX)
    if code not in (0, 801):
        code = cuda.call("cuModuleLoadData", c.byref(module), PTX.replace(b"sm_50", b"sm_75"))
    tell.fact("cuModuleLoadData", code)
    if code == 0:
        cuda.must("cuModuleGetFunction", c.byref(function), module, b"nothing")
        cuda.must("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, None, None)
        cuda.synchronize()
        look("a first kernel")
    tell.answer("context-size", {what: [one["NVML used grew by"], one["CUDA free shrank by"], one["NVML says of this process"]]
                                 for what, one in sizes.items()})
    free, total = cuda.info()
    tell.expect(free < total, f"with a context all of {total} is free")


tell.main(check)
