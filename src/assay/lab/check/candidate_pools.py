"""Checks the pools that queries pick demonstrations from: each query its own, and itself not in it.

A run whose queries all pick from one small pool compares nothing: in a published one the pool was
the first rows of the training set, and selectors of different weights could not differ. Rows
without pools are no concern of this check.
"""

from collections.abc import Iterator, Sequence

from assay.data.row import Row
from assay.judge.findings import Finding
from assay.lab.check.subject import Number, Seen, Subject, share_of, some
from assay.tasks.demos.demonstrations import DEMONSTRATIONS, POOL, Query, set_of
from assay.tasks.demos.pools import excluded_of, right_answers

FEWEST = 4
"""Queries from which on it is no chance that all have one pool."""
COUNTED = 200
"""Queries of which it is counted whether their pools hold a right answer."""
LEAST_ANSWERED = 0.2
"""A smaller share of pools with a right answer is worth a warning."""


def candidate_pools(subject: Subject) -> Seen:
    """The pools of every data set and evaluation that has some."""
    session = subject.session
    places = {f"data.{name}": made.rows for name, made in session.sets.items()}
    places |= {f"evaluate.{name}": made.items for name, made in session.evaluations.items()}
    for place, rows in places.items():
        # A learner of somebody's own may have pools of another kind.
        if found := [row for row in rows if POOL in row.extra and DEMONSTRATIONS in row.extra]:
            yield from pools_at(place, found)


def pools_at(place: str, rows: Sequence[Row]) -> Seen:
    """The pools of some rows."""
    sizes = [len(row.extra[POOL]) for row in rows]
    different = {frozenset(row.extra[POOL]) for row in rows}
    yield Number(place, "pool_demonstrations", min(sizes))
    yield Number(place, "different_pools", len(different))
    outside = [row.id for row in rows if not _within(row)]
    if outside:
        yield Finding(
            "error",
            f"{place}: a pool names a demonstration that there is not",
            f"{share_of(len(outside), len(rows))}: {some(outside)}",
            "number demonstrations by their places in the whole set, from 0",
        )
        return
    if len(different) == 1 and len(rows) >= FEWEST and _is_part(rows[0]):
        numbers = sorted(rows[0].extra[POOL])
        yield Finding(
            "error",
            f"{place}: all queries pick from the same pool",
            f"{len(rows)} queries, demonstrations {some([str(n) for n in numbers])}",
            "give each query a pool of its own: sampler, pool and pool_seed of the options",
        )
    yield from _own_question(place, rows)
    yield from _answered(place, rows)


def _within(row: Row) -> bool:
    count = len(set_of(row).demonstrations)
    return all(type(number) is int and 0 <= number < count for number in row.extra[POOL])


def _is_part(row: Row) -> bool:
    """Whether there are demonstrations beside the pool, apart from the query itself."""
    return len(row.extra[POOL]) < len(set_of(row).demonstrations) - 1


def _own_question(place: str, rows: Sequence[Row]) -> Iterator[Finding]:
    """Queries that may pick themselves, whose answer the frozen model would then copy."""
    by_set: dict[str, list[Row]] = {}
    for row in rows:
        by_set.setdefault(set_of(row).fingerprint, []).append(row)
    own = []
    for same in by_set.values():
        queries = [Query(row.id, row.prompt[-1], ()) for row in same]
        excluded = excluded_of(set_of(same[0]), queries)
        pairs = zip(same, excluded, strict=True)
        own += [row.id for row, numbers in pairs if numbers & set(row.extra[POOL])]
    if own:
        yield Finding(
            "error",
            f"{place}: a query is in its own pool",
            f"{share_of(len(own), len(rows))}: {some(own)}",
            "leave the query, and what asks the same, out of its pool",
        )


def _answered(place: str, rows: Sequence[Row]) -> Seen:
    """How many pools have a demonstration with a right answer."""
    counted = rows[:COUNTED]
    answered = sum(bool(right_answers(row)) for row in counted)
    yield Number(place, "pools_with_a_right_answer", answered / len(counted))
    if answered < LEAST_ANSWERED * len(counted):
        yield Finding(
            "warning",
            f"{place}: few pools hold a demonstration with a right answer",
            share_of(answered, len(counted)),
            "take larger pools, or measure with 'assay ceiling' what there is to win",
        )
