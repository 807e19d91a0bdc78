"""Counting a family of comparisons: how many went up, how many were shown to, and the extremes.

Takes comparisons whose verdicts are corrected for the family already; nothing is tested here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from assay.judge.verdict import Comparison


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
) -> Tally:
    """Counts over the comparisons by cell name; `items` are the items of each of these cells."""
    fair = {n: c for n, c in comparisons.items() if c.verdict != "not comparable"}
    differences = {name: c.difference for name, c in fair.items()}
    verdicts = [c.verdict for c in comparisons.values()]
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


def relation(sets: Sequence[frozenset[str]]) -> str:
    """How sets lie to one another: same, nested (each within the next), overlapping, or apart."""
    ordered = sorted(set(sets), key=len)
    if len(ordered) < 2:
        return "same"
    if all(small < large for small, large in pairwise(ordered)):
        return "nested"
    return "apart" if separate_groups(ordered) == len(ordered) else "overlapping"
