"""Finds the selection of a pool that helps the most, by asking the frozen model with every one of
many: an upper bound, which has seen the right answers.

The first shot is searched among all candidates. A further one extends the best selections so far,
`breadth` of them, by every candidate that they lack, put next to the query; None extends all, which
is every ordered selection. So with a breadth the best of two or more shots is a lower bound of the
oracle. Trains nothing, and is no policy.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from assay.data.episode import Completion
from assay.data.row import Row
from assay.labs.demos.demonstrations import FROZEN, POOL, SHOTS, selection_text
from assay.labs.demos.frozen import Selection, ask
from assay.labs.demos.outcomes import SelectionOutcome
from assay.tasks.helper_model import find_helper

Ask = Callable[[Sequence[Selection]], list[SelectionOutcome]]
"""What the frozen model does with selections, in order."""
Picks = tuple[int, ...]
Tried = tuple[Picks, SelectionOutcome]
"""A selection that was asked, with what came of it."""
BEST_SCORE = 1.0
BREADTH = 3
"""Selections that are extended."""


def rank(tried: Tried) -> tuple[float, float]:
    """The order of selections: by accuracy, then by how near the answer came to a right one."""
    return tried[1].accuracy.score, tried[1].relevance


def search(ask: Ask, rows: Sequence[Row], shots: int, breadth: int | None) -> list[list[Tried]]:
    """The selections of so many demonstrations of each row that were asked.

    The first shot is searched whole; with the last a row is left as soon as it has the full score,
    which changes no best score.
    """
    found = _tried(ask, rows, [[()]] * len(rows))
    for shot in range(1, shots + 1):
        ranked = [sorted(each, key=rank, reverse=True)[:breadth] for each in found]
        begins = [[picks for picks, _ in each] for each in ranked]
        found = _extended(ask, rows, begins, one_by_one=shot == shots > 1)
    return found


def _tried(ask: Ask, rows: Sequence[Row], picks: Sequence[Sequence[Picks]]) -> list[list[Tried]]:
    """The outcomes of several selections of each row, all asked together."""
    asked = [(row, each) for row, several in zip(rows, picks, strict=True) for each in several]
    outcomes = iter(ask(asked))
    return [[(each, next(outcomes)) for each in several] for several in picks]


def _extended(
    ask: Ask, rows: Sequence[Row], begins: Sequence[Sequence[Picks]], one_by_one: bool
) -> list[list[Tried]]:
    """Every extension of the selections of each row; `one_by_one` extends one selection after the
    other, and leaves a row that has the full score."""
    found: list[list[Tried]] = [[] for _ in rows]
    most = max(map(len, begins))
    step = 1 if one_by_one else most
    for start in range(0, most, step):
        full = [any(one.accuracy.score >= BEST_SCORE for _, one in each) for each in found]
        places = [n for n in range(len(rows)) if not (one_by_one and full[n])]
        longer = [
            [
                (more, *picks)
                for picks in begins[n][start : start + step]
                for more in rows[n].extra[POOL]
                if more not in picks
            ]
            for n in places
        ]
        for n, more in zip(places, _tried(ask, [rows[n] for n in places], longer), strict=True):
            found[n] += more
    return found


def best_picks(asked: Ask, rows: Sequence[Row], shots: int) -> list[Picks]:
    """The best selection of each row's pool that the search finds, of equal ones the first."""
    return [max(each, key=rank)[0] for each in search(asked, rows, shots, BREADTH)]


def reversed_picks(asked: Ask, rows: Sequence[Row], shots: int) -> list[Picks]:
    """The demonstrations of the best selections in the opposite order."""
    return [picks[::-1] for picks in best_picks(asked, rows, shots)]


def single_picks(asked: Ask, rows: Sequence[Row], shots: int) -> list[Picks]:
    """The demonstrations that help the most alone, the best one next to the query: what a
    selection is worth where they do not act together."""
    ranked = [sorted(each, key=rank, reverse=True) for each in search(asked, rows, 1, None)]
    return [tuple(picks[0] for picks, _ in each[:shots]) for each in ranked]


def searched_answers(
    find: Callable[[Ask, Sequence[Row], int], list[Picks]],
    helpers: Mapping[str, Any],
    rows: Sequence[Row],
) -> list[tuple[Completion, int]]:
    """The selection of each row that `find` finds by asking the frozen model, and the size of the
    pool. Raises HelperFailed."""
    asked = partial(ask, find_helper(helpers, FROZEN, "model"))
    best: dict[str, Picks] = {}
    for shots in sorted({row.extra[SHOTS] for row in rows}):
        same = [row for row in rows if row.extra[SHOTS] == shots]
        best |= zip([row.id for row in same], find(asked, same, shots), strict=True)
    return [
        (Completion(selection_text(best[row.id]), best[row.id], "stop"), len(row.extra[POOL]))
        for row in rows
    ]


ARMS = {
    "oracle": partial(searched_answers, best_picks),
    "reversed": partial(searched_answers, reversed_picks),
    "singles": partial(searched_answers, single_picks),
}
"""By name: the best selection, the same in the opposite order, and the best demonstrations alone.
The last two say whether order and interaction matter."""
