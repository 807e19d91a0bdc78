"""Averages over the cells of a table, and harmonic means of ratios to a baseline, with intervals.

Cells measured on the same or nested items are not independent: every item counts once, with its
effect on all cells that hold it. Harmonic means take counts, because rounded percentages give
another number; their benchmarks share no items, so their limits are combined. Training seeds are
not sampled here: the figures hold for the given runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from assay.errors import InputError
from assay.judge.intervals import (
    DRAWS,
    LEVEL,
    SEED,
    TIE,
    Interval,
    difference_interval,
    score_interval,
)
from assay.judge.paired import check_same_items, compare, fillings, unscored_shares
from assay.judge.paired import figures as figures_of_pair
from assay.judge.power import detectable_from_interval
from assay.judge.scores import Array, ItemScores, cluster_totals, on_one_scale, on_shared_items
from assay.judge.significance import agreeing, p_value_of
from assay.judge.verdict import ALPHA, MARGIN, Comparison, Figures, judged

METHOD = "harmonic mean of ratios: sign-flip permutation within benchmarks, limits combined (MOVER)"


class BaselineError(InputError):
    """Baselines that no ratio can be taken to."""


def harmonic_ratio(counts: Sequence[tuple[float, int]], baselines: Sequence[float]) -> float:
    """Harmonic mean of (successes / items) / baseline over benchmarks; 0 if any score is 0.

    Raises BaselineError when the numbers of benchmarks differ or a baseline is not above 0.
    """
    if len(counts) != len(baselines) or not counts:
        raise BaselineError(f"{len(counts)} benchmarks and {len(baselines)} baselines")
    if min(baselines) <= 0:
        raise BaselineError("a baseline of 0 has no ratio", fix="leave that benchmark out")
    if min(hits for hits, _ in counts) == 0:
        return 0.0
    inverse = 0.0
    for (hits, items), baseline in zip(counts, baselines, strict=True):
        inverse += 1 / (hits / items / baseline)
    return len(counts) / inverse


def counts_of(scores: ItemScores) -> tuple[float, int]:
    """The sum of the item means and the number of items that have one."""
    means = scores.item_means
    return float(np.nansum(means)), int((~np.isnan(means)).sum())


def harmonic_score(parts: Sequence[ItemScores], baselines: Sequence[float]) -> float:
    """`harmonic_ratio` of the scores of several benchmarks."""
    return harmonic_ratio([counts_of(part) for part in parts], baselines)


def harmonic_interval(
    parts: Sequence[ItemScores], baselines: Sequence[float], level: float = LEVEL
) -> Interval:
    """The interval of `harmonic_score` from those of the benchmarks.

    The sum of the inverse ratios has limits that follow from the limits of its terms (MOVER: Zou
    and Donner 2008, Statistics in Medicine 27:1693). Where a score is 0 the lower limit is 0 and
    the upper one that of all upper limits together.
    """
    value = harmonic_score(parts, baselines)
    intervals = [score_interval(part, level) for part in parts]
    lows, highs = ([getattr(i, end) for i in intervals] for end in ("low", "high"))
    if value == 0:
        high = harmonic_ratio([(high, 1) for high in highs], baselines)
        return Interval(0.0, high, "MOVER of the benchmarks' intervals", level)
    scores = np.array([hits / items for hits, items in map(counts_of, parts)])
    terms = np.array(baselines) / scores
    shortest, count = np.array(baselines) / np.array(highs), len(parts)
    low_sum = terms.sum() - np.sqrt(((terms - shortest) ** 2).sum())
    with np.errstate(divide="ignore"):
        longest = np.array(baselines) / np.array(lows)
    high_sum = terms.sum() + np.sqrt(((longest - terms) ** 2).sum())
    return Interval(count / high_sum, count / low_sum, "MOVER of the benchmarks' intervals", level)


def gradient(parts: Sequence[ItemScores], baselines: Sequence[float]) -> Array:
    """How much `harmonic_score` rises with each benchmark's score; one-sided where one is 0."""
    scores = np.array([hits / items for hits, items in map(counts_of, parts)])
    ratios = scores / np.array(baselines)
    zeros, count = (ratios == 0), len(ratios)
    if zeros.any():
        return np.where(zeros, count / zeros.sum() ** 2, 0.0) / np.array(baselines)
    value = count / (1 / ratios).sum()
    return (value / ratios) ** 2 / count / np.array(baselines)


