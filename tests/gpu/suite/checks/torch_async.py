"""torch with backend:cudaMallocAsync fills the stream-ordered pool."""
import os

import tell

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "backend:cudaMallocAsync"
os.environ["PYTORCH_ALLOC_CONF"] = "backend:cudaMallocAsync"
from torchlike import fills_and_gives_back  # noqa: E402

tell.main(fills_and_gives_back)
