"""torch: CUDA graphs captured near the limit, beyond the limit, and after that refusal."""
import tell
from torchlike import torch_or_skip


def capture(torch, size):
    """Captures a graph that needs `size` bytes of its own. Returns the graph's result."""
    graph, source = torch.cuda.CUDAGraph(), torch.ones(1 << 20, device="cuda")
    with torch.cuda.graph(graph):
        room = torch.empty(size, dtype=torch.uint8, device="cuda")
        out = source * 2
    graph.replay()
    torch.cuda.synchronize()
    del room
    return float(out.sum().item())


def check():
    torch = torch_or_skip()
    tell.equal("a first graph", capture(torch, 16 << 20), float(2 << 20))
    free, _ = torch.cuda.mem_get_info()
    held = torch.empty(max(free - (512 << 20), 1 << 20), dtype=torch.uint8, device="cuda")
    tell.equal("a graph near the limit", capture(torch, 64 << 20), float(2 << 20))
    try:
        capture(torch, 4 << 30)
        tell.expect(False, "a graph over the limit was captured")
    except Exception as error:  # noqa: BLE001
        tell.fact("a graph over the limit", f"{type(error).__name__}: {error}"[:400])
    del held
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    last = capture(torch, 16 << 20)
    tell.equal("a graph after the refused one", last, float(2 << 20))
    tell.answer("torch-graphs", {"a graph after the refused one computes": last}, last == float(2 << 20))


tell.main(check)
