"""The second process of ipc.py and vmm_share.py. It opens the memory that it is given, and reports
the memory that this took.
"""
import ctypes as c
import json
import os
import socket
import sys

import descriptors
from driver import Cuda, IpcHandle

cuda = Cuda().start()
kind, size = sys.argv[1], int(sys.argv[2])
print(json.dumps({"ready": cuda.info()}), flush=True)
if kind == "ipc":
    handle, at = IpcHandle(), c.c_uint64()
    c.memmove(c.byref(handle), bytes.fromhex(sys.stdin.readline().strip()), 64)
    code = cuda.call("cuIpcOpenMemHandle_v2", c.byref(at), handle, 1)
    held = cuda.info()
    close = cuda.call("cuIpcCloseMemHandle", at) if code == 0 else None
else:
    link = socket.socket(fileno=int(sys.argv[3]))
    descriptor = descriptors.receive(link)
    handle = c.c_uint64()
    code = cuda.call("cuMemImportFromShareableHandle", c.byref(handle), c.c_void_p(descriptor), 1)
    held = None
    if code == 0:
        at = cuda.map(handle.value, size)
        held = cuda.info()
        cuda.unmap(at, size)
    close = cuda.call("cuMemRelease", handle) if code == 0 else None
print(json.dumps({"code": code, "held": held, "close": close, "after": cuda.info()}), flush=True)
os._exit(0)
