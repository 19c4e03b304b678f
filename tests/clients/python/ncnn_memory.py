"""Prints what ncnn sees of the first Vulkan device, and how many blocks of 100 MiB it gets of it.

Touches: the Vulkan driver that NCNN_VULKAN_DRIVER names, or the one that the loader finds.
"""
import ncnn

BLOCK = 100 << 20

ncnn.create_gpu_instance()
device = ncnn.get_gpu_device(0)
print("budget", device.get_heap_budget())
allocator = ncnn.VkBlobAllocator(device)
blocks = [allocator.fastMalloc(BLOCK) for _ in range(12)]
print("blocks", sum(block is not None for block in blocks), flush=True)
