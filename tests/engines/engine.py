"""An engine that starts step by step, as its standard input says.

Every line is answered by one line of JSON. `new ARITHMETIC UTILIZATION` forks a fresh process
that has not met the driver yet, and the steps that follow are its own, until `end` or until a
step fails; then `gone` says that it is buried. So one interpreter under the preload serves
thousands of engine processes.
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


# What the simulated driver takes for a context, in GiB.
SIMULATED_CONTEXT = 0.25


def gib(amount):
    return int(float(amount) * (1 << 30))


def say(**answer):
    os.write(1, (json.dumps(answer) + "\n").encode())


class Engine:
    """One process's engine. A step is a method; it returns what is worth telling."""

    def __init__(self, arithmetic="written", utilization="0.92"):
        self.sizing = KINDS[arithmetic](float(utilization))
        self.blocks = []

    def context(self, whole):
        """The context, and what NCCL and cuBLAS take before the baseline: `whole` together."""
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
        """Takes the cache that was sized: what is called free can be had."""
        wanted = self.sizing.available()
        if wanted > 0:
            torch.allocator.take(wanted)
        return wanted

    def numbers(self):
        """All that any engine sizes itself by."""
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
        """Host memory of the process, touched."""
        block = mmap.mmap(-1, max(gib(amount), 1), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # Large pages, where the kernel has them: a million faults take ten seconds.
        block.madvise(mmap.MADV_HUGEPAGE)
        for page in range(0, len(block), mmap.PAGESIZE):
            block[page] = 1
        self.blocks.append(block)


def live(words):
    """The forked process, until it ends."""
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
    # Neither the parent's objects nor its imports are looked at again by a child's collector.
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
