"""Allocates 2000 MiB and computes a sum, by OpenCL.

Touches: the first OpenCL device.
"""

import numpy
import pyopencl as cl

context = cl.Context([cl.get_platforms()[0].get_devices()[0]])
queue = cl.CommandQueue(context)
flags = cl.mem_flags
held = [cl.Buffer(context, flags.READ_WRITE, 100 << 20) for _ in range(20)]
numbers = numpy.arange(100, dtype=numpy.int32)
out = numpy.zeros(1, dtype=numpy.int32)
source = cl.Buffer(context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=numbers)
target = cl.Buffer(context, flags.WRITE_ONLY, out.nbytes)
program = cl.Program(
    context,
    """kernel void sum(global const int *from, global int *to) {
        int all = 0;
        for (int n = 0; n < 100; n++) all += from[n];
        to[0] = all;
    }""",
).build()
program.sum(queue, (1,), None, source, target)
cl.enqueue_copy(queue, out, target)
print(len(held), "buffers of 100 MiB, sum", out[0])
