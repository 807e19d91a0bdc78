"""How far a judge of answers agrees with people's labels of the same answers: Cohen's kappa.

Weighted by the square of the distance, so that on a scale 4 for 5 is less wrong than 1 for 5.
Intervals are over the sources of the items, of which one may have several answers.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from assay.judge.cluster_robust import FEW_CLUSTERS
from assay.judge.intervals import Estimate, Interval, bootstrap_figures, grouped
from assay.judge.scores import Array


@dataclass(frozen=True, slots=True)
class Judged:
    """One labelled answer, and what the judge said of it."""

    item: str
    cluster: str
    """The source of the item; intervals are over these."""
    label: Mapping[str, float]
    """Of people, by criterion; of a pair under `preference`."""
    verdict: Mapping[str, float]
    """Of the judge, by the same names; empty where it abstained."""


def kappa_on(name: str, levels: Sequence[float], judged: Sequence[Judged]) -> Estimate | None:
    """The agreement on a criterion; None where labels and verdicts are all one level, or no answer
    has both."""
    both = [each for each in judged if name in each.label and name in each.verdict]
    if not both:
        return None
    size, places = len(levels), {level: n for n, level in enumerate(levels)}
    cells = [places[each.label[name]] * size + places[each.verdict[name]] for each in both]
    counts = np.eye(size * size)[cells]
    items = [each.cluster for each in both]
    distances = np.subtract.outer(np.array(levels), np.array(levels)).ravel() ** 2

    def figure(tables: Array) -> Array:
        return _kappa(tables, distances, size)

    value = float(figure(counts.sum(0, keepdims=True))[0])
    if math.isnan(value):
        return None
    low, high = bootstrap_figures(counts, items, figure, (-1.0, 1.0))
    low = min(low, value, _reach(both, name, counts.sum(0), distances))
    interval = Interval(low, max(high, value), "cluster bootstrap", share=False)
    return Estimate(value, interval, len(items), len(set(items)))


def _kappa(table_DK: Array, distances_K: Array, size: int) -> Array:
    """Cohen's weighted kappa of D tables of labels by verdicts (Cohen 1968)."""
    share_DLV = (table_DK / table_DK.sum(1, keepdims=True)).reshape(-1, size, size)
    chance_DK = (share_DLV.sum(2)[:, :, None] * share_DLV.sum(1)[:, None]).reshape(-1, size * size)
    seen, expected = share_DLV.reshape(-1, size * size) @ distances_K, chance_DK @ distances_K
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(expected > 0, 1 - seen / expected, np.nan)


def _reach(both: Sequence[Judged], name: str, counts_K: Array, distances_K: Array) -> float:
    """A lower limit that is honest where next to nothing was disagreed on: where the share of equal
    verdicts may be, at the mean distance of unequal ones."""
    right = [float(each.label[name] == each.verdict[name]) for each in both]
    exact = grouped(right, [each.cluster for each in both], (0.0, 1.0)).interval
    wrong = counts_K[distances_K > 0].sum()
    if wrong >= FEW_CLUSTERS or exact is None:
        return 1.0
    size = math.isqrt(len(counts_K))
    far = counts_K @ distances_K / wrong if wrong else distances_K[distances_K > 0].min()
    share = (counts_K / counts_K.sum()).reshape(size, size)
    expected = np.outer(share.sum(1), share.sum(0)).ravel() @ distances_K
    return max(float(1 - (1 - exact.low) * far / expected), -1.0)
