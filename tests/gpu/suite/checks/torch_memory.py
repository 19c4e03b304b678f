"""torch: mem_get_info, device properties, and the numbers that torch gets from nvidia-ml-py."""
import tell
from torchlike import torch_or_skip


def check():
    torch = torch_or_skip()
    free, total = torch.cuda.mem_get_info()
    properties = torch.cuda.get_device_properties(0)
    tell.fact("mem_get_info", {"free": free, "total": total})
    tell.fact("total_memory", properties.total_memory)
    tell.equal("total_memory", properties.total_memory, total)
    if tell.IN_SLICE:
        tell.equal("total", total, tell.LIMIT)
        tell.expect(free <= tell.LIMIT, f"free is {free}")
    before = free
    held = torch.zeros(256 << 20, dtype=torch.uint8, device="cuda")
    after = torch.cuda.mem_get_info()[0]
    tell.expect(before - after >= 256 << 20, f"256 MiB took {before - after} bytes")
    try:
        tell.fact("device_memory_used", torch.cuda.device_memory_used())
    except Exception as error:  # noqa: BLE001: it wants nvidia-ml-py
        tell.fact("device_memory_used", f"{type(error).__name__}: {error}"[:200])
    del held


tell.main(check)
