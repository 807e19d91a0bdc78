"""Mid-p McNemar, the paired test of 0/1 items, two-sided.

`agreeing` makes an interval and a test of
different origin agree about a difference of 0: mid-p McNemar and Tango's interval, or the pooled
score test and Newcombe's, differ slightly, and a page must not show a verdict that its interval
contradicts. Verdicts are made in `verdict`.
"""

from dataclasses import replace

import numpy as np
from scipy import special

from assay.judge.intervals import Interval, quantile
from assay.judge.scores import Array
from assay.judge.verdict import IntervalAt


def mid_p_mcnemar(gained: Array | float, lost: Array | float) -> Array:
    """Two-sided mid-p value of McNemar's test; arrays of any one shape.

    Twice the binomial tail of the rarer direction with half the weight of the observed count
    (Fagerland, Lydersen and Laake 2013, BMC Medical Research Methodology 13:91).
    """
    rarer = np.minimum(gained, lost).astype(np.float64)
    changed = np.asarray(gained, np.float64) + lost
    log_mass = special.gammaln(changed + 1) - special.gammaln(rarer + 1)
    log_mass -= special.gammaln(changed - rarer + 1) + changed * np.log(2)
    return np.minimum(2 * special.bdtr(rarer, changed, 0.5) - np.exp(log_mass), 1.0)


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
