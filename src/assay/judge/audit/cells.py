"""The scores of a reported run by cell, and what its printed numbers stand for.

A cell is a benchmark or subset that was scored. A printed number is rounded or cut off: 2/3 may be
printed as 66.67, 66.7, 66.66 or 66.6; numbers of one place are compared as all rounded or as all
cut off.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import ceil, hypot
from typing import Any

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
    unit: Fraction | None
    """The smallest step of a printed score: one step of one item once; None without items."""

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
    scoring, printed = report.scoring, dict[str, PrintedCell]()
    for name in dict.fromkeys((*run.right, *run.scores)):
        items, counts = items_of(report, run, name), run.right.get(name)
        values = run.scores.get(name, ())
        # A count above its items gives no score.
        if not values and items and counts and max(counts) <= items:
            values = tuple(Decimal(scoring.highest * count) / items for count in counts)
        if values:
            step = Fraction(scoring.step) * scoring.highest
            unit = None if items is None else step / items
            printed[name] = PrintedCell(name, values, items, scoring.highest, unit)
    return printed


def items_of(report: Reported, run: ReportedRun, cell: str) -> int | None:
    """Items of one cell: the run's own number before the report's."""
    for items in (run.items, report.scoring.items):
        if count := items.get(cell) if isinstance(items, dict) else items:
            return count
    return None


def compare_means(comparisons: Sequence[Comparison]) -> Comparison | None:
    """The mean over independent cells, each of the same weight; None for fewer than two.

    The pooled score test of the mean difference, and Newcombe's limits of the cells, their reaches
    squared and added (Zou and Donner 2008, Statistics in Medicine 27:1693).
    """
    if len(comparisons) < 2:
        return None
    scores = np.array([(c.control_score, c.score) for c in comparisons])
    before, after = map(float, scores.mean(axis=0))
    difference = after - before

    def interval_at(level: float) -> Interval:
        cells = [(c.difference, c.interval_at(level)) for c in comparisons]
        low = hypot(*(d - i.low for d, i in cells)) / len(cells)
        high = hypot(*(i.high - d for d, i in cells)) / len(cells)
        method = "Newcombe, reaches squared and added"
        return Interval(difference - low, difference + high, method, level)

    middles = scores.mean(axis=1)
    nulls = middles * (1 - middles) * 2 / np.array([c.items for c in comparisons])
    error = float(np.sqrt(nulls.sum())) / len(comparisons)
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


def at(name: str, cell: str) -> str:
    """What a finding about one cell is about."""
    return f"{name} · {cell}" if cell else name


def flaw(
    code: str, severity: Severity, about: str, line: int | None = None, /, **numbers: Any
) -> Finding:
    """A finding about a run, comparison or metric as the report names it, on a line of the report.

    An error cannot be true as printed; a warning is a conclusion that its numbers do not support; a
    note is a figure that a reader needs in addition. Differences, rates and limits are in percent.
    """
    return finding(code, severity, **numbers, about=about, line=line)


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers from low to high, both ends among them."""

    low: Fraction
    high: Fraction

    def __add__(self, other: "Range") -> "Range":
        return Range(self.low + other.low, self.high + other.high)

    def times(self, factor: Fraction | int) -> "Range":
        """The range stretched."""
        ends = (self.low * factor, self.high * factor)
        return Range(min(ends), max(ends))

    def over(self, other: "Range") -> "Range":
        """The quotient; the other range lies above 0."""
        one, two = self.times(1 / other.low), self.times(1 / other.high)
        return Range(min(one.low, two.low), max(one.high, two.high))

    def meets(self, other: "Range") -> bool:
        """Whether a number is in both."""
        return self.low <= other.high and other.low <= self.high

    def holds_multiple(self, unit: Fraction) -> bool:
        """Whether a whole number of units is in it."""
        return ceil(self.low / unit) * unit <= self.high


Mode = Callable[[Decimal], Range]


def rounding(value: Decimal) -> Fraction:
    """Half a unit of the last printed digit."""
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int), "readers admit finite numbers only"
    return Fraction(10) ** exponent / 2


def rounded(value: Decimal) -> Range:
    """The numbers that round to the value."""
    return Range(Fraction(value) - rounding(value), Fraction(value) + rounding(value))


BELOW = 1 - Fraction(1, 10**9)
"""How far cut-off digits reach to the next number, which prints other digits; shares of fewer items
than a billion lie no nearer to it."""


def cut_off(value: Decimal) -> Range:
    """The numbers that begin with its digits: further from 0 by less than the last of them."""
    number, reach = Fraction(value), 2 * rounding(value) * BELOW
    return Range(number - reach, number) if value.is_signed() else Range(number, number + reach)


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
