"""Corrects the mean of a judge's scores by the labels of people on some of the answers.

Prediction-powered inference with power tuning (PPI++: Angelopoulos, Duchi and Zrnic 2023,
arXiv 2311.01453): the judge's mean on the answers without a label, plus what the labels say it errs
by on the others. It is right on average however bad the judge is; a bad judge makes it wide, and
not wrong. It takes the labelled answers for a random part of all.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.judge.cluster_robust import (
    ClusterMeans,
    difference_limits,
    item_mean,
    p_value,
    score_limits,
)
from assay.judge.intervals import Interval
from assay.judge.scores import Array, cluster_totals

METHOD = "prediction-powered mean (PPI++), cluster-robust"


@dataclass(frozen=True, slots=True)
class Corrected:
    """A mean of scores, or of paired differences, corrected by labels."""

    value: float
    standard_error: float
    interval: Interval
    p_value: float
    """Of the value 0; for differences."""
    raw: float
    """The mean of the judge's own scores on all items."""
    tuning: float
    """The weight of the judge's scores, from 0, labels alone, to 1."""
    labelled: int
    """Items with a label."""
    items: int
    to_halve: int | None
    """Labels at which the interval would be half as wide; None where labels alone cannot do it."""


def corrected_mean(
    judged_I: Array,
    labels_I: Array,
    judged_where_labelled_I: Array,
    clusters: tuple[str, ...] | None,
    bounds: tuple[float, float],
    *,
    difference: bool = False,
) -> Corrected:
    """The corrected mean of I items, at least one of which has a label.

    `judged_I` is an item's mean over its answers, NaN where the judge gave no score, which counts
    as the judge's mean; `labels_I` is NaN without a label; `judged_where_labelled_I` is the judge's
    mean over those answers of an item that have one. Both are on the scale `bounds`; a `difference`
    lies on both sides of 0.
    """
    known_I = ~np.isnan(labels_I)
    middle = float(np.nanmean(judged_I))
    judged_I = np.where(np.isnan(judged_I), middle, judged_I)
    beside_I = np.where(np.isnan(judged_where_labelled_I), judged_I, judged_where_labelled_I)
    labels, beside, rest = labels_I[known_I], beside_I[known_I], judged_I[~known_I]
    own, others = _members(clusters, known_I), _members(clusters, ~known_I)
    tuning, left, explained = _tuned(labels, beside, rest, own, others)
    error = item_mean(labels - tuning * beside, own, bounds)
    value, variance, degrees = float(error.mean), float(error.standard_error) ** 2, error.degrees
    if len(rest):
        others_mean = item_mean(tuning * rest, others, bounds)
        value += float(others_mean.mean)
        more = float(others_mean.standard_error) ** 2
        if variance and np.isfinite(variance):
            degrees = (variance + more) ** 2 / (
                variance**2 / error.degrees + more**2 / max(others_mean.degrees, 1.0)
            )
        variance += more + 2 * _shared(labels - tuning * beside, tuning * rest, own, others)
    whole = ClusterMeans(
        np.asarray(min(max(value, bounds[0]), bounds[1])),
        np.asarray(math.sqrt(max(variance, 0.0))),
        degrees,
        error.clusters,
        # A judge that was right on next to all labels may err on one in so many others.
        item_mean(labels - beside, own, bounds).alike,
        bounds,
    )
    low, high = (difference_limits if difference else score_limits)(whole)
    share = bounds in ((0.0, 1.0), (-1.0, 1.0))
    return Corrected(
        value=float(whole.mean),
        standard_error=float(whole.standard_error),
        interval=Interval(float(low), float(high), METHOD, share=share),
        p_value=float(p_value(whole)) if difference else math.nan,
        raw=float(judged_I.mean()),
        tuning=tuning,
        labelled=len(labels),
        items=len(judged_I),
        to_halve=_to_halve(left, explained, len(labels), len(judged_I)),
    )


def _members(clusters: tuple[str, ...] | None, kept_I: NDArray[np.bool_]) -> tuple[str, ...] | None:
    if clusters is None:
        return None
    return tuple(cluster for cluster, keep in zip(clusters, kept_I, strict=True) if keep)


def _tuned(
    labels: Array,
    beside: Array,
    rest: Array,
    own: tuple[str, ...] | None,
    others: tuple[str, ...] | None,
) -> tuple[float, float, float]:
    """The weight of the judge that makes the variance least, as `ppi_py` has it for a mean; and of
    one label the variance that the judge leaves and the one that it explains."""
    count, every = len(labels), np.concatenate([beside, rest])
    names = None if own is None or others is None else (*own, *others)
    spread = _products(every, every, names) / max(len(every) - 1, 1)
    together = _products(labels, beside, own) / count
    total = _products(labels, labels, own) / max(count - 1, 1)
    if spread <= 0:
        return 0.0, total, 0.0
    explained = min(max(together, 0.0) ** 2 / spread, total)
    if not len(rest):
        return 0.0, total - explained, explained
    tuning = min(max(together / ((1 + count / len(rest)) * spread), 0.0), 1.0)
    return tuning, total - explained, explained


def _products(one: Array, other: Array, clusters: tuple[str, ...] | None) -> float:
    """The sum over clusters of the products of both deviations from the mean."""
    first, second = (cluster_totals(values - values.mean(), clusters)[0] for values in (one, other))
    return float(first @ second)


def _shared(
    errors: Array, rest: Array, own: tuple[str, ...] | None, others: tuple[str, ...] | None
) -> float:
    """The covariance of the two means by clusters of which some items have a label."""
    if own is None or others is None:
        return 0.0
    sums = []
    for values, names in ((errors, own), (rest, others)):
        totals, _ = cluster_totals(values - values.mean(), names)
        sums.append(dict(zip(np.unique(np.array(names)), totals / len(values), strict=True)))
    first, second = sums
    return float(sum(first[name] * second[name] for name in first.keys() & second.keys()))


def _to_halve(left: float, explained: float, labelled: int, items: int) -> int | None:
    """The labels at which the variance `left / labels + explained / items` is a quarter of now."""
    wanted = (left / labelled + explained / items) / 4 - explained / items
    if wanted <= 0 or left / wanted > items:
        return None
    return math.ceil(left / wanted)
