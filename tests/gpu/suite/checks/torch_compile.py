"""torch.compile of a small model: the compiler's own processes run under the preload too."""
import tell
from torchlike import torch_or_skip


def check():
    torch = torch_or_skip()
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 8)).cuda().eval()
    data = torch.randn(32, 256, device="cuda")
    with torch.no_grad():
        plain = model(data)
        compiled = torch.compile(model)(data)
    tell.expect(torch.allclose(plain, compiled, atol=1e-3, rtol=1e-3), "the compiled model computes something else")


tell.main(check)
