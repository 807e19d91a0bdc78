"""Compares two gradients of the same weights: the cosine between them, whole and block by block.

Pure functions of tensors by parameter name; `train.update` makes the gradients.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

Gradient = Mapping[str, Tensor]
"""Parameter name -> its gradient; absent means that the parameter got none, which counts as 0."""

_NUMBERED = re.compile(r".*?\.\d+(?=\.)")


@dataclass(frozen=True, slots=True)
class Direction:
    """Two gradients of one block of parameters."""

    block: str
    cosine: float | None
    """None where one of them is 0 or not finite: it points nowhere."""
    before: float
    """Norm."""
    after: float
    """Norm."""


@dataclass(frozen=True, slots=True)
class Directions:
    """Two gradients of a model."""

    whole: Direction
    blocks: tuple[Direction, ...]
    """In the order of the parameters."""


def block_of(parameter: str) -> str:
    """The numbered layer that a parameter belongs to; outside of layers, its own module."""
    layer = _NUMBERED.match(parameter)
    return layer[0] if layer else parameter.rpartition(".")[0] or parameter


def directions(before: Gradient, after: Gradient) -> Directions:
    """The cosine of the whole gradients and of each block. Products are added in float64."""
    sums: dict[str, Tensor] = {}
    for name in dict.fromkeys([*before, *after]):
        block = block_of(name)
        found = products(before.get(name), after.get(name))
        sums[block] = sums.get(block, torch.zeros(3, dtype=torch.float64)) + found
    total = torch.stack([torch.zeros(3, dtype=torch.float64), *sums.values()]).sum(0)
    blocks = tuple(direction(block, found) for block, found in sums.items())
    return Directions(direction("whole", total), blocks)


def products(before: Tensor | None, after: Tensor | None) -> Tensor:
    """before . after, before . before and after . after, as three numbers in float64."""
    one = None if before is None else before.flatten().double()
    other = None if after is None else after.flatten().double()
    pairs = ((one, other), (one, one), (other, other))
    dots = [0.0 if a is None or b is None else float(a @ b) for a, b in pairs]
    return torch.tensor(dots, dtype=torch.float64)


def direction(block: str, found: Tensor) -> Direction:
    """The three products of a block as cosine and norms."""
    dot, one, other = found.tolist()
    before, after = math.sqrt(one), math.sqrt(other)
    if not (0 < before * after < math.inf):
        return Direction(block, None, before, after)
    # Rounding may carry the quotient a hair beyond 1.
    return Direction(block, max(-1.0, min(1.0, dot / (before * after))), before, after)
