"""Dropout whose masks are a function of seed, step, micro-batch and layer alone.

Nothing is drawn from a running generator: a step that is repeated after a kill, and a forward pass
that is run again for the backward one, drop what they dropped before.
"""

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Mask:
    """Which numbers of a tensor are dropped: the same for the same key and shape, in any type."""

    key: int
    share: float

    def __call__(self, values: Tensor) -> Tensor:
        """`values` with the dropped ones 0 and the others larger, so that the mean stays."""
        generator = torch.Generator(values.device).manual_seed(self.key)
        kept = torch.empty(values.shape, dtype=torch.bool, device=values.device)
        kept.bernoulli_(1 - self.share, generator=generator)
        return values * kept.to(values.dtype).div_(1 - self.share)


class KeyedDropout(nn.Dropout):
    """Dropout of one layer, with the mask of the place in training where the model is."""

    def __init__(self, share: float, name: str):
        """`share` of the numbers is dropped; `name` is the layer's, unlike every other's."""
        super().__init__(share)
        self.name = name
        self.place: tuple[int, int, int] = (0, 0, 0)
        """Seed, finished steps, micro-batch."""

    @property
    def mask(self) -> Mask | None:
        """What the layer drops now; None where the model answers."""
        if not self.training:
            return None
        text = "/".join(map(str, (*self.place, self.name)))
        digest = hashlib.sha256(text.encode()).digest()
        return Mask(int.from_bytes(digest[:8], signed=True), self.p)

    def forward(self, input: Tensor) -> Tensor:
        """What is left of the input."""
        mask = self.mask
        return input if mask is None else mask(input)


def begin_masks(module: nn.Module, seed: int, step: int) -> None:
    """Set every layer's mask to that of a step's first micro-batch."""
    for layer in _keyed(module):
        layer.place = seed, step, 0


def next_masks(module: nn.Module) -> None:
    """Set every layer's mask to that of the next micro-batch."""
    for layer in _keyed(module):
        seed, step, micro = layer.place
        layer.place = seed, step, micro + 1


def _keyed(module: nn.Module) -> list[KeyedDropout]:
    return [part for part in module.modules() if isinstance(part, KeyedDropout)]
