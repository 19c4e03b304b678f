"""The driver library is unloaded and loaded again; fork after cuInit; exec.

Nothing crashes, and no memory stays allocated.
"""
import ctypes as c
import os
import sys

import tell
from driver import NOT_INITIALIZED, Cuda


def check():
    loader = c.CDLL(None)
    loader.dlopen.restype, loader.dlclose.argtypes = c.c_void_p, [c.c_void_p]
    for _ in range(3):
        handle = loader.dlopen(b"libcuda.so.1", 2)
        tell.expect(handle, "libcuda.so.1 cannot be loaded")
        tell.equal("dlclose", loader.dlclose(handle), 0)
    cuda = Cuda().start()
    free, total = cuda.info()
    child = os.fork()
    if child == 0:
        device = c.c_int()
        code = cuda.lib.cuDeviceGetCount(c.byref(device))
        one, two = c.c_size_t(), c.c_size_t()
        asked = cuda.lib.cuMemGetInfo_v2(c.byref(one), c.byref(two))
        os._exit(100 + min(asked, 50) if code == NOT_INITIALIZED else min(code, 99))
    _, status = os.waitpid(child, 0)
    ended = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    codes = [NOT_INITIALIZED, ended - 100] if ended >= 100 else [ended, None]
    tell.answer("fork-child", {"cuDeviceGetCount, cuMemGetInfo_v2": codes}, codes == [NOT_INITIALIZED, NOT_INITIALIZED])
    tell.expect(ended >= 0, f"the forked child died by signal {-ended}")
    tell.equal("the parent after the child's end", cuda.info(), (free, total))
    # A child process executes another program, which starts the driver anew.
    code = "from driver import Cuda; c = Cuda().start(); print(*c.info())"
    status, out, err = tell.run([sys.executable, "-B", "-c", code])
    tell.equal("exec after cuInit", status, 0)
    seen = [int(word) for word in out.split()] if status == 0 else [0, 0]
    tell.fact("what it saw", {"free": seen[0], "total": seen[1]})
    tell.equal("its total", seen[1], total)
    tell.equal("free after its end", cuda.info()[0], free)


tell.main(check)
