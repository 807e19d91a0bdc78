"""The scores of a reported run by cell, a benchmark or subset that was scored."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType

import numpy as np
from scipy import special

from assay.data.reported.reported_record import Reported, Run
from assay.errors import Finding, Severity, finding
from assay.judge.binomial import compare_counts
from assay.judge.intervals import Interval
from assay.judge.power import detectable_from_interval, planned
from assay.judge.significance import agreeing
from assay.judge.verdict import Comparison, Figures


@dataclass(frozen=True, slots=True)
class Cell:
    """The printed values of one run on one benchmark or subset."""

    name: str
    values: tuple[Decimal, ...]
    items: int | None
    scale: int
    """100 where percentages are printed, 1 where shares are."""
    step: Decimal
    """Smallest step of one item's score."""
    repeats: int = 1
    """Passes over the items that each value is the mean of."""

    @property
    def mean(self) -> float:
        """The mean share over the repeats."""
        return float(sum(self.values) / len(self.values) / self.scale)

    @property
    def successes(self) -> float:
        """The number of items that the mean stands for; needs `items`."""
        assert self.items is not None
        return self.mean * self.items


def cells(report: Reported, run: Run) -> dict[str, Cell]:
    """The scored cells of a run by name."""
    scoring = report.scoring
    printed = {name: values for name, values in run.scores.items() if values}
    printed = _from_counts(report, run) | printed
    return {
        name: Cell(
            name,
            values,
            items_of(report, run, name),
            scoring.highest,
            scoring.step,
            scoring.repeats,
        )
        for name, values in printed.items()
    }


def _from_counts(report: Reported, run: Run) -> dict[str, tuple[Decimal, ...]]:
    """Scores worked out from the counts of cells; a count above its items gives none."""
    found = {}
    for name, counts in run.right.items():
        items = items_of(report, run, name)
        if items and counts and max(counts) <= items:
            scale = report.scoring.highest
            found[name] = tuple(Decimal(scale * count) / items for count in counts)
    return found


def items_of(report: Reported, run: Run, cell: str) -> int | None:
    """Items of one cell: the run's own number before the report's."""
    for items in (run.items, report.scoring.items):
        found = items.get(cell) if isinstance(items, dict) else items
        if found:
            return found
    return None


def unit_of(cell: Cell) -> Fraction | None:
    """The smallest step of a printed score: one step of one item once; None without items."""
    if cell.items is None:
        return None
    return Fraction(cell.step) * cell.scale / (cell.items * cell.repeats)


def compare_cells(control: Cell, other: Cell) -> Comparison | None:
    """Two cells as two binomials without items; None where the number of items is not known."""
    if control.items is None or other.items is None:
        return None
    return compare_counts(control.successes, control.items, other.successes, other.items)


def compare_means(found: Sequence[Comparison]) -> Comparison | None:
    """The mean over independent cells, each of the same weight; None for fewer than two.

    The pooled score test of the mean difference, and Newcombe's limits of the cells, their reaches
    squared and added (Zou and Donner 2008, Statistics in Medicine 27:1693).
    """
    if len(found) < 2:
        return None
    before, after = (
        float(np.mean([getattr(c, name) for c in found])) for name in ("control_score", "score")
    )
    difference = after - before

    def interval_at(level: float) -> Interval:
        cells = [(c.difference, c.interval_at(level)) for c in found]
        low = float(np.sqrt(sum((d - i.low) ** 2 for d, i in cells))) / len(cells)
        high = float(np.sqrt(sum((i.high - d) ** 2 for d, i in cells))) / len(cells)
        method = "Newcombe, reaches squared and added"
        return Interval(difference - low, difference + high, method, level)

    error = float(np.sqrt(sum(_null_variance(c) for c in found))) / len(found)
    p_value = 1.0 if error == 0 else float(2 * special.ndtr(-abs(difference) / error))
    agreed = agreeing(interval_at, p_value)

    def plan_at(alpha: float) -> tuple[float | None, None]:
        return detectable_from_interval(agreed(1 - alpha).half_width, 1.0, 1 - alpha), None

    return planned(
        Figures(before, after, difference, p_value, agreed),
        plan_at,
        "mean of binomials without items: score test, Newcombe limits",
        items=sum(c.items for c in found),
    )


def _null_variance(found: Comparison) -> float:
    """The variance of one cell's difference where both runs have the same chance."""
    middle = (found.control_score + found.score) / 2
    return middle * (1 - middle) * 2 / found.items


Rule = Callable[[Reported], Iterable[Finding]]


def flaw(
    code: str,
    severity: Severity,
    about: str,
    numbers: Mapping[str, float | int | str] = MappingProxyType({}),
    line: int | None = None,
) -> Finding:
    """A finding about a run, comparison or metric as the report names it, on a line of the report.

    An error cannot be true as printed; a warning is a conclusion that its numbers do not support; a
    note is a figure that a reader needs in addition. Differences, rates and limits are in percent.
    """
    return finding(code, severity, **numbers, about=about, line=line)
