"""Confidence intervals for one score, a paired difference, and the means of training steps.

Wilson for counts, Tango for paired counts, Student's t over clusters (`cluster_robust`) for
everything else. Two training steps have different prompts and are independent samples; two
checkpoints on the same items are compared in `paired`. No test or verdict is made here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

from assay.judge.cluster_robust import (
    LEVEL,
    difference_limits,
    item_mean,
    score_limits,
    score_mean,
)
from assay.judge.scores import Array, ItemScores, cluster_totals

DRAWS = 10_000
SEED = 20_240_501


@dataclass(frozen=True, slots=True)
class Interval:
    """A two-sided confidence interval, on the scale of the scores, and how it was made."""

    low: float
    high: float
    method: str
    level: float = LEVEL
    share: bool = True
    """Whether the scores run from 0 to 1, so that they can be printed in percent."""

    @property
    def half_width(self) -> float:
        """Half the distance between the limits."""
        return (self.high - self.low) / 2


def quantile(level: float) -> float:
    """The standard normal quantile that leaves (1 - level) / 2 above it."""
    return float(special.ndtri(0.5 + level / 2))


def wilson(successes: float, items: float, level: float = LEVEL) -> Interval:
    """Wilson's score interval for one proportion (Wilson 1927)."""
    z = quantile(level)
    share = successes / items
    centre = (share + z**2 / (2 * items)) / (1 + z**2 / items)
    spread = z / (1 + z**2 / items) * np.sqrt(share * (1 - share) / items + z**2 / (4 * items**2))
    # Rounding may leave a limit a hair inside the score it has to cover when all items agree.
    low, high = min(centre - spread, share), max(centre + spread, share)
    return Interval(float(max(low, 0.0)), float(min(high, 1.0)), "Wilson", level)


def tango_limits(
    gained: Array, lost: Array, items: Array | float, level: float = LEVEL
) -> tuple[Array, Array]:
    """Limits of Tango's score interval for (gained - lost) / items; arrays of any one shape.

    Tango 1998, Statistics in Medicine 17:891: the differences that the efficient score test, with
    its constrained estimate of the discordant probability, does not reject. Solved by bisection.
    """
    gained, lost = np.asarray(gained, np.float64), np.asarray(lost, np.float64)
    z = quantile(level)

    def rejected(delta: Array) -> NDArray[np.bool_]:
        """Whether the score statistic at `delta` lies beyond z."""
        linear = (2 * items - gained + lost) * delta - gained - lost
        constant = -lost * delta * (1 - delta)
        root = np.sqrt(np.maximum(linear**2 - 8 * items * constant, 0))
        constrained = (root - linear) / (4 * items)
        variance = items * (2 * constrained + delta * (1 - delta))
        return (gained - lost - items * delta) ** 2 > z**2 * variance

    estimate = (gained - lost) / items
    ends = np.stack([np.full_like(estimate, -1.0), np.full_like(estimate, 1.0)])
    outside, inside = ends, np.stack([estimate, estimate])
    for _ in range(50):
        middle = (outside + inside) / 2
        beyond = rejected(middle)
        outside, inside = np.where(beyond, middle, outside), np.where(beyond, inside, middle)
    # Where the end of the scale is not rejected either, it is the limit itself.
    low, high = np.where(rejected(ends), inside, ends)
    return low, high


@lru_cache(maxsize=4096)
def tango(gained: int, lost: int, items: int, level: float = LEVEL) -> Interval:
    """Tango's paired score interval; has a width even when no item is discordant."""
    low, high = tango_limits(np.array(float(gained)), np.array(float(lost)), items, level)
    return Interval(float(low), float(high), "Tango", level)


