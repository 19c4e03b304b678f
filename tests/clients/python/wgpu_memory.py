"""Prints how many buffers of 100 MiB wgpu creates on the first Vulkan device, and why there is no further one.

Touches: the Vulkan driver that the loader finds.
"""
import wgpu

BLOCK = 100 << 20

adapter = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
assert adapter.info["backend_type"] == "Vulkan", adapter.info
device = adapter.request_device_sync(required_limits={"max-buffer-size": BLOCK})
buffers = []
why = "none was refused"
for _ in range(12):
    try:
        buffers.append(device.create_buffer(size=BLOCK, usage=wgpu.BufferUsage.STORAGE))
    except wgpu.GPUError as error:
        why = str(error).splitlines()[-1].strip()
        break
print("buffers", len(buffers), why, flush=True)
