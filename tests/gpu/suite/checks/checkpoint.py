"""cuCheckpoint: whether a checkpointed process still holds device memory."""
import ctypes as c
import signal
import os
import time

import tell
from driver import Nvml


def check():
    cuda = tell.started()
    if cuda.call("cuCheckpointProcessLock", 0, None) in (801,):
        tell.skip("this driver has no cuCheckpointProcessLock")
    nvml = Nvml(cuda.uuid())
    holder = tell.Talker(tell.in_slice() + tell.python("holder.py"))
    pid = holder.ask(do="start")["pid"]
    holder.ask(do="take", kind="linear", size=1 << 30)
    before, found = nvml.used() or 0, {}
    for name in ("cuCheckpointProcessLock", "cuCheckpointProcessCheckpoint", "cuCheckpointProcessRestore",
                 "cuCheckpointProcessUnlock"):
        code = cuda.call(name, pid, (c.c_ubyte * 256)())
        time.sleep(0.1)  # NVML may notice it a little later; this check does not measure the delay
        found[name] = [code, tell.mib((nvml.used() or 0) - before)]
        if code:
            break
    freed = found.get("cuCheckpointProcessCheckpoint", [1, 0])
    tell.answer("checkpoint", {"[code, MiB more in use]": found}, freed[1] <= -1024 if freed[0] == 0 else None)
    os.kill(pid, signal.SIGKILL)


tell.main(check)
