"""Prints the memory of every device through numba-cuda.

Each device is queried with a context, with an array of 256 MiB, and after that is freed.
"""
import numpy
from numba import cuda

HELD = 256 << 20


def tell(name):
    free, total = cuda.current_context().get_memory_info()
    print(f"{name} total={total} free={free}")


for device in cuda.list_devices():
    name = f"cuda {device.uuid.removeprefix('GPU-')}"
    with cuda.gpus[device.id]:
        tell(f"{name} context")
        array = cuda.device_array(HELD, numpy.uint8)
        tell(f"{name} holding")
        del array
        cuda.current_context().memory_manager.deallocations.clear()
        tell(f"{name} freed")
