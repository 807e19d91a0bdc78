"""Trends of a metric over steps, and forecasts from them: slopes and totals with intervals.

A straight line among steps of which neighbours may resemble each other; how much they do is known
as badly as the steps are few, and `resemblance` counts that. Every forecast names the assumption
that it rests on. Which metric matters is decided elsewhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from assay.judge.intervals import LEVEL, Interval
from assay.judge.resemblance import Resembling, resembling
from assay.judge.scores import Array

METHOD = "line among steps that may resemble each other"
FEWEST = 3
"""A line through fewer points than this has no error that could be estimated."""

Assumption = Literal["line", "same cost"]
"""`line`: the straight line of the steps seen goes on, with the same scatter and the same
resemblance of neighbours. `same cost`: the remaining steps cost what the steps seen cost, on
average, with the same spread and the same resemblance."""


@dataclass(frozen=True, slots=True)
class Trend:
    """A straight line through the values of some steps."""

    slope: float
    """Change of the value in one step."""
    interval: Interval
    """Of the slope."""
    first: int
    """The first and the last step of the line."""
    last: int
    start: float
    """The line at `first` and at `last`."""
    end: float
    steps: int
    """Steps that have a finite value."""

    @property
    def rises(self) -> bool:
        """Whether the interval of the slope lies above 0."""
        return self.interval.low > 0

    @property
    def falls(self) -> bool:
        """Whether the interval of the slope lies below 0."""
        return self.interval.high < 0


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a value or a total will be, if the assumption holds."""

    at: int
    """The step that it is about."""
    value: float
    interval: Interval
    """95 % of the outcomes, if the assumption holds."""
    assumption: Assumption
    steps: int
    """Steps that it was made from."""


def trend(
    steps: Sequence[int], values: Sequence[float | None], level: float = LEVEL
) -> Trend | None:
    """The straight line through the finite values; None for fewer than three of them.

    Slope and interval are those of `resemblance`: where neighbouring steps resemble each other, a
    row of them says less than as many independent ones.
    """
    steps_N, values_N = _finite(steps, values)
    found = _line(steps_N, values_N)
    if found is None:
        return None
    first, last = int(steps_N[0]), int(steps_N[-1])
    slope = found.mixture(np.array([0.0, 1.0]))
    start, end = (found.mixture(np.array([1.0, step - steps_N.mean()])) for step in (first, last))
    interval = Interval(*slope.limits(level), METHOD, level)
    return Trend(slope.mean, interval, first, last, start.mean, end.mean, steps=len(steps_N))


def forecast_value(
    steps: Sequence[int], values: Sequence[float | None], at: int, level: float = LEVEL
) -> Forecast | None:
    """The value of a later step if the line goes on; None for fewer than three finite values.

    The interval is that of one new value: it holds the line's error and the scatter around it.
    """
    steps_N, values_N = _finite(steps, values)
    found = _line(steps_N, values_N)
    if found is None:
        return None
    gap = float(np.median(np.diff(steps_N)))
    new = found.next_value(np.array([1.0, at - steps_N.mean()]), (at - steps_N[-1]) / gap)
    interval = Interval(*new.limits(level), "prediction of a line", level)
    return Forecast(at, new.mean, interval, "line", len(steps_N))


def forecast_total(
    costs: Sequence[float], remaining: int, at: int, before: float = 0.0, level: float = LEVEL
) -> Forecast | None:
    """The sum of all costs after `remaining` more steps; None for fewer than two costs.

    `before` was spent before the first of them, and counts in the sum alone. The interval holds the
    error of the mean cost and the spread of the steps to come; where neighbours resemble each
    other, the next steps cost more like the last. What is spent is spent: neither value nor
    interval reaches below the sum so far.
    """
    spent, count = before + float(np.sum(costs)), len(costs)
    if count < 2:
        return None
    found = resembling(np.ones((count, 1)), np.asarray(costs, np.float64), np.ones(count - 1))
    rest = found.next_sum(np.ones(1), remaining)
    low, high = (max(spent + end, spent) for end in rest.limits(level))
    interval = Interval(low, high, "prediction of a sum", level)
    return Forecast(at, max(spent + rest.mean, spent), interval, "same cost", count)


def _finite(steps: Sequence[int], values: Sequence[float | None]) -> tuple[Array, Array]:
    """Steps and values where the value is a finite number."""
    steps_N = np.asarray(steps, np.float64)
    values_N = np.asarray([np.nan if value is None else value for value in values], np.float64)
    there = np.isfinite(values_N)
    return steps_N[there], values_N[there]


def _line(steps_N: Array, values_N: Array) -> Resembling | None:
    """A constant at the mean step and a slope; None where there is no line."""
    if len(steps_N) < FEWEST or steps_N.min() == steps_N.max():
        return None
    design_N2 = np.stack((np.ones(len(steps_N)), steps_N - steps_N.mean()), 1)
    gaps = np.diff(steps_N)
    return resembling(design_N2, values_N, gaps / np.median(gaps))
