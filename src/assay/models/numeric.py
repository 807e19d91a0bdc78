"""Small tools of numeric code: types wide enough for sums, pieces of a length, device copies."""

from collections.abc import Iterator

import torch
from torch import Tensor


def wide_type(tensor: Tensor) -> torch.dtype:
    """The tensor's type, or float32 where that is wider."""
    return torch.promote_types(tensor.dtype, torch.float32)


def widened(tensor: Tensor) -> Tensor:
    """The tensor in at least float32, where sums over many keys or words are taken."""
    return tensor.to(wide_type(tensor))


def spans(length: int, step: int) -> Iterator[tuple[int, int]]:
    """Consecutive (first, stop) pairs that cover `length`."""
    for first in range(0, length, step):
        yield first, min(first + step, length)


def moved(host: Tensor, device: torch.device) -> Tensor:
    """`host` on the device; to a GPU it goes out of pinned memory and nobody waits for it.

    The host allocator keeps the pinned copy until the transfer has happened
    (https://docs.pytorch.org/docs/stable/notes/cuda.html#use-pinned-memory-buffers).
    """
    if device.type != "cuda":
        return host.to(device)
    return host.pin_memory().to(device, non_blocking=True)
