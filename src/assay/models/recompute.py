"""Tensors that products read, computed again in the backward pass instead of kept for it.

For what is cheap beside the products: a norm's output, a gated activation. Whole layers are
activation checkpointing's business (`adapt.save_activations`); no product is computed twice here.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


@contextmanager
def made_again(values: Tensor, make: Callable[[], Tensor]) -> Iterator[None]:
    """What is computed inside keeps how to make `values` in the place of `values`.

    `make` gives the same numbers, and holds on to nothing but what is kept anyway. It runs once
    for all the products that read them, without gradients; those of `values` themselves are as
    ever.
    """
    recipe = Recipe(make)
    # No reference to the values: autograd holds on to the hooks.
    place, shape = values.data_ptr(), values.shape

    def pack(saved: Tensor) -> Any:
        if saved.data_ptr() == place and saved.shape == shape:
            recipe.readers += 1
            return recipe
        return saved

    with torch.autograd.graph.saved_tensors_hooks(pack, unpacked):
        yield


def unpacked(kept: Any) -> Tensor:
    """A tensor that was kept, or made again."""
    return kept.read() if isinstance(kept, Recipe) else kept


class Recipe:
    """How to make a tensor that `readers` products read; it is there from the first to the last."""

    def __init__(self, make: Callable[[], Tensor]):
        """Nothing is made yet, and nobody reads."""
        self.make = make
        self.readers = 0
        self.left = 0
        self.value: Tensor | None = None

    def read(self) -> Tensor:
        """The tensor, for one reader."""
        if self.value is None:
            with torch.no_grad():
                self.value = self.make()
            self.left = self.readers
        value = self.value
        self.left -= 1
        if not self.left:
            self.value = None
        return value
