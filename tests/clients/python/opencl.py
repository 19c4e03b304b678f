"""An OpenCL program: how much memory the devices have, and how much can be allocated.

Touches: pyopencl, with the loader that its wheel brings.
"""

import sys

import pyopencl as cl

GIB = 1 << 30


def devices():
    for platform in cl.get_platforms():
        yield from platform.get_devices()


def fill(device, size):
    """Allocates buffers of a size until the device has no room."""
    context = cl.Context([device])
    held = []
    try:
        while len(held) < 1000:
            held.append(cl.Buffer(context, cl.mem_flags.READ_WRITE, size))
    except cl.MemoryError as error:
        print(len(held), "buffers, then", error)
    buffer = held.pop()
    part = buffer[: size // 2]
    buffer.release()
    for again in held:
        again.release()
    held.clear()
    while len(held) < 1000:
        try:
            held.append(cl.Buffer(context, cl.mem_flags.READ_WRITE, size))
        except cl.MemoryError:
            break
    print(len(held), "buffers beside a part of", part.size)


for device in devices():
    print(device.name, device.global_mem_size, device.max_mem_alloc_size)
    if sys.argv[1:]:
        fill(device, int(sys.argv[1]))
