"""Triton: compiles a kernel and runs it in a slice."""
import tell
from torchlike import torch_or_skip

# Triton reads the source of its kernels from the file, so the kernel is at the top level.
try:
    import triton
    import triton.language as tl
except Exception:  # noqa: BLE001
    triton = None

if triton:
    @triton.jit
    def add(x, y, out, count, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = at < count
        tl.store(out + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)


def check():
    torch = torch_or_skip()
    if not triton:
        tell.skip("no triton")
    count = 1 << 20
    x, y = torch.ones(count, device="cuda"), torch.full((count,), 2.0, device="cuda")
    out = torch.empty_like(x)
    add[(triton.cdiv(count, 1024),)](x, y, out, count, BLOCK=1024)
    total = float(out.sum().item())
    tell.equal("the sum", total, 3.0 * count)
    tell.answer("triton", {"version": triton.__version__, "the sum": total}, total == 3.0 * count)


tell.main(check)
