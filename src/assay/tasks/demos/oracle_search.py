"""Finds the selection of a pool that helps the most, by asking the frozen model with every one of
many: an upper bound, which has seen the right answers.

The first shot is searched among all candidates. A further one extends the best selections so far,
`breadth` of them, by every candidate that they lack, put next to the query; None extends all, which
is every ordered selection. So with a breadth the best of two or more shots is a lower bound of the
oracle. Trains nothing, and is no policy.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from assay.data.episode import Completion
from assay.data.row import Row
from assay.tasks.demos.demonstrations import POOL, SHOTS
from assay.tasks.demos.frozen import FROZEN, Selection, ask
from assay.tasks.demos.outcomes import SelectionOutcome
from assay.tasks.demos.selections import selection_text
from assay.tasks.helper_model import find_helper

Ask = Callable[[Sequence[Selection]], list[SelectionOutcome]]
"""What the frozen model does with selections, in order."""
Picks = tuple[int, ...]
BEST_SCORE = 1.0
BREADTH = 3
"""Selections that are extended unless more are asked for."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A selection that was asked, with what came of it."""

    picks: Picks
    outcome: SelectionOutcome

    @property
    def rank(self) -> tuple[float, float, float]:
        """What makes one better than another: accuracy, then the probability of the right answers,
        then how near the answer came to one."""
        known = self.outcome.gold_probability
        probability = -1.0 if known is None else known
        return self.outcome.accuracy.score, probability, self.outcome.relevance


def best_of(tried: Sequence[Tried]) -> Tried:
    """The best; of equal ones the first that was asked."""
    return max(tried, key=lambda each: each.rank)


def remembering(ask: Ask) -> Ask:
    """`ask` that asks nothing twice."""
    known: dict[tuple[str, Picks], SelectionOutcome] = {}

    def asked(selections: Sequence[Selection]) -> list[SelectionOutcome]:
        fresh = {(row.id, picks): (row, picks) for row, picks in selections}
        fresh = {key: each for key, each in fresh.items() if key not in known}
        known.update(zip(fresh, ask([*fresh.values()]) if fresh else [], strict=True))
        return [known[row.id, picks] for row, picks in selections]

    return asked


def tried(ask: Ask, rows: Sequence[Row], picks: Sequence[Sequence[Picks]]) -> list[list[Tried]]:
    """The outcomes of several selections of each row, all asked together."""
    asked = [(row, each) for row, several in zip(rows, picks, strict=True) for each in several]
    outcomes = iter(ask(asked))
    return [[Tried(each, next(outcomes)) for each in several] for several in picks]


def search_levels(
    ask: Ask, rows: Sequence[Row], shots: int, breadth: int | None
) -> list[list[list[Tried]]]:
    """For 0 to `shots` demonstrations, the selections of each row that were asked.

    The first shot is searched whole; with the last a row is left as soon as it has the full score,
    which changes no best score.
    """
    levels = [tried(ask, rows, [[()]] * len(rows))]
    for shot in range(1, shots + 1):
        begins = [_begins(each, breadth) for each in levels[-1]]
        last = shot == shots and shot > 1
        levels.append(_extended(ask, rows, begins, until=BEST_SCORE if last else None))
    return levels


def _begins(found: Sequence[Tried], breadth: int | None) -> list[Picks]:
    """The selections to extend, the best first."""
    ranked = sorted(found, key=lambda each: each.rank, reverse=True)
    return [each.picks for each in ranked[:breadth]]


def _extended(
    ask: Ask, rows: Sequence[Row], begins: Sequence[Sequence[Picks]], until: float | None
) -> list[list[Tried]]:
    """Every extension of the selections of each row; with `until`, one selection after the other is
    extended, and a row is done once one scores that."""
    found: list[list[Tried]] = [[] for _ in rows]
    rounds = max(map(len, begins))
    for start in range(0, rounds, rounds if until is None else 1):
        places = [n for n, each in enumerate(found) if not _reached(each, until)]
        taken = [
            begins[n][start:] if until is None else begins[n][start : start + 1] for n in places
        ]
        longer = [
            [
                (more, *picks)
                for picks in several
                for more in rows[n].extra[POOL]
                if more not in picks
            ]
            for n, several in zip(places, taken, strict=True)
        ]
        for n, more in zip(places, tried(ask, [rows[n] for n in places], longer), strict=True):
            found[n] += more
    return found


def _reached(found: Sequence[Tried], until: float | None) -> bool:
    return until is not None and any(each.outcome.accuracy.score >= until for each in found)


def oracle_answers(helpers: Mapping[str, Any], rows: Sequence[Row]) -> list[tuple[Completion, int]]:
    """The best selection of each row's pool, and the size of the pool. Raises HelperFailed."""
    asked = remembering(partial(ask, find_helper(helpers, FROZEN, "model")))
    best: dict[str, Picks] = {}
    for shots in sorted({row.extra[SHOTS] for row in rows}):
        same = [row for row in rows if row.extra[SHOTS] == shots]
        found = search_levels(asked, same, shots, BREADTH)[shots]
        best |= {row.id: best_of(each).picks for row, each in zip(same, found, strict=True)}
    return [
        (Completion(selection_text(best[row.id]), best[row.id], "stop"), len(row.extra[POOL]))
        for row in rows
    ]
