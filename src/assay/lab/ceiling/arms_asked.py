"""Asks the frozen model what the arms of a ceiling need: no demonstration, drawn ones, the most
similar ones, and the best ones by search.

Returns outcomes by item; means, intervals and gaps are `measure`'s.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from assay.data.row import Row
from assay.tasks.demos.demonstrations import POOL
from assay.tasks.demos.frozen import Selection
from assay.tasks.demos.oracle_search import (
    Ask,
    Picks,
    Tried,
    best_of,
    remembering,
    search_levels,
    tried,
)
from assay.tasks.demos.outcomes import SelectionOutcome
from assay.tasks.demos.pools import query_generator
from assay.tasks.demos.similarity import pools_by_similarity

TOGETHER = 16
"""Items that are asked together, and shown as progress."""
ZERO, RANDOM, SIMILAR, ORACLE = "zero-shot", "random", "similarity", "oracle"
ArmKey = tuple[str, int]
"""Kind of an arm, and how many demonstrations it shows."""
Done = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked of every item."""

    shots: int
    """1 to so many demonstrations are shown."""
    draws: int
    """Random selections of an item for each number of shots."""
    breadth: int | None
    """Selections that the search extends, see `oracle_search`."""
    seed: int
    """Of the random selections."""
    similarity: str = "text_similarity"


@dataclass(frozen=True, slots=True)
class AskedArms:
    """The outcomes of all items, in their order."""

    arms: Mapping[ArmKey, Sequence[Sequence[Tried]]]
    """Selections of each item: one, or one for each draw; of the oracle the best."""
    singles: Sequence[Sequence[Tried]]
    """Every single demonstration of each item's pool."""
    asked: int
    """Selections that the frozen model was asked with."""


def ask_arms(ask: Ask, rows: Sequence[Row], plan: Plan, done: Done) -> AskedArms:
    """Ask everything that a plan needs; `done` is told how many items are complete."""
    arms: dict[ArmKey, list[Sequence[Tried]]] = {}
    singles: list[Sequence[Tried]] = []
    ordered = pools_by_similarity(rows, plan.similarity)
    counted = Counting(ask)
    for start in range(0, len(rows), TOGETHER):
        end = start + TOGETHER
        found, single = _chunk(remembering(counted), rows[start:end], ordered[start:end], plan)
        for key, of_items in found.items():
            arms.setdefault(key, []).extend(of_items)
        singles += single
        done(len(singles))
    return AskedArms(arms, singles, counted.asked)


class Counting:
    """`ask` that counts the selections."""

    def __init__(self, ask: Ask):
        self._ask, self.asked = ask, 0

    def __call__(self, selections: Sequence[Selection]) -> list[SelectionOutcome]:
        """See `Ask`."""
        self.asked += len(selections)
        return self._ask(selections)


def _chunk(
    ask: Ask, rows: Sequence[Row], ordered: Sequence[Picks], plan: Plan
) -> tuple[dict[ArmKey, Sequence[Sequence[Tried]]], Sequence[Sequence[Tried]]]:
    """The arms of some items, and their single demonstrations. The oracle has the best of all that
    was asked with so many shots, so that no other arm is above it."""
    levels = search_levels(ask, rows, plan.shots, plan.breadth)
    found: dict[ArmKey, Sequence[Sequence[Tried]]] = {(ZERO, 0): levels[0]}
    orders = [_orders(row, plan) for row in rows]
    for shots in range(1, plan.shots + 1):
        drawn = tried(ask, rows, [[order[:shots] for order in each] for each in orders])
        similar = tried(ask, rows, [[each[:shots]] for each in ordered])
        every = zip(levels[shots], similar, drawn, strict=True)
        found[RANDOM, shots], found[SIMILAR, shots] = drawn, similar
        found[ORACLE, shots] = [[best_of([*a, *b, *c])] for a, b, c in every]
    return found, levels[1]


def _orders(row: Row, plan: Plan) -> list[Picks]:
    """A random order of the pool for each draw; fewer shots are its beginning."""
    pool = row.extra[POOL]
    return [
        tuple(query_generator(plan.seed, f"{row.id}/draw {n}").permutation(pool).tolist())
        for n in range(plan.draws)
    ]
