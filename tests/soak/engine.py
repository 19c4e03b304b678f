"""An engine that never stops, for tests/soak/engines.py: it allocates, queries and frees, and its workers
are killed.

Usage: engine.py serve | work
`serve` prints a line for each round, and ends with its standard input. It frees all memory before it
prints. `work` allocates, prints a line, and waits to be killed.
"""

import ctypes
import random
import select
import signal
import subprocess
import sys

MIB = 1 << 20
cuda, nvml = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvidia-ml.so.1")


def call(function, *arguments):
    if code := function(*arguments):
        sys.exit(f"{function.__name__} returns {code}")


def start():
    context = ctypes.c_void_p()
    call(cuda.cuInit, 0)
    call(cuda.cuDevicePrimaryCtxRetain, ctypes.byref(context), 0)
    call(cuda.cuCtxSetCurrent, context)


def allocate(size):
    pointer = ctypes.c_uint64()
    call(cuda.cuMemAlloc_v2, ctypes.byref(pointer), ctypes.c_size_t(size))
    return pointer


def free_and_total():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    call(cuda.cuMemGetInfo_v2, ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


def serve():
    start()
    call(nvml.nvmlInit_v2)
    device, memory = ctypes.c_void_p(), (ctypes.c_uint64 * 3)()
    call(nvml.nvmlDeviceGetHandleByIndex_v2, 0, ctypes.byref(device))
    choose = random.Random(1)
    rounds = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        worker = subprocess.Popen([sys.executable, __file__, "work"], stdout=subprocess.PIPE)
        if worker.stdout.readline() != b"holds\n":
            sys.exit("a worker does not start")
        held = [allocate(choose.randrange(1, 64) * MIB) for _ in range(50)]
        free, total = free_and_total()
        call(nvml.nvmlDeviceGetMemoryInfo, device, memory)
        if total != memory[0] or free > total:
            sys.exit(f"CUDA reports a total of {total}, NVML of {memory[0]}; {free} are free")
        # More than is left is refused, each time.
        if cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(free + 2 * MIB)) != 2:
            sys.exit("an allocation beyond the slice is not refused")
        for pointer in held:
            call(cuda.cuMemFree_v2, pointer)
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        worker.stdout.close()
        rounds += 1
        print(rounds, free_and_total()[0], flush=True)


if sys.argv[1] == "serve":
    serve()
else:
    start()
    allocate(256 * MIB)
    print("holds", flush=True)
    signal.pause()
