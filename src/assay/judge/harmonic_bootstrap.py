"""The harmonic mean of ratios to a baseline that was measured or is given, by a seeded bootstrap.

Items are drawn anew within each benchmark; a measured baseline is drawn with the run, item by item,
a given figure is a constant. Training seeds are not drawn. Tests are in `averages`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from assay.judge.averages import counts_of, harmonic_ratio
from assay.judge.intervals import DRAWS, LEVEL, SEED, Interval
from assay.judge.paired import check_same_items
from assay.judge.scores import Array, ItemScores, cluster_totals, on_one_scale, on_shared_items

METHOD = "bootstrap over items within benchmarks"


@dataclass(frozen=True, slots=True)
class Harmonic:
    """A harmonic mean of ratios, 0 if a score is 0."""

    value: float
    interval: Interval


def harmonic_of(
    parts: Sequence[ItemScores],
    baselines: Sequence[ItemScores | float],
    level: float = LEVEL,
) -> Harmonic:
    """The harmonic mean of score / baseline over benchmarks, from counts.

    The Bayesian bootstrap (Rubin 1981, Annals of Statistics 9:130) over items or clusters, with
    half an item more at each end of the scale: of one benchmark of 0/1 items and a given figure
    this is Jeffreys' interval, which has a width also where all items agree (Brown, Cai and
    DasGupta 2001, Statistical Science 16:101).

    Raises BaselineError for a baseline of 0, ItemsDifferError of a measured one on other items.
    """
    pairs = [_paired(part, baseline) for part, baseline in zip(parts, baselines, strict=True)]
    scores = [counts_of(run) for run, _ in pairs]
    figures = [base.mean if isinstance(base, ItemScores) else base for _, base in pairs]
    value = harmonic_ratio(scores, figures)
    inverse_D = np.zeros(DRAWS)
    for place, (run, base) in enumerate(pairs):
        inverse_D += 1 / _drawn_ratios(run, base, np.random.default_rng([SEED, place]))
    low, high = np.quantile(len(pairs) / inverse_D, [0.5 - level / 2, 0.5 + level / 2])
    limits = float(min(low, value)) if value else 0.0, float(max(high, value))
    return Harmonic(value, Interval(*limits, METHOD, level, share=False))


def _paired(run: ItemScores, baseline: ItemScores | float) -> tuple[ItemScores, ItemScores | float]:
    """A measured baseline on the items and the scale of the run."""
    if not isinstance(baseline, ItemScores):
        return run, float(baseline)
    one, other = on_one_scale(*on_shared_items(run, baseline))
    check_same_items(other, one)
    return one, other


def _drawn_ratios(
    run: ItemScores, baseline: ItemScores | float, generator: np.random.Generator
) -> Array:
    """DRAWS ratios of one benchmark."""
    kinds, counts = _kinds(run, baseline)
    weights_DU = generator.standard_gamma(counts, (DRAWS, len(counts)))
    sums_DV = weights_DU @ kinds
    if isinstance(baseline, ItemScores):
        return sums_DV[:, 0] / sums_DV[:, 1]
    return sums_DV[:, 0] / sums_DV[:, 2] / baseline


def _kinds(run: ItemScores, baseline: ItemScores | float) -> tuple[Array, Array]:
    """Clusters that are alike as one kind: U x (sum of the run, of the baseline, items), and how
    many there are of each. The weights of n clusters of one kind add up to a gamma variable of n.
    """
    means_I, base_I = run.item_means, np.zeros(len(run.item_ids))
    if isinstance(baseline, ItemScores):
        found = dict(zip(baseline.item_ids, baseline.item_means, strict=True))
        base_I = np.array([found[item] for item in run.item_ids])
    kept_I = ~(np.isnan(means_I) | np.isnan(base_I))
    clusters = run.clusters and tuple(np.array(run.clusters)[kept_I])
    values = np.stack([means_I, base_I], 1)[kept_I]
    totals, sizes = cluster_totals(values, clusters)
    kinds, counts = np.unique(np.column_stack([totals, sizes]), axis=0, return_counts=True)
    low, high = run.bounds
    ends = [(one, two) for one in (low, high) for two in (low, high)]
    size = sizes.mean()
    corners = np.array([(one * size, two * size, size) for one, two in ends])
    return np.vstack([kinds, corners]), np.concatenate([counts, np.full(4, 0.25)])
