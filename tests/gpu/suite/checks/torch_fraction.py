"""torch: set_per_process_memory_fraction is a share of the slice."""
import tell
from torchlike import fill, torch_or_skip


def check():
    torch = torch_or_skip()
    torch.cuda.set_per_process_memory_fraction(0.5)
    held, error = fill(torch, 256 << 20)
    had = sum(one.numel() for one in held)
    tell.fact("had, in MiB", tell.mib(had))
    tell.fact("the error", str(error)[:300])
    tell.expect(had <= tell.LIMIT // 2, f"{tell.mib(had)} MiB were had of half of {tell.mib(tell.LIMIT)}")
    free = torch.cuda.mem_get_info()[0]
    tell.expect(had >= min(tell.LIMIT // 2, free) - tell.GIB, f"only {tell.mib(had)} MiB were had")


tell.main(check)
