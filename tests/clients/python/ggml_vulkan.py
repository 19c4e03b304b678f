"""Prints what llama.cpp's Vulkan backend sees of its first device, and how many buffers of 100 MiB it
gets of it.

Touches: the libraries in the folder that the argument names; the Vulkan driver.
"""
import ctypes as c
import os
import sys

folder = sys.argv[1]
base = c.CDLL(os.path.join(folder, "libggml-base.so"), mode=c.RTLD_GLOBAL)
vulkan = c.CDLL(os.path.join(folder, "libggml-vulkan.so"))
kind_of = c.CFUNCTYPE(c.c_void_p, c.c_size_t)(("ggml_backend_vk_buffer_type", vulkan))
allocate = c.CFUNCTYPE(c.c_void_p, c.c_void_p, c.c_size_t)(("ggml_backend_buft_alloc_buffer", base))
release = c.CFUNCTYPE(None, c.c_void_p)(("ggml_backend_buffer_free", base))


def tell():
    free, total = c.c_size_t(), c.c_size_t()
    vulkan.ggml_backend_vk_get_device_memory(0, c.byref(free), c.byref(total))
    print("free", free.value >> 20, "total", total.value >> 20, flush=True)


print("devices", vulkan.ggml_backend_vk_get_device_count(), flush=True)
tell()
kind = kind_of(0)
buffers = [allocate(kind, 100 << 20) for _ in range(12)]
buffers = [buffer for buffer in buffers if buffer]
print("buffers", len(buffers), flush=True)
tell()
for buffer in buffers:
    release(buffer)
tell()
