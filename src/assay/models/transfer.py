"""Copies from host memory to where a model is. Nothing comes back here."""

import torch
from torch import Tensor


def moved(host: Tensor, device: torch.device) -> Tensor:
    """`host` on the device; to a GPU it goes out of pinned memory and nobody waits for it.

    The host allocator keeps the pinned copy until the transfer has happened
    (https://docs.pytorch.org/docs/stable/notes/cuda.html#use-pinned-memory-buffers).
    """
    if device.type != "cuda":
        return host.to(device)
    return host.pin_memory().to(device, non_blocking=True)
