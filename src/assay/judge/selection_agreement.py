"""How far two checkpoints of a selector pick the same demonstrations, and how many they use.

A selection is an ordered tuple of numbers, one for each item and repeat. Identical selections are
the same prompts for the frozen model: scores on them cannot differ. Reads no files and judges no
score.
"""

import json
import math
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

Picks = tuple[int, ...]
Key = TypeVar("Key", bound=Hashable)
"""What was asked: an item and a repeat."""


@dataclass(frozen=True, slots=True)
class SelectionAgreement:
    """How two checkpoints pick for the queries that both were asked."""

    queries: int
    same_order: int
    """Queries with the same demonstrations in the same order."""
    same_set: int
    """Queries with the same demonstrations in any order."""
    jaccard: float
    """Mean over queries of the shared among all demonstrations of the two; 1 for two empty ones."""

    @property
    def identical(self) -> bool:
        """Whether every prompt of one is that of the other."""
        return self.same_order == self.queries


@dataclass(frozen=True, slots=True)
class SelectionUse:
    """Which demonstrations a checkpoint uses."""

    queries: int
    picks: int
    distinct: int
    """Different demonstrations among the picks."""
    entropy: float
    """Of the use of demonstrations, in bits: 0 where one is always picked."""
    most_used: int
    """How often the most used demonstration is picked."""

    @property
    def effective(self) -> float:
        """Demonstrations that, used equally often, would have this entropy; 0 without picks."""
        return 2.0**self.entropy if self.picks else 0.0


def picks_in(text: str) -> Picks | None:
    """The picks that the text of a selection names; None for a text that is no list of different
    whole numbers."""
    try:
        found: Any = json.loads(text)
    except ValueError:
        return None
    if not isinstance(found, list) or not all(type(pick) is int for pick in found):
        return None
    return tuple(found) if len({*found}) == len(found) else None


def selections_in(outputs: Mapping[Key, str]) -> dict[Key, Picks] | None:
    """The selections of a record; None where an answer is none, or all are empty."""
    found = {}
    for key, text in outputs.items():
        picks = picks_in(text)
        if picks is None:
            return None
        found[key] = picks
    return found if any(found.values()) else None


def agree(control: Mapping[Key, Picks], other: Mapping[Key, Picks]) -> SelectionAgreement | None:
    """How two checkpoints agree on the queries of both; None where they share none."""
    shared = [key for key in control if key in other]
    if not shared:
        return None
    pairs = [(control[key], other[key]) for key in shared]
    return SelectionAgreement(
        queries=len(pairs),
        same_order=sum(one == two for one, two in pairs),
        same_set=sum({*one} == {*two} for one, two in pairs),
        jaccard=math.fsum(_jaccard({*one}, {*two}) for one, two in pairs) / len(pairs),
    )


def _jaccard(one: set[int], two: set[int]) -> float:
    return len(one & two) / len(one | two) if one | two else 1.0


def used(selections: Mapping[Any, Picks]) -> SelectionUse:
    """How many demonstrations a checkpoint uses, and how evenly."""
    counts = Counter(pick for picks in selections.values() for pick in picks)
    total = counts.total()
    shares = [count / total for count in counts.values()]
    return SelectionUse(
        queries=len(selections),
        picks=total,
        distinct=len(counts),
        entropy=-math.fsum(share * math.log2(share) for share in shares) + 0.0,
        most_used=max(counts.values(), default=0),
    )
