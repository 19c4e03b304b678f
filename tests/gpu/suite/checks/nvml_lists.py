"""NVML's process lists: element size, short arrays, old versions.

Also field values, costs, and what other users may read.
"""
import ctypes as c
import json
import os
import sys
import time

import tell
from driver import Nvml

LISTS = ["nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses_v2",
         "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3",
         "nvmlDeviceGetMPSComputeRunningProcesses_v3"]
ROOM, UNTOUCHED = 4096, 0xAA


class Field(c.Structure):
    _fields_ = [("id", c.c_uint), ("scope", c.c_uint), ("time", c.c_longlong), ("latency", c.c_longlong),
                ("type", c.c_uint), ("code", c.c_uint), ("value", c.c_uint64)]


class Details(c.Structure):
    _fields_ = [("version", c.c_uint), ("mode", c.c_uint), ("count", c.c_uint), ("array", c.c_void_p)]


def listed(nvml, name):
    """Returns the code, the number of elements, and the bytes written for each."""
    room, count = (c.c_ubyte * ROOM)(*[UNTOUCHED] * ROOM), c.c_uint(32)
    code = nvml.call(name, nvml.device, c.byref(count), room)
    if code:
        return {"code": code}
    written = max((at + 1 for at in range(ROOM) if room[at] != UNTOUCHED), default=0)
    return {"code": code, "count": count.value, "bytes each": written / count.value if count.value else None}


def short(nvml):
    name, found = LISTS[2], {}
    for what, size, room in (("no array, 0", 0, None), ("no array, 8", 8, None), ("1 element", 1, (c.c_ubyte * 64)())):
        count = c.c_uint(size)
        found[what] = [nvml.call(name, nvml.device, c.byref(count), room), count.value]
    return found


def details(nvml):
    array = (c.c_uint64 * 128)()
    asked = Details(0x1000018, 0, 32, c.cast(array, c.c_void_p))
    code = nvml.call("nvmlDeviceGetRunningProcessDetailList", nvml.device, c.byref(asked))
    return {"code": code, "count": asked.count}


def fields(nvml):
    """Returns the ids of fields whose value equals one of the memory numbers, in bytes, KiB or MiB.
    """
    memory = dict(nvml.memory2()[1], **{"v1 used": nvml.memory1()[1]["used"]})
    wanted = {}
    for name, value in memory.items():
        for unit, size in (("bytes", 1), ("KiB", 1 << 10), ("MiB", 1 << 20)):
            if value // size > 1000:
                wanted[value // size] = f"{name} in {unit}"
    found, known = {}, 0
    for identity in range(1, 400):
        one = Field(id=identity)
        if nvml.call("nvmlDeviceGetFieldValues", nvml.device, 1, c.byref(one)) == 0 and one.code == 0:
            known += 1
            if one.value in wanted:
                found[identity] = wanted[one.value]
    return found, known


def cost(work, count):
    times = []
    for _ in range(count):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1e6)
    times.sort()
    return {"least us": round(times[0], 1), "median us": round(times[count // 2], 1), "most us": round(times[-1], 1)}


def other_user(uuid):
    # Only root may be able to read Python's files, so imports precede the change of user.
    code = ("import json, os, sys\nfrom driver import Nvml\n"
            "os.setgroups([]); os.setgid(65534); os.setuid(65534)\nn = Nvml(sys.argv[1])\n"
            "print(json.dumps({'init': n.code, 'memory': n.memory1()[0], 'memory_v2': n.memory2()[0], "
            "'processes': n.processes()}))")
    status, out, err = tell.run([sys.executable, "-B", "-c", code, uuid], timeout=15)
    return json.loads(out) if status == 0 else f"ended with {status}: {err.strip()[-200:]}"


def check():
    cuda = tell.started()
    nvml = Nvml(cuda.uuid())
    holder = tell.Talker(tell.in_slice() + tell.python("holder.py"))
    pid = holder.ask(do="start")["pid"]
    sizes = {name: listed(nvml, name) for name in LISTS}
    sizes["processes that have a context: this one and"] = pid
    each = sizes[LISTS[2]].get("bytes each")
    tell.answer("nvml-process-size", sizes, each == 24 if each else None)
    answered = short(nvml)
    tell.answer("nvml-short-list", answered, answered["1 element"][0] == 7)
    tell.fact("nvmlDeviceGetRunningProcessDetailList", details(nvml))
    split = (c.c_uint64 * 8)()
    code = nvml.call("nvmlDeviceGetConfComputeMemSizeInfo", nvml.device, c.byref(split))
    protected = (c.c_uint64 * 8)()
    code2 = nvml.call("nvmlDeviceGetConfComputeProtectedMemoryUsage", nvml.device, c.byref(protected))
    bar1 = nvml.bar1()
    tell.answer("bar1", {"nvmlDeviceGetBAR1MemoryInfo": bar1, "nvmlDeviceGetMemoryInfo": nvml.memory1(),
                         "ConfComputeMemSizeInfo": [code, split[0], split[1]],
                         "ConfComputeProtectedMemoryUsage": [code2, *list(protected)[:3]]},
                bar1[0] != 0 or bar1[1]["total"] != nvml.memory1()[1]["total"])
    found, known = fields(nvml)
    tell.answer("field-values", {"ids that are answered": known, "that carry memory": found}, not found)
    tell.answer("query-cost", {"cuMemGetInfo_v2": cost(cuda.info, 200), "nvmlDeviceGetMemoryInfo": cost(nvml.memory1, 200),
                               "nvmlDeviceGetMemoryInfo_v2": cost(nvml.memory2, 200),
                               "nvmlDeviceGetComputeRunningProcesses_v3": cost(nvml.processes, 20)})
    if os.getuid() == 0:
        said = other_user(cuda.uuid())
        # Another user cannot read the simulated machine's files, whatever NVML itself allows.
        tell.answer("nvml-other-user", said, None if tell.SIM else isinstance(said, dict) and said["memory"] == 0 and said["processes"][0] == 0)
    else:
        tell.answer("nvml-other-user", f"this is user {os.getuid()}: {nvml.memory1()[0]}, {nvml.processes()[0]}",
                    nvml.memory1()[0] == 0 and nvml.processes()[0] == 0)
    tell.equal("the holder's end", holder.end(), 0)


tell.main(check)
