"""Another process maps physical memory by a descriptor. Which process is it counted for?"""
import ctypes as c
import json
import socket
import subprocess

import descriptors
import tell
from driver import Cuda

SIZE = 256 * tell.MIB


def check():
    cuda = Cuda().start()
    before = cuda.info()[0]
    code, handle = cuda.create(SIZE, shareable=True)
    if code:
        tell.skip(f"cuMemCreate of shareable memory answered {code}")
    tell.fact("cuMemCreate took, by free, in MiB", tell.mib(before - cuda.info()[0]))
    descriptor = c.c_int()
    cuda.must("cuMemExportToShareableHandle", c.byref(descriptor), c.c_uint64(handle), 1, c.c_uint64(0))
    ours, theirs = socket.socketpair()
    words = tell.python("peer.py", "vmm", SIZE, theirs.fileno())
    peer = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, pass_fds=[theirs.fileno()])
    ready = json.loads(peer.stdout.readline())["ready"]
    descriptors.send(ours, descriptor.value)
    said = json.loads(peer.stdout.readline())
    peer.wait(timeout=20)
    tell.fact("the other process", said)
    tell.answer("vmm-import", dict(said, before=ready), said["code"] == 0 and ready[0] == said["held"][0])
    tell.equal("import, release", (said["code"], said["close"]), (0, 0))
    tell.equal("what the import took, by free", ready[0] - said["held"][0], 0)
    cuda.must("cuMemRelease", c.c_uint64(handle))


tell.main(check)
