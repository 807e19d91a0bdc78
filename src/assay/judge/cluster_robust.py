"""The mean over items in clusters: its standard error, interval and p-value.

Student's t with the CR2 variance and the degrees of freedom of Bell and McCaffrey (2002, Survey
Methodology 28:169), in the closed form that a mean has. Interval and p-value are one test at every
level. Intervals of counts are in `intervals`, verdicts in `verdict`.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from assay.judge.scores import Array, ItemScores, cluster_totals

LEVEL = 0.95
TIE = 1e-9
"""Scores and sums this close to each other differ by rounding only."""
FEW_CLUSTERS = 8
"""With fewer clusters than this that differ from the median one, the variance is not reliable."""


@dataclass(frozen=True, slots=True)
class ClusterMeans:
    """The mean of items in C clusters, as arrays of the data sets' shape (or of no axis for one).

    The mean is the ratio of the clusters' sums to their sizes, so that every item counts the same.
    """

    mean: Array
    standard_error: Array
    """The root of the CR2 variance; infinite with one cluster."""
    degrees: float
    """Degrees of freedom: C - 1 for equal clusters, fewer for unequal ones; 0 with one cluster."""
    clusters: int
    alike: NDArray[np.bool_]
    """Whether next to nothing varied: fewer than FEW_CLUSTERS and than C - 1 left the median."""
    bounds: tuple[float, float]
    """Lowest and highest value that an item can have."""


def cluster_means(totals_C: Array, sizes_C: Array, bounds: tuple[float, float]) -> ClusterMeans:
    """The mean of C clusters from their sums and sizes; `totals_C` may be C x data sets.

    A mean is the regression on a constant, whose leverage is h = size / items in each cluster.
    CR2 divides a cluster's squared residual sum by 1 - h; the degrees of freedom are those of a
    chi-squared variable with the variance that this sum has for independent items of one variance.
    """
    items, count = sizes_C.sum(), len(sizes_C)
    mean = np.asarray(totals_C.sum(0) / items)
    if count == 1:
        unknown = np.full_like(mean, np.inf)
        return ClusterMeans(mean, unknown, 0.0, 1, np.ones(mean.shape, bool), bounds)
    leverage_C = sizes_C / items
    residuals_C = (totals_C.T - np.multiply.outer(mean, sizes_C)).T / items
    variance = np.tensordot(1 / (1 - leverage_C), residuals_C**2, 1)
    shared_C = leverage_C**2 / (1 - leverage_C)
    degrees = 1 / ((leverage_C**2).sum() + shared_C.sum() ** 2 - (shared_C**2).sum())
    return ClusterMeans(
        mean, np.sqrt(variance), float(degrees), count, _alike(totals_C, sizes_C), bounds
    )


def item_mean(
    values_I: Array, clusters: tuple[str, ...] | None, bounds: tuple[float, float]
) -> ClusterMeans:
    """The mean of I item values within `bounds`; without clusters every item is its own."""
    return cluster_means(*cluster_totals(values_I, clusters), bounds)


def score_mean(scores: ItemScores) -> ClusterMeans:
    """The mean over the items that have a score, in an order that the items' order cannot touch."""
    scored_I = ~np.isnan(scores.item_means)
    order = sorted(np.flatnonzero(scored_I), key=lambda i: scores.item_ids[i])
    clusters = None if scores.clusters is None else tuple(scores.clusters[i] for i in order)
    return item_mean(scores.item_means[order], clusters, scores.bounds)


def difference_limits(means: ClusterMeans, level: float = LEVEL) -> tuple[Array, Array]:
    """Student's t interval: for a mean difference, whose values lie on both sides of 0."""
    reach = _student(means, level) * means.standard_error
    return _widened(means, means.mean - reach, means.mean + reach, level)


