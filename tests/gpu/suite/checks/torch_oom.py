"""torch's caching allocator up to out-of-memory, and its retry after it has released its cache."""
import tell
from torchlike import fill, torch_or_skip


def check():
    torch = torch_or_skip()
    free, total = torch.cuda.mem_get_info()
    held, error = fill(torch, 1 << 30)
    text = str(error)
    tell.fact("the error", text[:600])
    left = torch.cuda.mem_get_info()[0]
    had = sum(one.numel() for one in held)
    tell.fact("free at the start, had, left; in MiB", [tell.mib(free), tell.mib(had), tell.mib(left)])
    if tell.IN_SLICE:
        tell.expect(f"total capacity of {tell.LIMIT / tell.GIB:.2f} GiB" in text, "the error names another capacity")
        tell.expect(left < 64 * tell.MIB, f"{tell.mib(left)} MiB were left")
    tell.answer("torch", {"free at the start, had, left in MiB": [tell.mib(free), tell.mib(had), tell.mib(left)],
                          "total": total, "error": text[:300]}, total == tell.LIMIT if tell.IN_SLICE else None)
    # All memory is now cached in pieces. A large tensor fits only after the cache was released.
    held.clear()
    tell.expect(torch.cuda.memory_reserved() > free // 2, "torch caches nothing")
    retries = torch.cuda.memory_stats().get("num_alloc_retries", 0)
    large = torch.empty(free * 3 // 4, dtype=torch.uint8, device="cuda")
    tell.fact("num_alloc_retries", torch.cuda.memory_stats().get("num_alloc_retries", 0) - retries)
    del large
    torch.cuda.empty_cache()
    tell.expect(torch.cuda.mem_get_info()[0] >= free - 64 * tell.MIB, "not all came back")


tell.main(check)
