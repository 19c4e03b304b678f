"""Records the facts of the machine that affect memory: kernel, cgroups, driver, MIG, limits.

It only reads.
"""
import ctypes as c
import glob
import os
import platform
import sys

import tell
from driver import Cuda, DriverError, Nvml


class Limits(c.Structure):
    _fields_ = [("cgroup", c.c_char_p), ("soft", c.c_uint64), ("hard", c.c_uint64), ("used", c.c_uint64)]


def text(path, room=2000):
    """Returns a small file's text, or why it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(room).strip()
    except OSError as error:
        return error.strerror


def cgroup():
    """Returns the folder of this process's cgroup (v2), or None."""
    own = [line.split("::", 1)[1].strip() for line in text("/proc/self/cgroup").splitlines() if line.startswith("0::")]
    for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        if own and os.path.exists(root + "/cgroup.controllers"):
            return root + own[0].rstrip("/")
    return None


def system():
    status = {line.split(":")[0]: line.split(":", 1)[1].strip() for line in text("/proc/self/status", 8000).splitlines()
              if ":" in line}
    shm = os.statvfs("/dev/shm") if os.path.isdir("/dev/shm") else None
    return {"kernel": " ".join(platform.uname()[2:4]), "machine": platform.machine(), "proc version": text("/proc/version", 200),
            "glibc": os.confstr("CS_GNU_LIBC_VERSION") if hasattr(os, "confstr") else None, "python": sys.version.split()[0],
            "uid": os.getuid(), "NSpid": status.get("NSpid"), "seccomp": status.get("Seccomp"),
            "cgroups": text("/proc/self/cgroup", 500), "MiB of /dev/shm": shm and shm.f_frsize * shm.f_blocks // tell.MIB,
            "ld.so.preload": text("/etc/ld.so.preload", 200),
            "mounts": [line.split(" ")[2] + " " + line.split(" ")[1] for line in text("/proc/mounts", 20000).splitlines()
                       if any(part in line for part in ("cgroup", "/dev/shm", " /run ", "nvidia", " / "))][:30]}


def kernel_limits():
    """Returns the state of the controllers that could limit device memory."""
    own, found = cgroup(), {}
    for root in filter(None, ["/sys/fs/cgroup", own]):
        for name in ("cgroup.controllers", "dmem.capacity", "dmem.current", "dmem.max", "dmem.min", "misc.capacity", "misc.max"):
            if os.path.exists(f"{root}/{name}"):
                found[f"{'own' if root == own else 'root'} {name}"] = text(f"{root}/{name}", 600)
    params = [line for line in text("/proc/driver/nvidia/params", 20000).splitlines()
              if "memacct" in line.lower() or "RegistryDwords" in line]
    return {"files": found, "driver's parameters": params, "driver": text("/proc/driver/nvidia/version", 300)}


def driver_limits(nvml):
    """Returns the driver's limits for this process's cgroup, the empty path and the root.

    Reading them needs no privilege.
    """
    if not hasattr(nvml.lib, "nvmlDeviceGetMemoryLimits_v1"):
        return "NVML has no nvmlDeviceGetMemoryLimits_v1"
    found = {}
    for what, path in (("own cgroup", cgroup()), ("root", "/sys/fs/cgroup"), ("no such folder", "/sys/fs/cgroup/none-such")):
        if path:
            limits = Limits(path.encode(), 0, 0, 0)
            code = nvml.call("nvmlDeviceGetMemoryLimits_v1", nvml.device, c.byref(limits))
            found[what] = {"code": code, "soft": limits.soft, "hard": limits.hard, "used": limits.used}
    return found


def mig(nvml):
    current, pending = c.c_uint(), c.c_uint()
    code = nvml.call("nvmlDeviceGetMigMode", nvml.device, c.byref(current), c.byref(pending))
    found = {"code": code, "current": current.value, "pending": pending.value}
    for at in range(8 if code == 0 and current.value else 0):
        handle, uuid = c.c_void_p(), c.create_string_buffer(96)
        if nvml.call("nvmlDeviceGetMigDeviceHandleByIndex", nvml.device, at, c.byref(handle)):
            continue
        nvml.call("nvmlDeviceGetUUID", handle, uuid, 96)
        one, attributes = Nvml.__new__(Nvml), (c.c_uint64 * 8)()
        one.lib, one.device = nvml.lib, handle
        code = nvml.call("nvmlDeviceGetAttributes_v2", handle, c.byref(attributes))
        found[uuid.value.decode()] = {"memory": one.memory1(), "memory_v2": one.memory2(),
                                      "attributes": code, "memorySizeMB": attributes[4]}
    return found


def by_uuid(cuda, nvml):
    other = c.create_string_buffer(96)
    nvml.call("nvmlDeviceGetUUID", nvml.device, other, 96)
    code = "from driver import Cuda; print(Cuda().start().uuid())"
    start = cuda.uuid()[:12]
    status, out, err = tell.run([sys.executable, "-B", "-c", code], env={"CUDA_VISIBLE_DEVICES": start})
    same, begins = other.value.decode() == cuda.uuid(), status == 0 and out.strip() == cuda.uuid()
    tell.answer("uuid", {"CUDA": cuda.uuid(), "NVML": other.value.decode(), f"CUDA_VISIBLE_DEVICES={start}":
                         out.strip() or err.strip()[-160:]}, same and begins)


def check():
    tell.fact("system", system())
    tell.fact("device files", [f"{path} {os.stat(path).st_mode & 0o7777:o}" for path in sorted(glob.glob("/dev/nvidia*"))])
    kernel = kernel_limits()
    tell.answer("dmem", kernel, not any("dmem.capacity" in name for name in kernel["files"]))
    for soname in ("libcuda.so.1", "libnvidia-ml.so.1"):
        try:
            c.CDLL(soname)
        except OSError as error:
            tell.expect(False, f"{soname}: {error}")
            return
    try:
        cuda = Cuda().start()
    except DriverError as error:
        tell.skip(f"no GPU: {error}")
    nvml = Nvml(cuda.uuid())
    tell.equal("nvmlInit_v2, nvmlDeviceGetHandleByUUID", nvml.code, 0)
    tell.fact("driver version", nvml.text("nvmlSystemGetDriverVersion"))
    tell.fact("NVML version", nvml.text("nvmlSystemGetNVMLVersion"))
    tell.fact("CUDA version", cuda.version())
    tell.fact("name", cuda.name())
    tell.fact("files of the driver that a process with a context has open",
              sorted({os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                      if os.path.islink(f"/proc/self/fd/{fd}") and "nvidia" in os.readlink(f"/proc/self/fd/{fd}")}))
    limits = driver_limits(nvml)
    tell.answer("driver-limits", limits, isinstance(limits, str) or limits.get("own cgroup", {}).get("code") in (None, 3, 13))
    modes = mig(nvml)
    tell.answer("mig-mode", modes, modes["code"] == 3 or modes["current"] == 0)
    by_uuid(cuda, nvml)


tell.main(check)
