"""torch with backend:cudaMallocAsync: the stream-ordered pool is what is filled."""
import os

import tell

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "backend:cudaMallocAsync"
os.environ["PYTORCH_ALLOC_CONF"] = "backend:cudaMallocAsync"
from torchlike import fill, torch_or_skip  # noqa: E402


def check():
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


tell.main(check)
