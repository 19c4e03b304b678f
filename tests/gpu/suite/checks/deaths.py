"""How soon a killed process's memory is free, and which process keeps shared memory.

Also closes the driver's device files by hand.
"""
import ctypes as c
import json
import os
import signal
import socket
import time

import descriptors
import tell
from driver import Cuda, Nvml

SIZE = 1 << 30
SHARED = 256 * tell.MIB


def child(work):
    """Forks a process that has not started the driver. Returns (pid, our end of a socket)."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        try:
            work(theirs)
            signal.pause()
        except BaseException as error:  # noqa: BLE001: the parent is told
            theirs.send(json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
        finally:
            # The child must never continue in the parent's code.
            os._exit(1)
    theirs.close()
    ours.settimeout(12)
    return pid, ours


def heard(link):
    data = link.recv(4096)
    said = json.loads(data.decode()) if data else {"error": "it ended"}
    if "error" in said:
        raise RuntimeError(said["error"])
    return said


def end(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    os.waitpid(pid, 0)


def holds(link):
    cuda = Cuda().start()
    code, _ = cuda.alloc(SIZE)
    link.send(json.dumps({"code": code, "uuid": cuda.uuid()}).encode())
    link.recv(1)
    # Closes the driver's device files without its knowledge.
    closed = 0
    for number in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        if "/dev/nvidia" in name or "gpuslice" in name or name.endswith(("/alive", "/machine")):
            os.close(int(number))
            closed += 1
    link.send(json.dumps({"closed": closed}).encode())


def exports(link):
    cuda = Cuda().start()
    code, handle = cuda.create(SHARED, shareable=True)
    number = c.c_int()
    code = code or cuda.call("cuMemExportToShareableHandle", c.byref(number), c.c_uint64(handle), 1, c.c_uint64(0))
    if code:
        raise RuntimeError(f"shareable memory: {code}")
    link.send(json.dumps({"pid": os.getpid()}).encode())
    link.recv(1)
    descriptors.send(link, number.value)


def imports(link):
    cuda = Cuda().start()
    link.send(json.dumps({"pid": os.getpid()}).encode())
    number, handle = descriptors.receive(link), c.c_uint64()
    code = cuda.call("cuMemImportFromShareableHandle", c.byref(handle), c.c_void_p(number), 1)
    os.close(number)
    if code == 0:
        cuda.map(handle.value, SHARED)
    link.send(json.dumps({"code": code}).encode())


def back(nvml, baseline, before, seconds=8):
    """Measures the milliseconds until the memory in use is back to the baseline, and the curve."""
    start, curve, last = time.perf_counter(), [], None
    while time.perf_counter() - start < seconds:
        used = nvml.used()
        if used != last:
            curve.append([round((time.perf_counter() - start) * 1e3, 2), tell.mib(used - baseline)])
            last = used
        if used <= baseline + 2 * tell.MIB:
            return {"ms": curve[-1][0], "in use MiB before": tell.mib(before - baseline), "[ms, MiB]": curve[:40]}
        time.sleep(0.0005)  # this is the resolution of the curve; NVML sends no event for memory
    return {"ms": None, "in use MiB before": tell.mib(before - baseline), "[ms, MiB]": curve[:40]}


def check():
    # All children are forked before this process opens any file of the driver.
    killed, link = child(holds)
    closing, closer = child(holds)
    exporter, out = child(exports)
    importer, into = child(imports)
    known = True
    try:
        uuid = heard(link)["uuid"]
        heard(closer), heard(out), heard(into)
        nvml = Nvml(uuid)
        known = nvml.used() is not None
        if not known:
            return
        with_all = nvml.used()
        os.kill(killed, signal.SIGKILL)
        start = time.perf_counter()
        os.waitpid(killed, 0)
        gone = round((time.perf_counter() - start) * 1e3, 2)
        # The other processes stay. They hold the rest, which is known once the number no longer
        # changes.
        first = back(nvml, with_all - SIZE, with_all)
        first["ms until waitpid returned"] = gone
        time.sleep(0.3)  # the next part starts when the card is idle
        tell.answer("kill-latency", first, first["ms"] is not None and first["ms"] < 100)
        exporter = shared(nvml, exporter, out, importer, into)
        end(importer)
        importer = None
        time.sleep(0.2)  # by then NVML no longer counts the importer's memory
        before = nvml.used()
        closer.send(b"x")
        said = heard(closer)
        time.sleep(0.5)  # only a while later it is certain that no memory comes back
        after = nvml.used()
        listed = nvml.processes()
        tell.answer("closed-device-files", {"files closed": said["closed"], "MiB in use before": tell.mib(before),
                                            "MiB given back": tell.mib(before - after), "NVML's list": listed},
                    before - after >= SIZE if said["closed"] else None)
    finally:
        for pid in (closing, exporter, importer):
            if pid:
                try:
                    end(pid)
                except ChildProcessError:
                    pass
        if not known:
            tell.skip("this GPU's NVML does not say what is in use")


def shared(nvml, exporter, out, importer, into):
    """Returns the exporter's pid, unless the exporter has been ended."""
    alone = nvml.used()
    out.send(b"x")
    number = descriptors.receive(out)
    descriptors.send(into, number)
    os.close(number)
    code = heard(into)["code"]
    if code:
        tell.answer("exporter-dies", {"import": code})
        return exporter
    both, listed = nvml.used(), nvml.processes()
    end(exporter)
    time.sleep(0.5)  # only a while later it is certain that the import keeps the memory
    left, after = nvml.used(), nvml.processes()
    tell.answer("exporter-dies", {
        "MiB more by the import": tell.mib(both - alone), "MiB less by the exporter's end": tell.mib(both - left),
        "pids: exporter, importer": [exporter, importer], "NVML's list before": listed, "after": after,
        "shared MiB": tell.mib(SHARED)}, None)
    return None


tell.main(check)
