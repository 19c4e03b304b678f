"""The part of torch.types that annotations use."""
from typing import NamedTuple


class Device(NamedTuple):
    """The kind and index of a device."""

    type: str
    index: int