def compare_harmonic(
    control: Sequence[ItemScores],
    other: Sequence[ItemScores],
    baselines: Sequence[float],
    margin: float = MARGIN,
) -> Comparison:
    """Two runs by their harmonic scores, paired by item within each benchmark.

    The p-value is that of flipping the signs of item (or cluster) differences; the interval puts
    together the paired intervals of the benchmarks. Differences are in units of the ratio.

    Raises what `compare` raises.
    """
    pairs = [compare(a, b, margin) for a, b in zip(control, other, strict=True)]
    shared = [on_shared_items(a, b) for a, b in zip(control, other, strict=True)]
    control, other = [a for a, _ in shared], [b for _, b in shared]

    def figures(one: Sequence[ItemScores], two: Sequence[ItemScores]) -> Figures:
        return _figures(one, two, baselines)

    found = figures(control, other)
    lowest, highest = fillings(figures, control, other)
    interval = found.interval_at(LEVEL)
    most = len(baselines) / sum(baselines)  # the harmonic score of all items right

    def plan_at(alpha: float) -> tuple[float | None, None]:
        reach = found.interval_at(1 - alpha).half_width
        return detectable_from_interval(reach, most, 1 - alpha), None

    compared = Comparison(
        control_score=found.control_score,
        score=found.score,
        difference=found.difference,
        interval=interval,
        p_value=found.p_value,
        adjusted_p=found.p_value,
        method=METHOD,
        items=sum(p.items for p in pairs),
        verdict="undecided",
        margin=margin,
        minimum_detectable_difference=plan_at(ALPHA)[0],
        items_needed=None,
        interval_at=found.interval_at,
        plan_at=plan_at,
        gained=sum(p.gained or 0 for p in pairs),
        lost=sum(p.lost or 0 for p in pairs),
        unchanged=sum(p.unchanged or 0 for p in pairs),
        repeats=(control[0].repeats, other[0].repeats),
        unscored=sum(p.unscored for p in pairs),
        unscored_shares=unscored_shares(control, other),
        lowest=lowest,
        highest=highest,
        asked_of_one=sum(p.asked_of_one for p in pairs),
    )
    return judged(compared)


def _figures(
    control: Sequence[ItemScores], other: Sequence[ItemScores], baselines: Sequence[float]
) -> Figures:
    """Test and interval of the difference between two harmonic scores."""
    pairs = [figures_of_pair(a, b) for a, b in zip(control, other, strict=True)]
    before, after = (harmonic_score(parts, baselines) for parts in (control, other))

    def interval_at(level: float) -> Interval:
        return _difference_interval(control, other, pairs, baselines, level)

    # Limits that know the ends of the scale may hold 0 where the signs of few items do not.
    p_value = max(_sign_flip(control, other, baselines), p_value_of(interval_at))
    return Figures(before, after, after - before, p_value, agreeing(interval_at, p_value))


def _difference_interval(
    control: Sequence[ItemScores],
    other: Sequence[ItemScores],
    pairs: Sequence[Figures],
    baselines: Sequence[float],
    level: float,
) -> Interval:
    """Limits of the difference, exact in how it is made of the benchmarks' differences."""
    scores = [np.array([p.control_score for p in pairs]), np.array([p.score for p in pairs])]
    method = "MOVER of the benchmarks' paired intervals"
    if min(s.min() for s in scores) == 0:
        # No share of the difference belongs to one benchmark: the limits are those of two scores.
        first, second = (harmonic_interval(parts, baselines, level) for parts in (control, other))
        return Interval(second.low - first.high, second.high - first.low, method, level)
    values = [len(pairs) / (np.array(baselines) / s).sum() for s in scores]
    weight = values[0] * values[1] / len(pairs) * np.array(baselines) / (scores[0] * scores[1])
    middle = np.array([p.difference for p in pairs])
    intervals = [p.interval_at(level) for p in pairs]
    total = float((weight * middle).sum())
    below = weight * (middle - np.array([i.low for i in intervals]))
    above = weight * (np.array([i.high for i in intervals]) - middle)
    reach = [float(np.sqrt((side**2).sum())) for side in (below, above)]
    return Interval(total - reach[0], total + reach[1], method, level)


def _sign_flip(
    control: Sequence[ItemScores], other: Sequence[ItemScores], baselines: Sequence[float]
) -> float:
    """Two-sided p-value over 10 000 seeded draws, the observed pattern added."""
    generator = np.random.default_rng(SEED)
    inverse = np.zeros((2, DRAWS + 1))
    for a, b, baseline in zip(control, other, baselines, strict=True):
        before, change_C, items = _totals(a, b)
        flips_DC = generator.random((DRAWS, len(change_C))) < 0.5
        moved = np.concatenate(([0.0], flips_DC @ change_C))
        for side, total in enumerate((before + moved, before + change_C.sum() - moved)):
            with np.errstate(divide="ignore"):
                inverse[side] += baseline * items / np.where(total < TIE, 0.0, total)
    first, second = len(baselines) / inverse
    size = np.abs(second - first)
    above = (size > size[0] + TIE).sum() + (size >= size[0] - TIE).sum()
    return min(float(above / 2 + 0.5) / (DRAWS + 1), 1.0)


