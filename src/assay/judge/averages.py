"""Averages over the cells of a table, and harmonic means of ratios to a baseline, with intervals.

Cells measured on the same or nested items are not independent: every item counts once, with its
effect on all cells that hold it. Harmonic means take counts, because rounded percentages give
another number. Training seeds are not sampled here: the figures hold for the given runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from assay.errors import InputError
from assay.judge.intervals import (
    DRAWS,
    LEVEL,
    SEED,
    Interval,
    difference_interval,
)
from assay.judge.paired import compare, fillings, unscored_shares
from assay.judge.power import detectable_from_interval, planned
from assay.judge.scores import Array, ItemScores, cluster_totals, on_shared_items
from assay.judge.significance import agreeing
from assay.judge.verdict import Comparison, Figures

METHOD = "harmonic mean of ratios: paired bootstrap over items within benchmarks"


def harmonic_ratio(counts: Sequence[tuple[float, int]], baselines: Sequence[float]) -> float:
    """Harmonic mean of (successes / items) / baseline over benchmarks; 0 if any score is 0.

    Raises InputError when the numbers of benchmarks differ or a baseline is not above 0.
    """
    if len(counts) != len(baselines) or not counts:
        raise InputError(f"{len(counts)} benchmarks and {len(baselines)} baselines")
    if min(baselines) <= 0:
        raise InputError("a baseline of 0 has no ratio", fix="leave that benchmark out")
    if min(hits for hits, _ in counts) == 0:
        return 0.0
    inverse = 0.0
    for (hits, items), baseline in zip(counts, baselines, strict=True):
        inverse += 1 / (hits / items / baseline)
    return len(counts) / inverse


def harmonic_score(parts: Sequence[ItemScores], baselines: Sequence[float]) -> float:
    """`harmonic_ratio` of the scores of several benchmarks."""
    means = [part.item_means for part in parts]
    counts = [(float(np.nansum(each_I)), int((~np.isnan(each_I)).sum())) for each_I in means]
    return harmonic_ratio(counts, baselines)


BOOTSTRAP = "bootstrap over items within benchmarks"


def harmonic_interval(parts: Sequence[ItemScores], baselines: Sequence[float]) -> Interval:
    """The interval of `harmonic_score`.

    The Bayesian bootstrap (Rubin 1981, Annals of Statistics 9:130) over items or clusters, with
    half an item more at each end of the scale: of one benchmark of 0/1 items this is Jeffreys'
    interval, which has a width also where all items agree (Brown, Cai and DasGupta 2001,
    Statistical Science 16:101).

    Raises InputError for a baseline of 0.
    """
    value = harmonic_score(parts, baselines)
    inverse_D = np.zeros(DRAWS)
    for place, (run, base) in enumerate(zip(parts, baselines, strict=True)):
        sums_DV = _drawn_sums(run, None, place)
        inverse_D += 1 / (sums_DV[:, 0] / sums_DV[:, 2] / base)
    low, high = np.quantile(len(parts) / inverse_D, [0.5 - LEVEL / 2, 0.5 + LEVEL / 2])
    limits = float(min(low, value)) if value else 0.0, float(max(high, value))
    return Interval(*limits, BOOTSTRAP, share=False)


def compare_harmonic(
    control: Sequence[ItemScores],
    other: Sequence[ItemScores],
    baselines: Sequence[float],
) -> Comparison:
    """Two runs by their harmonic scores, paired by item within each benchmark.

    Test and interval are those of the same bootstrap. Differences are in units of the ratio. Raises
    what `compare` raises.
    """
    pairs = [compare(a, b) for a, b in zip(control, other, strict=True)]
    shared = [on_shared_items(a, b) for a, b in zip(control, other, strict=True)]
    control, other = [a for a, _ in shared], [b for _, b in shared]

    def figures(one: Sequence[ItemScores], two: Sequence[ItemScores]) -> Figures:
        return _figures(one, two, baselines)

    estimate = figures(control, other)
    lowest, highest = fillings(figures, control, other)
    most = len(baselines) / sum(baselines)  # the harmonic score of all items right

    def plan_at(alpha: float) -> tuple[float | None, None]:
        reach = estimate.interval_at(1 - alpha).half_width
        return detectable_from_interval(reach, most, 1 - alpha), None

    return planned(
        estimate,
        plan_at,
        method=METHOD,
        items=sum(p.items for p in pairs),
        gained=sum(p.gained or 0 for p in pairs),
        lost=sum(p.lost or 0 for p in pairs),
        unchanged=sum(p.unchanged or 0 for p in pairs),
        repeats=(control[0].repeats, other[0].repeats),
        unscored=sum(p.unscored for p in pairs),
        unscored_shares=unscored_shares(control, other),
        lowest=lowest,
        highest=highest,
        control_only=sum(p.control_only for p in pairs),
    )


def _figures(
    control: Sequence[ItemScores], other: Sequence[ItemScores], baselines: Sequence[float]
) -> Figures:
    """Test and interval of the difference between two harmonic scores."""
    inverse_2D = np.zeros((2, DRAWS))
    for place, (before, after) in enumerate(zip(control, other, strict=True)):
        sums_DV = _drawn_sums(after, before, place)
        inverse_2D += baselines[place] * sums_DV[:, 2] / sums_DV[:, 1::-1].T
    first_D, second_D = len(baselines) / inverse_2D
    change_D = np.sort(second_D - first_D)
    one, two = (harmonic_score(parts, baselines) for parts in (control, other))

    def interval_at(level: float) -> Interval:
        ends = np.quantile(change_D, [0.5 - level / 2, 0.5 + level / 2])
        return Interval(float(ends[0]), float(ends[1]), BOOTSTRAP, level, share=False)

    beyond = min((change_D <= 0).sum(), (change_D >= 0).sum())
    p_value = min(1.0, 2 * float(beyond + 1) / (DRAWS + 1))
    return Figures(one, two, two - one, p_value, agreeing(interval_at, p_value))


def _drawn_sums(run: ItemScores, baseline: ItemScores | None, place: int) -> Array:
    """DRAWS weighted sums over items: of the run, of the baseline, and of the weights.

    Clusters that are alike are one kind: the weights of n clusters add up to a gamma variable of n.
    """
    means_I, base_I = run.item_means, np.zeros(len(run.item_ids))
    if baseline is not None:
        mean_by_item = dict(zip(baseline.item_ids, baseline.item_means, strict=True))
        base_I = np.array([mean_by_item[item] for item in run.item_ids])
    kept_I = ~(np.isnan(means_I) | np.isnan(base_I))
    clusters = run.clusters and tuple(np.array(run.clusters)[kept_I])
    values = np.stack([means_I, base_I], 1)[kept_I]
    totals, sizes = cluster_totals(values, clusters)
    kinds, counts = np.unique(np.column_stack([totals, sizes]), axis=0, return_counts=True)
    low, high = run.bounds
    ends = [(one, two) for one in (low, high) for two in (low, high)]
    size = sizes.mean()
    corners = np.array([(one * size, two * size, size) for one, two in ends])
    shapes = np.concatenate([counts, np.full(4, 0.25)])
    weights_DU = np.random.default_rng([SEED, place]).standard_gamma(shapes, (DRAWS, len(shapes)))
    return weights_DU @ np.vstack([kinds, corners])


@dataclass(frozen=True, slots=True)
class Average:
    """A mean over cells."""

    mean: float
    interval: Interval
    cells: int
    items: int
    """Different items in all."""


def average_change(pairs: Sequence[tuple[ItemScores, ItemScores]]) -> Average:
    """The mean difference of (control, other) pairs of cells, other minus control.

    Limits by Student's t over the items, or over their clusters where a cell has some.
    """
    mean = float(np.mean([other.mean - control.mean for control, other in pairs]))
    changes, known = dict[str, float](), dict[str, str]()
    for control, other in pairs:
        before, after = _effects(control), _effects(other)
        for item in {**before, **after}:
            change = after.get(item, 0.0) - before.get(item, 0.0)
            changes[item] = changes.get(item, 0.0) + change
        known |= zip(other.item_ids, other.clusters or (), strict=False)
    ids = sorted(changes)
    total_I = np.array([changes[item] for item in ids]) * len(ids) / len(pairs)
    sources = tuple(known.get(item, item) for item in ids) if known else None
    wide = max(1.0, float(np.abs(total_I).max()))
    limits = difference_interval(total_I, sources, (-wide, wide))
    low, high = pairs[0][0].bounds
    low, high = max(mean - abs(limits.low), low - high), min(mean + abs(limits.high), high - low)
    return Average(mean, Interval(float(low), float(high), limits.method), len(pairs), len(ids))


def _effects(cell: ItemScores) -> dict[str, float]:
    """By item, what it adds to its cell's mean beyond the mean item."""
    means = cell.item_means
    scored = ~np.isnan(means)
    effect = (means - means[scored].mean()) / scored.sum()
    return {i: float(e) for i, e, keep in zip(cell.item_ids, effect, scored, strict=True) if keep}


def value_of(parts: Sequence[ItemScores], baselines: Sequence[float] = ()) -> float:
    """One benchmark's score, or the harmonic mean of the ratios of several."""
    return harmonic_score(parts, baselines) if baselines else parts[0].mean
