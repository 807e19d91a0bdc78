"""Compares several runs with one control by Holm's correction, and counts the results.

A comparison is tested at 0.05 / (m - k + 1) where its p-value is the k-th smallest of m and all
smaller ones are rejected, else at the level of the first that is not. Its interval has that level,
so it excludes 0 exactly where the verdict is better or worse; the intervals of a family do not
cover all differences at once. `tally` counts verdicts that are corrected already and tests nothing.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from assay.judge.verdict import ALPHA, Comparison, Correction, adjusted

Name = TypeVar("Name")
"""Of a comparison in its family."""


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Adjusted p-values, in the order given (Holm 1979, Scandinavian Journal of Statistics 6:65).

    The k-th smallest of m is multiplied by m - k + 1, and none is smaller than the one before it.
    """
    count = len(p_values)
    order = np.argsort(p_values, kind="stable")
    scaled = np.asarray(p_values)[order] * np.arange(count, 0, -1)
    result = np.empty(count)
    result[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return tuple(float(p) for p in result)


def corrections(p_values: Sequence[float]) -> tuple[Correction, ...]:
    """Holm's adjusted p-values with the step at which each was tested, in the order given."""
    adjusted_p, count = holm(p_values), len(p_values)
    rejected = sum(p < ALPHA for p in adjusted_p)
    ranks = np.argsort(np.argsort(p_values, kind="stable"))
    steps = [count - min(int(rank), rejected) for rank in ranks]
    # All may be rejected: then none is tested later than the last.
    return tuple(Correction(p, max(step, 1)) for p, step in zip(adjusted_p, steps, strict=True))


def adjust_family(comparisons: Mapping[Name, Comparison]) -> dict[Name, Comparison]:
    """The comparisons of one family with Holm's correction and the verdicts that follow from it.

    The worst cases of missing scores are corrected by themselves, as a family of their own.
    Comparisons already found not comparable stay so and are no part of the family.
    """
    fair = {n: c for n, c in comparisons.items() if c.verdict != "not comparable"}
    scored = corrections([c.p_value for c in fair.values()])
    worst = corrections([_worst_p(c) for c in fair.values()])
    judged = {
        name: adjusted(c, first, second, len(fair))
        for (name, c), first, second in zip(fair.items(), scored, worst, strict=True)
    }
    return {name: judged.get(name, c) for name, c in comparisons.items()}


def _worst_p(c: Comparison) -> float:
    """The p-value of the worst case; 1 where the difference has changed its sign, so that the
    opposite of what is claimed lends no strength to the others."""
    if c.worst_case is None:
        return c.p_value
    same_sign = c.worst_case.difference * c.difference > 0
    return c.worst_case.p_value if same_sign else 1.0


@dataclass(frozen=True, slots=True)
class Tally:
    """Cells of a table by sign and by verdict."""

    run: int
    """Cells that have a score."""
    missing: int
    compared: int
    """Cells with a fair comparison to their baseline."""
    improved: int
    declined: int
    better: int
    worse: int
    equivalent: int
    undecided: int
    same_weights: int
    """Cells whose control is the same weights, which count under no verdict."""
    not_comparable: int
    largest_gain: str | None
    """Name of the cell with the largest difference above 0."""
    largest_loss: str | None
    groups: int
    """Compared cells that share no item with one another: how many independent results at most."""

    @property
    def unchanged(self) -> int:
        """Compared cells with a difference of exactly 0."""
        return self.compared - self.improved - self.declined


def tally(
    comparisons: Mapping[str, Comparison],
    run: int,
    missing: int,
    items: Mapping[str, frozenset[str]],
    same: Collection[str] = (),
) -> Tally:
    """Counts over the comparisons by cell name; `items` are the items of each of these cells,
    `same` those that are the weights of their control."""
    fair = {n: c for n, c in comparisons.items() if c.verdict != "not comparable"}
    differences = {name: c.difference for name, c in fair.items()}
    verdicts = [c.verdict for name, c in comparisons.items() if name not in same]
    top = max(differences, key=lambda n: differences[n], default=None)
    low = min(differences, key=lambda n: differences[n], default=None)
    return Tally(
        run=run,
        missing=missing,
        compared=len(fair),
        improved=sum(d > 0 for d in differences.values()),
        declined=sum(d < 0 for d in differences.values()),
        better=verdicts.count("better"),
        worse=verdicts.count("worse"),
        equivalent=verdicts.count("equivalent"),
        undecided=verdicts.count("undecided"),
        same_weights=len(comparisons) - len(verdicts),
        not_comparable=verdicts.count("not comparable"),
        largest_gain=top if top is not None and differences[top] > 0 else None,
        largest_loss=low if low is not None and differences[low] < 0 else None,
        groups=separate_groups([items[name] for name in fair]),
    )


def separate_groups(sets: Iterable[frozenset[str]]) -> int:
    """Number of groups of sets such that sets of different groups share no element."""
    groups: list[frozenset[str]] = []
    for each in set(sets):
        touching = [group for group in groups if group & each]
        groups = [group for group in groups if not group & each]
        groups.append(frozenset(each.union(*touching)))
    return len(groups)