def bootstrap_figures(
    columns_IK: Array,
    clusters: Sequence[str],
    figure: Callable[[Array], Array],
    bounds: tuple[float, float],
) -> tuple[float, float]:
    """Limits of a figure of the weighted sums of K columns of items, by 10 000 weighted draws.

    The Bayesian bootstrap (Rubin 1981, Annals of Statistics 9:130) over clusters. Its percentiles
    are widened by Student's t (Hesterberg 2015, The American Statistician 69:371), because a
    bootstrap of few clusters is too narrow. One cluster says nothing: its limits are `bounds`.
    `figure` takes D x K sums and gives D values, of which NaN is none."""
    totals_CK, _ = cluster_totals(columns_IK, tuple(clusters))
    count = len(totals_CK)
    if count == 1:
        return bounds
    weights_DC = np.random.default_rng(SEED).standard_exponential((DRAWS, count))
    student = special.stdtrit(count - 1, 0.5 - LEVEL / 2) * np.sqrt(count / (count - 1))
    tail = float(special.ndtr(student))
    low, high = np.nanquantile(figure(weights_DC @ totals_CK), [tail, 1 - tail])
    return float(low), float(high)


def difference_interval(
    values_I: Array,
    clusters: tuple[str, ...] | None,
    bounds: tuple[float, float],
    level: float = LEVEL,
) -> Interval:
    """Student's t interval of the mean of I differences within `bounds`, robust to clusters."""
    low, high = difference_limits(item_mean(values_I, clusters, bounds), level)
    return Interval(float(low), float(high), "cluster-robust t", level, bounds == (-1.0, 1.0))


def mean_interval(
    values_I: Array,
    clusters: tuple[str, ...] | None,
    bounds: tuple[float, float],
    level: float = LEVEL,
) -> Interval:
    """The interval of one mean of I values within `bounds`, robust to clusters."""
    low, high = score_limits(item_mean(values_I, clusters, bounds), level)
    return Interval(float(low), float(high), "cluster-robust Wilson", level, bounds == (0.0, 1.0))


def score_interval(scores: ItemScores, level: float = LEVEL) -> Interval:
    """The interval of one score: Wilson's, for clusters and anything but single-pass 0/1 items at
    the effective number of items.

    Items without any score are left out; `ItemScores.missing` counts what is absent.
    """
    if scores.binary and scores.repeats == 1 and not scores.clustered:
        means_I = scores.item_means[~np.isnan(scores.item_means)]
        return wilson(float(means_I.sum()), len(means_I), level)
    low, high = score_limits(score_mean(scores), level)
    share = scores.bounds == (0.0, 1.0)
    return Interval(float(low), float(high), "cluster-robust Wilson", level, share)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value that was counted or averaged, with how well it is known."""

    value: float
    interval: Interval | None
    """None where the number of trials is unknown."""
    trials: int | None = None
    clusters: int | None = None
    """Groups of trials that are not independent; None where every trial is its own."""


def counted(share: float, trials: int) -> Estimate:
    """A share of independent trials, with Wilson's interval."""
    return Estimate(share, wilson(share * trials, trials), trials)


def grouped(
    values: Sequence[float], groups: Sequence[str], bounds: tuple[float, float]
) -> Estimate:
    """A mean over trials that come in groups (the completions of one prompt), robust to clusters.

    Trials with a common group name are one cluster; values lie within `bounds`.
    """
    interval = mean_interval(np.asarray(values, np.float64), tuple(groups), bounds)
    return Estimate(float(np.mean(values)), interval, len(values), len(set(groups)))


def change(before: Estimate, after: Estimate) -> Interval | None:
    """The interval of after - before for independent estimates; None where one has none."""
    if before.interval is None or after.interval is None:
        return None
    return independent_difference(before.value, before.interval, after.value, after.interval)


def independent_difference(
    before: float, around: Interval, after: float, around_after: Interval
) -> Interval:
    """The interval of after - before from the intervals of both.

    Their reaches are squared and added, each on the side where it matters (Zou and Donner 2008,
    Statistics in Medicine 27:1693); of two Wilson intervals this makes Newcombe's.
    """
    low = np.hypot(after - around_after.low, around.high - before)
    high = np.hypot(around_after.high - after, before - around.low)
    step = after - before
    method = f"{around_after.method}, reaches squared and added"
    return Interval(float(step - low), float(step + high), method, around.level)
