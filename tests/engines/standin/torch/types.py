"""torch.types, for annotations."""
from typing import NamedTuple


class Device(NamedTuple):
    """Which device."""

    type: str
    index: int
