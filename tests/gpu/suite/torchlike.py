"""torch with a GPU, or the check is skipped."""
import tell


def torch_or_skip():
    """torch, with a context on the first GPU."""
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
    """Allocates until it is refused: what was had, and the error."""
    held = []
    while part >= 1 << 21:
        try:
            held.append(torch.empty(part, dtype=torch.uint8, device="cuda"))
        except torch.cuda.OutOfMemoryError as error:
            last = error
            part //= 2
    return held, last
