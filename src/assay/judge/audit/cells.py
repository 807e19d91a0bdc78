"""The scores of a reported run by cell, and what its printed numbers stand for.

A cell is a benchmark or subset that was scored. A printed number is rounded or cut off: 2/3 may be
printed as 66.67, 66.7, 66.66 or 66.6; numbers of one place are compared as all rounded or as all
cut off.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import ceil
from types import MappingProxyType

import numpy as np
from scipy import special

from assay.data.reported.reported_record import Reported, ReportedRun
from assay.errors import Finding, Severity, finding
from assay.judge.intervals import Interval
from assay.judge.power import detectable_from_interval, planned
from assay.judge.significance import agreeing
from assay.judge.verdict import Comparison, Figures


@dataclass(frozen=True, slots=True)
class PrintedCell:
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


def cells(report: Reported, run: ReportedRun) -> dict[str, PrintedCell]:
    """The scored cells of a run by name."""
    scoring = report.scoring
    printed: dict[str, tuple[Decimal, ...]] = {}
    for name, counts in run.right.items():
        items = items_of(report, run, name)
        if items and counts and max(counts) <= items:  # a count above its items gives no score
            printed[name] = tuple(Decimal(scoring.highest * count) / items for count in counts)
    printed |= {name: values for name, values in run.scores.items() if values}
    return {
        name: PrintedCell(
            name,
            values,
            items_of(report, run, name),
            scoring.highest,
            scoring.step,
            scoring.repeats,
        )
        for name, values in printed.items()
    }


def items_of(report: Reported, run: ReportedRun, cell: str) -> int | None:
    """Items of one cell: the run's own number before the report's."""
    for items in (run.items, report.scoring.items):
        count = items.get(cell) if isinstance(items, dict) else items
        if count:
            return count
    return None


def unit_of(cell: PrintedCell) -> Fraction | None:
    """The smallest step of a printed score: one step of one item once; None without items."""
    if cell.items is None:
        return None
    return Fraction(cell.step) * cell.scale / (cell.items * cell.repeats)


def compare_means(comparisons: Sequence[Comparison]) -> Comparison | None:
    """The mean over independent cells, each of the same weight; None for fewer than two.

    The pooled score test of the mean difference, and Newcombe's limits of the cells, their reaches
    squared and added (Zou and Donner 2008, Statistics in Medicine 27:1693).
    """
    if len(comparisons) < 2:
        return None
    before, after = (
        float(np.mean([getattr(c, name) for c in comparisons]))
        for name in ("control_score", "score")
    )
    difference = after - before

    def interval_at(level: float) -> Interval:
        cells = [(c.difference, c.interval_at(level)) for c in comparisons]
        low = float(np.sqrt(sum((d - i.low) ** 2 for d, i in cells))) / len(cells)
        high = float(np.sqrt(sum((i.high - d) ** 2 for d, i in cells))) / len(cells)
        method = "Newcombe, reaches squared and added"
        return Interval(difference - low, difference + high, method, level)

    middles = [(c.control_score + c.score) / 2 for c in comparisons]
    nulls = sum(m * (1 - m) * 2 / c.items for m, c in zip(middles, comparisons, strict=True))
    error = float(np.sqrt(nulls)) / len(comparisons)
    p_value = 1.0 if error == 0 else float(2 * special.ndtr(-abs(difference) / error))
    agreed = agreeing(interval_at, p_value)

    def plan_at(alpha: float) -> tuple[float | None, None]:
        return detectable_from_interval(agreed(1 - alpha).half_width, 1.0, 1 - alpha), None

    return planned(
        Figures(before, after, difference, p_value, agreed),
        plan_at,
        method="mean of binomials without items: score test, Newcombe limits",
        items=sum(c.items for c in comparisons),
    )


Rule = Callable[[Reported], Iterable[Finding]]


def at(name: str, cell: str) -> str:
    """What a finding about one cell is about."""
    return f"{name} · {cell}" if cell else name


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


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers from low to high. The ends belong to it, unless they are `open`."""

    low: Fraction
    high: Fraction
    open_low: bool = False
    open_high: bool = False

    def __add__(self, other: "Range") -> "Range":
        return Range(
            self.low + other.low,
            self.high + other.high,
            self.open_low or other.open_low,
            self.open_high or other.open_high,
        )

    def __neg__(self) -> "Range":
        return Range(-self.high, -self.low, self.open_high, self.open_low)

    def times(self, factor: Fraction | int) -> "Range":
        """The range stretched."""
        if factor < 0:
            return (-self).times(-factor)
        return Range(self.low * factor, self.high * factor, self.open_low, self.open_high)

    def over(self, other: "Range") -> "Range":
        """The quotient; the other range lies above 0."""
        ends = [self.low / other.low, self.low / other.high]
        ends += [self.high / other.low, self.high / other.high]
        return Range(min(ends), max(ends))

    def meets(self, other: "Range") -> bool:
        """Whether a number is in both."""
        apart = self.low > other.high or other.low > self.high
        ends = ((self, other), (other, self))
        touch = any(a.low == b.high and (a.open_low or b.open_high) for a, b in ends)
        return not apart and not touch

    def holds_multiple(self, unit: Fraction) -> bool:
        """Whether a whole number of units is in it."""
        first = ceil(self.low / unit) * unit
        if first == self.low and self.open_low:
            first += unit
        return first < self.high or (first == self.high and not self.open_high)


Mode = Callable[[Decimal], Range]


def rounding(value: Decimal) -> Fraction:
    """Half a unit of the last printed digit."""
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int), "readers admit finite numbers only"
    return Fraction(10) ** exponent / 2


def rounded(value: Decimal) -> Range:
    """The numbers that round to the value."""
    return Range(Fraction(value) - rounding(value), Fraction(value) + rounding(value))


def cut_off(value: Decimal) -> Range:
    """The numbers that begin with its digits: further from 0 by less than the last of them."""
    number, digit = Fraction(value), 2 * rounding(value)
    if value.is_signed():
        return Range(number - digit, number, open_low=True)
    return Range(number, number + digit, open_high=True)


MODES: tuple[Mode, ...] = (rounded, cut_off)


def exactly(value: Decimal | Fraction | int) -> Range:
    """The one number."""
    return Range(Fraction(value), Fraction(value))


def prints(value: Decimal, number: Fraction) -> bool:
    """Whether a number may be printed as the value."""
    return any(mode(value).meets(exactly(number)) for mode in MODES)


def on_grid(value: Decimal, unit: Fraction, times: int = 1) -> bool:
    """Whether `times` the printed value may be a whole number of units."""
    return any(mode(value).times(times).holds_multiple(unit) for mode in MODES)
