"""Runs engines step by step, as standard input directs.

Every line is answered by one line of JSON. `new ARITHMETIC UTILIZATION` forks a process that has
not called the driver yet. That process runs the steps that follow, until `end` or until a step
fails. `gone` then reports that the process has ended and was waited for. In this way one
interpreter under the preload serves thousands of engine processes.
"""
import gc
import json
import mmap
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "standin"))

import psutil
import torch
from arithmetic import KINDS
from cuda.bindings import driver


# The memory that the simulated driver takes for a context, in GiB.
SIMULATED_CONTEXT = 0.25


def gib(amount):
    return int(float(amount) * (1 << 30))


def say(**answer):
    os.write(1, (json.dumps(answer) + "\n").encode())


class Engine:
    """The engine of one process. Each step is a method and returns the value of its answer."""

    def __init__(self, arithmetic="written", utilization="0.92"):
        self.sizing = KINDS[arithmetic](float(utilization))
        self.blocks = []

    def context(self, whole):
        """Takes `whole` GiB before the baseline: for the context, and for NCCL and cuBLAS."""
        torch.called(driver.cuInit(0))
        primary = torch.called(driver.cuDevicePrimaryCtxRetain(0))
        torch.called(driver.cuCtxSetCurrent(primary))
        torch.called(driver.cuMemAlloc(gib(float(whole) - SIMULATED_CONTEXT)))

    def baseline(self):
        return self.sizing.baseline()

    def load(self, amount):
        torch.allocator.take(gib(amount))

    def enter(self):
        self.sizing.enter()

    def peak(self, amount):
        self.blocks.append(torch.allocator.take(gib(amount)))

    def settle(self):
        torch.allocator.give(self.blocks.pop())

    def leave(self):
        return self.sizing.leave()

    def available(self):
        return self.sizing.available()

    def cache(self):
        """Allocates the cache that was sized: memory that is reported as free must be available."""
        wanted = self.sizing.available()
        if wanted > 0:
            torch.allocator.take(wanted)
        return wanted

    def numbers(self):
        """Returns every number by which an engine sizes itself."""
        free, total = torch.accelerator.get_memory_info()
        memory = psutil.virtual_memory()
        integrated = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_INTEGRATED
        return {
            "free": free,
            "total": total,
            "integrated": torch.called(driver.cuDeviceGetAttribute(integrated, 0)),
            "available": memory.available,
            "memory": memory.total,
        }

    def grow(self, amount):
        """Takes host memory in this process, and writes to every page."""
        block = mmap.mmap(-1, max(gib(amount), 1), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # Uses large pages if the kernel has them, because a million faults take ten seconds.
        block.madvise(mmap.MADV_HUGEPAGE)
        for page in range(0, len(block), mmap.PAGESIZE):
            block[page] = 1
        self.blocks.append(block)


def live(words):
    """Runs the steps of the forked process until it ends."""
    engine = Engine(*words)
    say(done="new")
    for line in sys.stdin:
        step, *words = line.split()
        if step == "end":
            return
        try:
            say(done=step, value=getattr(engine, step)(*words))
        except (ValueError, AssertionError, torch.OutOfMemoryError) as failure:
            say(failed=step, why=type(failure).__name__, said=str(failure))
            return


def main():
    if os.environ.get("ENGINE_PROCFS"):
        psutil.PROCFS_PATH = os.environ["ENGINE_PROCFS"]
    # A child's garbage collector does not visit the parent's objects and imports again.
    gc.collect()
    gc.freeze()
    say(ready=os.getpid())
    while line := sys.stdin.readline():
        child = os.fork()
        if not child:
            live(line.split()[1:])
            os._exit(0)
        os.waitpid(child, 0)
        say(gone=child)


if __name__ == "__main__":
    main()
