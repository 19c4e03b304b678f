"""The time that a slice adds to a query, an allocation and a process start.

The results are ratios within one run. The variants take turns.
"""
import statistics
import subprocess
import sys
import time

import tell

LOOPS = """
import time
from driver import Cuda
cuda = Cuda().start()
def measure(work, count):
    start = time.perf_counter()
    for _ in range(count):
        work()
    return (time.perf_counter() - start) / count * 1e9
def allocate():
    cuda.free(cuda.alloc(2 << 20)[1])
def asynchronous():
    cuda.free_async(cuda.alloc_async(2 << 20)[1])
for work, count in ((cuda.info, 2000), (allocate, 500), (asynchronous, 500)):
    work()
    print(min(measure(work, count) for _ in range(5)))
"""
NAMES = ["cuMemGetInfo", "cuMemAlloc and cuMemFree", "cuMemAllocAsync and cuMemFreeAsync"]


def starts(words, count):
    times = []
    for _ in range(count):
        start = time.perf_counter()
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        times.append((time.perf_counter() - start) * 1e9)
    return times


def check():
    variants = {"bare": tell.in_slice(), "slice": tell.in_slice(tell.SMALL)}
    found = {name: {variant: [] for variant in variants} for name in NAMES}
    for _ in range(3):
        for variant, words in variants.items():
            status, out, err = tell.run(words + [sys.executable, "-B", "-c", LOOPS], timeout=30)
            if not tell.expect(status == 0, f"{variant}: {err[-200:]}"):
                return
            for name, line in zip(NAMES, out.split()):
                found[name][variant].append(float(line))
    costs = {}
    for name, times in found.items():
        bare, slice_ = (statistics.median(times[variant]) for variant in ("bare", "slice"))
        costs[name] = slice_ / bare
        tell.fact(name, {"bare ns": round(bare), "slice ns": round(slice_), "added ns": round(slice_ - bare),
                         "ratio": round(slice_ / bare, 2)})
    # Starts the same number of short processes in each variant, which shows the cost of the
    # preload.
    loop = ["sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do /bin/true; done"]
    times = {variant: [] for variant in variants}
    for _ in range(5):
        for variant, words in variants.items():
            times[variant] += starts(words + loop, 1)
    bare, slice_ = (min(times[variant]) for variant in ("bare", "slice"))
    tell.fact("20 starts of /bin/true and one of gpuslice run", {
        "bare us": round(bare / 1e3), "slice us": round(slice_ / 1e3), "ratio": round(slice_ / bare, 2)})
    costs["20 process starts"] = slice_ / bare
    tell.answer("cost", {f"{name}, in a slice / bare": round(ratio, 2) for name, ratio in costs.items()})


tell.main(check)