def score_limits(means: ClusterMeans, level: float = LEVEL) -> tuple[Array, Array]:
    """Wilson's interval with Student's quantile, at the number of independent 0/1 items that would
    have this standard error: for one score, whose distribution is lopsided near the ends of its
    scale. A number of items in clusters turned into an effective one, as for complex surveys (Dean
    and Pagano 2015, Journal of Survey Statistics and Methodology 3:484).
    """
    low, high = means.bounds
    share = (means.mean - low) / (high - low)
    variance = share * (1 - share)
    if means.clusters == 1:
        return np.full_like(share, low), np.full_like(share, high)
    # Student's quantile squared over the effective number; nothing where all clusters agree.
    error = (means.standard_error / (high - low)) ** 2
    pull = np.divide(error, variance, where=variance > TIE, out=np.zeros_like(share))
    pull *= _student(means, level) ** 2
    centre = (share + pull / 2) / (1 + pull)
    reach = np.sqrt(pull * variance + pull**2 / 4) / (1 + pull)
    below, above = (low + (high - low) * each for each in (centre - reach, centre + reach))
    return _widened(means, below, above, level)


def p_value(means: ClusterMeans) -> Array:
    """Two-sided p-value of a mean difference of 0: 1 - the level at which the interval meets 0."""
    if means.clusters == 1:
        return np.ones_like(means.mean)
    with np.errstate(divide="ignore", invalid="ignore"):
        student = np.where(means.mean == 0, 0.0, np.abs(means.mean) / means.standard_error)
    p = 2 * special.stdtr(means.degrees, -student)
    end = np.abs(np.where(means.mean > 0, means.bounds[0], means.bounds[1]))
    # Where `_widened` reaches 0: z^2 / (C + z^2) = |mean| / (|mean| + end), solved for z.
    unseen = 2 * special.ndtr(-np.sqrt(means.clusters * np.abs(means.mean) / end))
    return np.where(means.alike, np.maximum(p, unseen), p)


def _student(means: ClusterMeans, level: float) -> float:
    """Student's quantile that leaves (1 - level) / 2 above it; infinite with one cluster."""
    if means.clusters == 1:
        return np.inf
    return float(-special.stdtrit(means.degrees, 0.5 - level / 2))


def _alike(totals_C: Array, sizes_C: Array) -> NDArray[np.bool_]:
    """Whether so few clusters differ from the median one that the variance may be missing."""
    rates_C = (totals_C.T / sizes_C).T
    different = (np.abs(rates_C - np.median(rates_C, axis=0)) > TIE).sum(0)
    return np.asarray(different < min(FEW_CLUSTERS, len(sizes_C) - 1))


def tied_share(values_I: Array, clusters: tuple[str, ...] | None) -> float:
    """Estimated chance that a new cluster differs from the median one by rounding only.

    The share of the others that tie with the median, or of all pairs that tie where that is more:
    the median of few clusters that tie is often none of them.
    """
    totals_C, sizes_C = cluster_totals(values_I, clusters)
    rates_C, others = totals_C / sizes_C, len(sizes_C) - 1
    if not others:
        return 0.0
    at_median = int((np.abs(rates_C - np.median(rates_C)) <= TIE).sum())
    _, counts = np.unique(np.round(rates_C / TIE), return_counts=True)
    pairs = float((counts * (counts - 1)).sum()) / (others * (others + 1))
    return max(pairs, (at_median - 1) / others)


def _widened(means: ClusterMeans, low: Array, high: Array, level: float) -> tuple[Array, Array]:
    """Limits within the bounds that stay honest when next to nothing varied.

    Equal clusters have no variance. Where they are `alike` the limits reach at least as far as the
    score interval would with no exception among C: the share z^2 / (C + z^2) of the way to each end
    of the scale, as Wilson's and Tango's do.
    """
    squared = special.ndtri(0.5 + level / 2) ** 2
    unseen = squared / (means.clusters + squared)
    bottom, top = means.bounds
    far_low, far_high = (means.mean - unseen * (means.mean - end) for end in means.bounds)
    low = np.where(means.alike, np.minimum(low, far_low), low)
    high = np.where(means.alike, np.maximum(high, far_high), high)
    return np.maximum(low, bottom), np.minimum(high, top)
