"""What a selector reads: a query, the pool it may pick from, and the features of both.

Demonstrations are looked up in a table that contexts share, so that a context is small and two
contexts are equal where the same is read. Nothing is scored here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from assay.data.episode import Context


@dataclass(frozen=True)
class FeatureTable:
    """Unit vectors of demonstrations; two tables are equal where their fingerprints are."""

    fingerprint: str
    """sha256 of the encoder and of everything that was encoded."""
    demonstrations_ND: Tensor = field(compare=False, repr=False)
    """One row for each demonstration, by its number."""

    @property
    def width(self) -> int:
        """D."""
        return self.demonstrations_ND.shape[1]


@dataclass(frozen=True, slots=True)
class Choice:
    """The context of one selection: K candidates, of which `shots` are picked one by one."""

    query: str
    """The id of the row."""
    asked: str
    """The sha256 of what the query's features are made of."""
    pool: tuple[int, ...]
    """Numbers of the K demonstrations; actions are such numbers, never places in the pool."""
    shots: int
    features: FeatureTable
    query_D: Tensor = field(compare=False, repr=False)
    """The query's unit vector."""


def choice_of(context: Context) -> Choice:
    """The context as a selector's. Raises TypeError for another one."""
    if not isinstance(context, Choice):
        raise TypeError(f"a choice among candidates, not {type(context).__name__}")
    return context


@dataclass(frozen=True, slots=True)
class ChoiceBatch:
    """B choices laid side by side; K is the largest pool, and smaller ones are filled up."""

    query_BD: Tensor
    pool_BKD: Tensor
    numbers_BK: Tensor
    """Numbers of the demonstrations; -1 where a pool is filled up."""

    @property
    def absent_BK(self) -> Tensor:
        """Bool: where a pool is filled up."""
        return self.numbers_BK < 0


def batch_of(choices: Sequence[Choice]) -> ChoiceBatch:
    """The choices as tensors, in order."""
    pools = [torch.tensor(choice.pool, dtype=torch.long) for choice in choices]
    numbers_BK = torch.nn.utils.rnn.pad_sequence(pools, batch_first=True, padding_value=-1)
    tables = {choice.features: choice.features.demonstrations_ND for choice in choices}
    if len(tables) == 1:
        (table_ND,) = tables.values()
        pool_BKD = table_ND[numbers_BK.clamp(min=0)]
    else:
        pairs = zip(choices, numbers_BK.clamp(min=0), strict=True)
        pool_BKD = torch.stack([tables[choice.features][row_K] for choice, row_K in pairs])
    query_BD = torch.stack([choice.query_D for choice in choices])
    return ChoiceBatch(query_BD, pool_BKD, numbers_BK)
