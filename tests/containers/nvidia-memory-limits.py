#!/usr/bin/python3
"""Stands in for `nvidia-cdi-hook apply-cuda-memory-limits` of NVIDIA's toolkit (1.20.1 and later).

As the toolkit's hook, it runs at createRuntime and reads NVIDIA_GPU_MEMORY_REQUEST and _LIMIT (MiB)
from process.env of config.json. It does nothing unless both are set. It sets the limits of the
container's cgroup without regard to existing ones.
"""
import ctypes
import json
import os
import sys


class Limits(ctypes.Structure):
    _fields_ = [("cgroup", ctypes.c_char_p), ("soft", ctypes.c_uint64), ("hard", ctypes.c_uint64)]


state = json.load(sys.stdin)
with open(os.path.join(state["bundle"], "config.json")) as file:
    env = dict(it.split("=", 1) for it in json.load(file)["process"]["env"])
if "NVIDIA_GPU_MEMORY_REQUEST" not in env or "NVIDIA_GPU_MEMORY_LIMIT" not in env:
    sys.exit(0)
with open("/proc/%d/cgroup" % state["pid"]) as file:
    own = [line[3:] for line in file.read().splitlines() if line.startswith("0::")][0]
limits = Limits(
    ("/sys/fs/cgroup" + own).encode(),
    int(env["NVIDIA_GPU_MEMORY_REQUEST"]) << 20,
    int(env["NVIDIA_GPU_MEMORY_LIMIT"]) << 20,
)
nvml = ctypes.CDLL("libnvidia-ml.so.1")
device = ctypes.c_void_p()
uuid = sys.argv[sys.argv.index("--gpu-id") + 1].encode()
for code in (
    nvml.nvmlInit_v2(),
    nvml.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(device)),
    nvml.nvmlDeviceSetMemoryLimits_v1(device, ctypes.byref(limits)),
):
    if code != 0:
        sys.exit("nvidia-cdi-hook: NVML answers %d" % code)
