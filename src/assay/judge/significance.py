"""The paired tests: mid-p McNemar for 0/1 items, sign-flip permutation for everything else.

p-values are two-sided, from counts or cluster totals. `agreeing` makes an interval and a test of
different origin agree about a difference of 0: mid-p McNemar and Tango's interval, or the pooled
score test and Newcombe's, differ slightly, and a page must not show a verdict that its interval
contradicts. Verdicts are made in `verdict`.
"""

from dataclasses import replace

import numpy as np
from scipy import special

from assay.judge.intervals import DRAWS, SEED, TIE, Interval, quantile
from assay.judge.scores import Array
from assay.judge.verdict import IntervalAt

EXACT_CLUSTERS = 13
"""Up to this many non-zero totals all sign patterns are tried (8 192, under the 10 000 draws)."""


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


def sign_flip(totals_C: Array) -> float:
    """Two-sided mid-p value of the mean of C cluster totals, symmetric about 0 under the null.

    Sums as far from 0 as the observed one count half, so that on 0/1 items this is mid-p McNemar.
    Exact over all sign patterns when few totals are non-zero; else 10 000 seeded draws with the
    observed pattern added (Phipson and Smyth 2010: a sampled p-value is never 0).
    """
    nonzero_M = totals_C[np.abs(totals_C) > TIE]
    if len(nonzero_M) <= EXACT_CLUSTERS:
        return _exact_sign_flip(nonzero_M)
    return float(sampled_sign_flip(totals_C))


def _exact_sign_flip(totals_M: Array) -> float:
    """The mid-p value over the 2^M sign patterns."""
    sums = np.zeros(1)
    for total in totals_M:
        sums = np.concatenate((sums + total, sums - total))
    return float(_mid_p_count(sums, totals_M.sum()) / len(sums))


def sampled_sign_flip(totals_C: Array, seed: int = SEED) -> Array:
    """The same by 10 000 draws; `totals_C` may be C x datasets, which share the sign patterns."""
    count = len(totals_C)
    raw = np.random.default_rng(seed).bytes(DRAWS * -(-count // 8))
    packed_D = np.frombuffer(raw, np.uint8).reshape(DRAWS, -1)
    flips_DC = np.unpackbits(packed_D, axis=1, count=count).astype(np.float64)
    observed = totals_C.sum(0)
    # A sum with some signs flipped is the observed sum less twice the flipped part.
    sums_D = observed - 2 * (flips_DC @ totals_C)
    return np.minimum((_mid_p_count(sums_D, observed) + 1) / (DRAWS + 1), 1.0)


def _mid_p_count(sums_D: Array, observed: Array) -> Array:
    """Number of sums farther from 0 than the observed one, those just as far counting half."""
    size = np.abs(observed)
    above = (sums_D > size + TIE).sum(0) + (sums_D >= size - TIE).sum(0)
    below = (sums_D < -size - TIE).sum(0) + (sums_D <= TIE - size).sum(0)
    return (above + below) / 2


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
