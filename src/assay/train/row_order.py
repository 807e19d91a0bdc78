"""Which rows a step trains on: a shuffled order per epoch, a pure function of seed and position.

Nothing is drawn from a running generator, so a resumed run reads on where it stopped.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeVar

import numpy as np

Item = TypeVar("Item")


@lru_cache(maxsize=4)
def epoch_order(seed: int, epoch: int, count: int) -> tuple[int, ...]:
    """The order of `count` rows in one epoch."""
    generator = np.random.Generator(np.random.Philox(key=[seed, epoch]))
    return tuple(int(i) for i in generator.permutation(count))


def visits(items: Sequence[Item], seed: int, cursor: int, count: int) -> list[tuple[int, Item]]:
    """`count` (epoch, item) pairs from position `cursor` of the endless shuffled stream."""
    found = []
    for position in range(cursor, cursor + count):
        epoch, place = divmod(position, len(items))
        found.append((epoch, items[epoch_order(seed, epoch, len(items))[place]]))
    return found
