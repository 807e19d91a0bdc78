"""The standard error of means over crossed items and training seeds, each source of variance once.

Every seed of an arm answers the same items, so a mean over both varies with the items drawn, the
seeds drawn, and the rest: a seed's interaction with an item, and sampling. No verdict is made here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from assay.judge.cluster_robust import cluster_means, item_mean
from assay.judge.intervals import LEVEL, quantile
from assay.judge.paired import check_same_items
from assay.judge.scores import Array, ItemScores, ScoreError, cluster_totals


@dataclass(frozen=True, slots=True)
class CrossedError:
    """The standard error of a mean, or of a difference of two, and what it is made of."""

    items: float
    """Variance of the estimate by items; what is left counts in it."""
    seeds: float
    """Variance by seeds beyond what is left; 0 where the seeds differ by no more than that."""
    freedom: float
    """Degrees of freedom of Student's t."""

    @property
    def error(self) -> float:
        """The standard error."""
        return (self.items + self.seeds) ** 0.5


def crossed_error(
    arms: Sequence[Array], clusters: tuple[str, ...] | None, width: float
) -> CrossedError:
    """The error of the mean of one arm, or of the first arm's less the second's.

    Each arm is S x I item means, S >= 2 seeds that may differ from arm to arm over the same I
    items. `width` is the distance between the lowest and the highest score that an item can get.

    The moment estimator of the two-way layout (Cornfield and Tukey 1956, Annals of Mathematical
    Statistics 27:907): the variance of the items' means and that of the seeds' means each hold what
    is left once, so the variance of the residuals is taken off the seeds', which stay at or above
    0. Items of one cluster are summed first, with the leverage correction CR2 (Bell and McCaffrey
    2002, Survey Methodology 28:169). Degrees of freedom by Satterthwaite (1946, Biometrics Bulletin
    2:110), in which the seeds count with all of their mean square: a difference of mean squares is
    known as badly as its larger part. They count for nothing where they vary less than half of all
    samples of seeds would that do not differ.
    """
    signs = (1.0, -1.0)[: len(arms)]
    values_I = np.sum([sign * arm_SI.mean(0) for sign, arm_SI in zip(signs, arms, strict=True)], 0)
    items, freedom = _items(values_I, clusters, width)
    between = [float(arm_SI.mean(1).var(ddof=1)) / len(arm_SI) for arm_SI in arms]
    left = sum(left_over(arm_SI, clusters) for arm_SI in arms)
    degrees = [len(arm_SI) - 1 for arm_SI in arms]
    doubt = items**2 / freedom
    if sum(between) > left * float(special.chdtri(sum(degrees), 0.5)) / sum(degrees):
        doubt += sum(b**2 / f for b, f in zip(between, degrees, strict=True))
    seeds = max(sum(between) - left, 0.0)
    return CrossedError(items, seeds, (items + seeds) ** 2 / doubt)


def _items(values_I: Array, clusters: tuple[str, ...] | None, width: float) -> tuple[float, float]:
    """Variance of the mean of I values by the items drawn, and its degrees of freedom."""
    found = item_mean(values_I, clusters, (-width, width))
    variance = float(found.standard_error) ** 2 if found.clusters > 1 else 0.0
    if found.alike:
        # Next to nothing varied: at least what the score interval has with no exception among C.
        z = quantile(LEVEL)
        variance = max(variance, (z / (found.clusters + z**2) * width) ** 2)
    return variance, max(found.degrees, 1.0)


def left_over(arm_SI: Array, clusters: tuple[str, ...] | None) -> float:
    """Variance of an arm's mean by what neither its items nor its S >= 2 seeds explain."""
    residuals_SI = arm_SI - arm_SI.mean(0) - arm_SI.mean(1, keepdims=True) + arm_SI.mean()
    totals_CS, sizes_C = cluster_totals(residuals_SI.T, clusters)
    if len(sizes_C) == 1:
        return 0.0
    errors_S = cluster_means(totals_CS, sizes_C, (-np.inf, np.inf)).standard_error
    seeds = len(arm_SI)
    return float((errors_S**2).sum()) / (seeds * (seeds - 1))


def aligned(
    control: Sequence[ItemScores], other: Sequence[ItemScores]
) -> tuple[tuple[Array, Array], tuple[str, ...] | None]:
    """The S x I item means of control and other over the I items that every run has a score for,
    in one order, and their clusters.

    Raises ItemsDifferError when the runs were scored on different items, scales or clusters,
    ScoreError when no item has a score in all.
    """
    first = control[0]
    for run in (*control, *other):
        check_same_items(first, run)
    order = sorted(first.item_ids)
    means = [dict(zip(r.item_ids, r.item_means, strict=True)) for r in (*control, *other)]
    table = np.array([[run[item] for item in order] for run in means])
    scored = np.logical_not(np.isnan(table).any(0))
    if not scored.any():
        raise ScoreError("no item has a score in every run")
    clusters = None
    if first.clusters is not None:
        source = dict(zip(first.item_ids, first.clusters, strict=True))
        clusters = tuple(source[i] for i, keep in zip(order, scored, strict=True) if keep)
    return (table[: len(control), scored], table[len(control) :, scored]), clusters
