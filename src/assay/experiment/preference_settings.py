"""Settings of dpo stages: which pairs of completions are learned from.

Only the accepted values are defined here; `train.pair_choice` chooses the pairs.
"""

from collections.abc import Iterator
from typing import Annotated, Self

from pydantic import Field, Strict, model_validator
from pydantic_core import PydanticCustomError

from assay.experiment.base_table import Count, Few, Positive, Table, raise_all, refused

Range = Annotated[tuple[float, float], Strict(False)]


class Pairs(Table):
    """The pairs that stored groups give. With neither `total` nor `per_group`, every two candidates
    of a group whose scores differ, once."""

    total: Count | None = None
    """Pairs drawn over all groups, with replacement, by the weight (better - worse)^`power` of
    their scores (ScoreFlow draws 2000)."""
    per_group: Few | None = None
    """Pairs drawn so from each group whose scores differ."""
    power: Annotated[float, Field(ge=0, le=100)] | None = None
    """Of the weight: larger prefers wide gaps; omitted: 3, as ScoreFlow."""
    least_gap: Positive | None = None
    """Candidates whose scores differ by less make no pair."""

    @model_validator(mode="after")
    def _draws_once(self) -> Self:
        raise_all(self._conflicts())
        return self

    def _conflicts(self) -> Iterator[PydanticCustomError]:
        if self.total is not None and self.per_group is not None:
            yield refused("total", "both of 'total' and 'per_group' given", "write one of them")
        if self.power is not None and self.total is None and self.per_group is None:
            yield refused("power", "no pair is drawn", "write total or per_group, or remove it")