def _totals(control: ItemScores, other: ItemScores) -> tuple[float, Array, int]:
    """The control's sum of item means, the changes by cluster, and the items scored in both."""
    after = dict(zip(other.item_ids, other.item_means, strict=True))
    means = control.item_means
    change = np.array([after[item] for item in control.item_ids]) - means
    kept = ~np.isnan(change)
    clusters = None
    if control.clusters is not None:
        clusters = tuple(c for c, keep in zip(control.clusters, kept, strict=True) if keep)
    totals, _ = cluster_totals(change[kept], clusters)
    return float(means[kept].sum()), totals, int(kept.sum())


Part = tuple[ItemScores, float]
"""Scores on one benchmark, and how much the cell's value rises with their mean."""


@dataclass(frozen=True, slots=True)
class Average:
    """A mean over cells."""

    mean: float
    interval: Interval
    cells: int
    items: int
    """Different items in all."""


def average(
    cells: Sequence[Sequence[ItemScores]],
    baselines: Sequence[float] = (),
    weights: Sequence[float] = (),
) -> Average:
    """The mean value of cells, each given by its scores on one benchmark or on several.

    With `baselines` a cell's value is the harmonic mean of ratios, linearised at its scores; with
    `weights`, which sum to 1, the mean is a weighted one.
    """
    times = [weight * len(cells) for weight in weights] or [1.0] * len(cells)
    values = [n * value_of(parts, baselines) for n, parts in zip(times, cells, strict=True)]
    effects = [
        [{item: n * effect for item, effect in each.items()} for each in _effects(parts, baselines)]
        for n, parts in zip(times, cells, strict=True)
    ]
    bounds = (0.0, np.inf) if baselines else cells[0][0].bounds
    return _average(values, effects, cells, bounds)


def average_change(
    pairs: Sequence[tuple[Sequence[ItemScores], Sequence[ItemScores]]],
    baselines: Sequence[float] = (),
) -> Average:
    """The mean difference of (control, other) pairs of cells, other minus control."""
    values = [value_of(other, baselines) - value_of(control, baselines) for control, other in pairs]
    effects = [
        [
            _joined(after, before)
            for before, after in zip(
                _effects(control, baselines), _effects(other, baselines), strict=True
            )
        ]
        for control, other in pairs
    ]
    low, high = pairs[0][0][0].bounds
    width = np.inf if baselines else high - low
    return _average(values, effects, [other for _, other in pairs], (-width, width))


def value_of(parts: Sequence[ItemScores], baselines: Sequence[float] = ()) -> float:
    """One benchmark's score, or the harmonic mean of the ratios of several."""
    return harmonic_score(parts, baselines) if baselines else parts[0].mean


def _effects(parts: Sequence[ItemScores], baselines: Sequence[float]) -> list[dict[str, float]]:
    """By benchmark and item, what the item adds to its cell's value beyond the mean item."""
    weights = gradient(parts, baselines) if baselines else np.ones(1)
    found = []
    for part, weight in zip(parts, weights, strict=True):
        means = part.item_means
        scored = ~np.isnan(means)
        effect = weight * (means - means[scored].mean()) / scored.sum()
        found.append(
            {i: float(e) for i, e, keep in zip(part.item_ids, effect, scored, strict=True) if keep}
        )
    return found


def _joined(after: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    return {item: after.get(item, 0.0) - before.get(item, 0.0) for item in {**before, **after}}


def _average(
    values: Sequence[float],
    effects: Sequence[Sequence[Mapping[str, float]]],
    cells: Sequence[Sequence[ItemScores]],
    bounds: tuple[float, float],
) -> Average:
    """Limits per benchmark by Student's t over items, put together where there are several."""
    mean, items = float(np.mean(values)), 0
    below, above, methods = 0.0, 0.0, set()
    for benchmark in zip(*effects, strict=True):
        ids = sorted({item for effect in benchmark for item in effect})
        items += len(ids)
        total = np.sum([_column(e, ids) for e in benchmark], axis=0) * len(ids) / len(values)
        sources = _sources(cells, ids)
        wide = max(1.0, float(np.abs(total).max()))
        limits = difference_interval(total, sources, (-wide, wide))
        below, above = below + limits.low**2, above + limits.high**2
        methods.add(limits.method)
    low, high = max(mean - below**0.5, bounds[0]), min(mean + above**0.5, bounds[1])
    interval = Interval(float(low), float(high), ", ".join(sorted(methods)))
    return Average(mean, interval, len(values), items)


def _column(effect: Mapping[str, float], ids: Sequence[str]) -> Array:
    return np.array([effect.get(item, 0.0) for item in ids])


def _sources(cells: Sequence[Sequence[ItemScores]], ids: Sequence[str]) -> tuple[str, ...] | None:
    """The cluster of each item, where any cell's items have clusters."""
    known = {
        item: cluster
        for parts in cells
        for part in parts
        for item, cluster in zip(part.item_ids, part.clusters or (), strict=False)
    }
    return tuple(known.get(item, item) for item in ids) if known else None


BOOTSTRAP = "bootstrap over items within benchmarks"


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
    return Harmonic(value, Interval(*limits, BOOTSTRAP, level, share=False))


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
