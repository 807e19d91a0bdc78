"""Makes an interval and a test that were invented apart say the same about a difference of 0.

Mid-p McNemar and Tango's interval, or the pooled score test and Newcombe's, differ by a hair; no
page must show a verdict beside an interval that denies it. No test or interval is made here.
"""

from dataclasses import replace

from scipy import special

from assay.judge.intervals import Interval, quantile
from assay.judge.verdict import IntervalAt

FARTHEST = 8.0
"""No interval is asked for beyond so many standard deviations: 1 - 1e-15."""
HALVINGS = 40


def agreeing(interval_at: IntervalAt, p_value: float) -> IntervalAt:
    """`interval_at`, leaving out 0 exactly where `p_value` is below 1 - level.

    Where the two disagree, the interval is taken at the level whose normal quantile is moved by the
    ratio of the quantiles of the two p-values, so that both meet 0 together; where that cannot be
    (no difference at all), 0 is put in.
    """

    def at(level: float) -> Interval:
        interval, rejected = interval_at(level), p_value < 1 - level
        if rejected == leaves_out_zero(interval):
            return interval
        tested = quantile(1 - p_value)
        moved = quantile(level) * _meets_zero(interval_at) / tested if tested > 0 else FARTHEST
        moved_level = float(2 * special.ndtr(min(moved, FARTHEST)) - 1)
        interval = replace(interval_at(moved_level), level=level)
        if rejected == leaves_out_zero(interval):
            return interval
        return replace(interval, low=min(interval.low, 0.0), high=max(interval.high, 0.0))

    return at


def leaves_out_zero(interval: Interval) -> bool:
    """Whether the interval lies on one side of 0."""
    return interval.low > 0 or interval.high < 0


def p_value_of(interval_at: IntervalAt) -> float:
    """The p-value of the test that the interval is: 1 - the level at which it meets 0."""
    return float(2 * special.ndtr(-_meets_zero(interval_at)))


def _meets_zero(interval_at: IntervalAt) -> float:
    """The normal quantile of the level at which the interval begins to hold 0."""
    low, high = 0.0, FARTHEST
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if leaves_out_zero(interval_at(float(2 * special.ndtr(middle) - 1))):
            low = middle
        else:
            high = middle
    return (low + high) / 2
