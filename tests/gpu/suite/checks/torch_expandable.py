"""torch with expandable_segments:True, which maps physical memory piece by piece."""
import os

import tell

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
from torchlike import fills_and_gives_back  # noqa: E402

tell.main(fills_and_gives_back)
