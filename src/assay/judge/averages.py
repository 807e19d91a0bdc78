"""Averages over the cells of a table, with intervals that know which items the cells share.

A cell is one score or a harmonic mean of several. Cells measured on the same or on nested items are
not independent: every item counts once, with what it adds to all cells that hold it. Training seeds
are not sampled here: the figures speak of the runs that are there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from assay.judge.harmonic import gradient, harmonic_score
from assay.judge.intervals import Interval, difference_interval
from assay.judge.scores import Array, ItemScores

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


def average(cells: Sequence[Sequence[ItemScores]], baselines: Sequence[float] = ()) -> Average:
    """The mean value of cells, each given by its scores on one benchmark or on several.

    With `baselines` a cell's value is the harmonic mean of ratios, linearised at its scores.
    """
    values = [value_of(parts, baselines) for parts in cells]
    effects = [_effects(parts, baselines) for parts in cells]
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
