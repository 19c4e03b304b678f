"""Another process opens memory of this process by an IPC handle. Which process is it counted for?
"""
import ctypes as c
import json
import subprocess

import tell
from driver import Cuda, IpcHandle

SIZE = 256 * tell.MIB


def check():
    cuda = Cuda().start()
    code, at = cuda.alloc(SIZE)
    tell.equal("cuMemAlloc", code, 0)
    handle = IpcHandle()
    code = cuda.call("cuIpcGetMemHandle", c.byref(handle), c.c_uint64(at))
    tell.fact("cuIpcGetMemHandle", code)
    if code:
        tell.skip(f"cuIpcGetMemHandle answered {code}: containers without a shared ipc namespace cannot")
    peer = subprocess.Popen(tell.python("peer.py", "ipc", SIZE), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    ready = json.loads(peer.stdout.readline())["ready"]
    own = cuda.info()
    peer.stdin.write(bytes(handle).hex() + "\n")
    peer.stdin.flush()
    said = json.loads(peer.stdout.readline())
    peer.wait(timeout=20)
    tell.fact("the other process", said)
    tell.answer("ipc-import", dict(said, before=ready), said["code"] == 0 and ready[0] == said["held"][0])
    tell.equal("cuIpcOpenMemHandle, cuIpcCloseMemHandle", (said["code"], said["close"]), (0, 0))
    tell.equal("what the import took, by free", ready[0] - said["held"][0], 0)
    tell.expect(own[0] >= said["held"][0], f"free {own[0]} here, {said['held'][0]} there")


tell.main(check)
