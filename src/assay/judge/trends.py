"""Trends of a metric over steps, and forecasts from them: slopes and totals with intervals.

A straight line by least squares; neighbouring steps that resemble each other count for less. Every
forecast names the assumption that it rests on. Which metric matters is decided elsewhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special

from assay.judge.intervals import LEVEL, Interval
from assay.judge.scores import Array

FEWEST = 3
"""A line through fewer points than this has no error that could be estimated."""

Assumption = Literal["line", "same cost"]
"""`line`: the straight line of the steps seen goes on, with the same scatter. `same cost`: the
remaining steps cost what the steps seen cost, on average, with the same spread."""


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


@dataclass(frozen=True, slots=True)
class _Line:
    """A fitted line with what its errors are made of."""

    slope: float
    middle_step: float
    middle_value: float
    spread: float
    """Sum of the squared distances of the steps from their mean."""
    error: float
    """Standard deviation of one value around the line."""
    independent: float
    """Steps as if they were independent of each other."""
    freedom: float

    def __call__(self, step: float) -> float:
        return self.middle_value + self.slope * (step - self.middle_step)

    def reach(self, level: float) -> float:
        """Student's t at this level."""
        return float(-special.stdtrit(self.freedom, 0.5 - level / 2))


def trend(
    steps: Sequence[int], values: Sequence[float | None], level: float = LEVEL
) -> Trend | None:
    """The straight line through the finite values; None for fewer than three of them.

    The interval of the slope is Student's, with the residuals' autocorrelation at lag one, where
    it is positive, taken off the number of independent steps (Santer et al. 2000, Journal of
    Geophysical Research 105:7337).
    """
    steps_N, values_N = _finite(steps, values)
    line = _fit(steps_N, values_N)
    if line is None:
        return None
    half = line.reach(level) * line.error / line.spread**0.5
    interval = Interval(line.slope - half, line.slope + half, "least squares, Student's t", level)
    first, last = int(steps_N[0]), int(steps_N[-1])
    ends = line(first), line(last)
    return Trend(line.slope, interval, first, last, *ends, steps=len(steps_N))


def forecast_value(
    steps: Sequence[int], values: Sequence[float | None], at: int, level: float = LEVEL
) -> Forecast | None:
    """The value of a later step if the line goes on; None for fewer than three finite values.

    The interval is that of one new value: it holds the line's error and the scatter around it.
    """
    steps_N, values_N = _finite(steps, values)
    line = _fit(steps_N, values_N)
    if line is None:
        return None
    away = (at - line.middle_step) ** 2 / line.spread
    half = line.reach(level) * line.error * np.sqrt(1 + 1 / line.independent + away)
    value = line(at)
    interval = Interval(value - float(half), value + float(half), "prediction of a line", level)
    return Forecast(at, value, interval, "line", len(steps_N))


def forecast_total(
    costs: Sequence[float], remaining: int, at: int, before: float = 0.0, level: float = LEVEL
) -> Forecast | None:
    """The sum of all costs after `remaining` more steps; None for fewer than two costs.

    `before` was spent before the first of them, and counts in the sum alone. The interval holds the
    error of the mean cost and the spread of the steps to come. What is spent is spent, so it does
    not reach below the sum so far.
    """
    spent, count = before + float(np.sum(costs)), len(costs)
    if count < 2:
        return None
    total = spent + remaining * float(np.mean(costs))
    deviation = float(np.std(costs, ddof=1)) * np.sqrt(remaining + remaining**2 / count)
    half = float(-special.stdtrit(count - 1, 0.5 - level / 2) * deviation)
    interval = Interval(max(total - half, spent), total + half, "prediction of a sum", level)
    return Forecast(at, total, interval, "same cost", count)


def _finite(steps: Sequence[int], values: Sequence[float | None]) -> tuple[Array, Array]:
    """Steps and values where the value is a finite number."""
    steps_N = np.asarray(steps, np.float64)
    values_N = np.asarray([np.nan if value is None else value for value in values], np.float64)
    there = np.isfinite(values_N)
    return steps_N[there], values_N[there]


def _fit(steps_N: Array, values_N: Array) -> _Line | None:
    count = len(steps_N)
    if count < FEWEST:
        return None
    away_N = steps_N - steps_N.mean()
    spread = float(away_N @ away_N)
    if spread == 0:
        return None
    slope = float(away_N @ values_N) / spread
    residuals_N = values_N - values_N.mean() - slope * away_N
    squares = float(residuals_N @ residuals_N)
    # Residuals of rounding are no scatter.
    if squares <= 1e-24 * max(1.0, float(values_N @ values_N)):
        residuals_N, squares = np.zeros(count), 0.0
    resemblance = float(residuals_N[1:] @ residuals_N[:-1]) / squares if squares else 0.0
    resemblance = max(resemblance, 0.0)
    independent = count * (1 - resemblance) / (1 + resemblance)
    freedom = max(independent - 2, 1.0)
    error = (squares / freedom) ** 0.5
    middle = float(steps_N.mean()), float(values_N.mean())
    return _Line(slope, *middle, spread, error, independent, freedom)
