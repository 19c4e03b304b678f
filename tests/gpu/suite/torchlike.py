"""Provides torch with a GPU, or skips the check."""
import tell


def torch_or_skip():
    """Returns torch, with a context on the first GPU."""
    torch = tell.need("torch")
    try:
        if not torch.cuda.is_available():
            tell.skip("torch sees no GPU")
        torch.cuda.init()
    except Exception as error:  # noqa: BLE001
        tell.skip(f"torch: {error}".splitlines()[0][:200])
    tell.fact("torch", torch.__version__)
    return torch


def fill(torch, part):
    """Allocates until an allocation is refused. Returns the allocations and the error."""
    held = []
    while part >= 1 << 21:
        try:
            held.append(torch.empty(part, dtype=torch.uint8, device="cuda"))
        except torch.cuda.OutOfMemoryError as error:
            last = error
            part //= 2
    return held, last


def fills_and_gives_back():
    """A check: the allocator uses all free memory until it is refused, and returns all of it."""
    torch = torch_or_skip()
    free, _ = torch.cuda.mem_get_info()
    held, error = fill(torch, 256 << 20)
    had, left = sum(one.numel() for one in held), torch.cuda.mem_get_info()[0]
    tell.fact("free at the start, had, left; in MiB", [tell.mib(free), tell.mib(had), tell.mib(left)])
    tell.fact("the error", str(error)[:300])
    tell.expect(had > free * 0.8, f"only {tell.mib(had)} MiB of {tell.mib(free)} were had")
    tell.expect(left < 64 * tell.MIB, f"{tell.mib(left)} MiB were left")
    held.clear()
    torch.cuda.empty_cache()
    tell.expect(torch.cuda.mem_get_info()[0] >= free - 64 * tell.MIB, "not all came back")
