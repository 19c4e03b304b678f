"""The part of torch that vLLM's memory accounting uses: a caching allocator over cuda-bindings.

The allocator really calls `cuMemAlloc` and `cuMemFree`, through NVIDIA's own Python binding. A
block that is freed stays reserved until `empty_cache` or until the driver refuses a request. After
a refusal the allocator frees all cached blocks and calls the driver once more, as torch's does.
"""
from cuda.bindings import driver

from . import types  # noqa: F401  (imported as torch.types)

GRANULE = 2 << 20


class OutOfMemoryError(RuntimeError):
    """The driver refused twice."""


def called(result):
    """Returns the values of a driver call, and raises an exception for its error."""
    status, *values = result
    if status == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
        raise OutOfMemoryError("CUDA out of memory")
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(str(status))
    return values[0] if len(values) == 1 else values


def device(which):
    """Returns a device. `which` is a device or an ordinal."""
    return which if isinstance(which, types.Device) else types.Device("cuda", int(which))


class Allocator:
    """Allocates blocks of whole granules. Cached blocks are found by their size."""

    def __init__(self):
        self.cached, self.held = {}, {}
        self.allocated = self.reserved = self.peak = 0

    def take(self, wanted):
        """Allocates a block and returns its address."""
        size = -(-wanted // GRANULE) * GRANULE
        if self.cached.get(size):
            address = self.cached[size].pop()
        else:
            try:
                address = called(driver.cuMemAlloc(size))
            except OutOfMemoryError:
                self.empty()
                address = called(driver.cuMemAlloc(size))
            self.reserved += size
        self.held[int(address)] = size
        self.allocated += size
        self.peak = max(self.peak, self.allocated)
        return address

    def give(self, address):
        """Frees a block, which stays reserved."""
        size = self.held.pop(int(address))
        self.allocated -= size
        self.cached.setdefault(size, []).append(address)

    def empty(self):
        """Frees all cached blocks."""
        for size, addresses in self.cached.items():
            for address in addresses:
                called(driver.cuMemFree(address))
                self.reserved -= size
        self.cached.clear()


allocator = Allocator()


class accelerator:
    """`torch.accelerator`, by the names that vLLM uses."""

    @staticmethod
    def get_memory_info(_device=None):
        return called(driver.cuMemGetInfo())

    @staticmethod
    def memory_stats(_device=None):
        return {
            "allocated_bytes.all.current": allocator.allocated,
            "allocated_bytes.all.peak": allocator.peak,
        }

    @staticmethod
    def memory_reserved(_device=None):
        return allocator.reserved

    @staticmethod
    def memory_allocated(_device=None):
        return allocator.allocated

    @staticmethod
    def reset_peak_memory_stats(_device=None):
        allocator.peak = allocator.allocated

    @staticmethod
    def synchronize(_device=None):
        called(driver.cuCtxSynchronize())

    @staticmethod
    def empty_cache():
        allocator.empty()
