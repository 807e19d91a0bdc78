"""Scores of one checkpoint on the items of one benchmark, and the ways they cannot be used.

Holds and arranges scores. No interval, test or verdict is computed here, and nothing is read from
disk: the lab turns its records into `ItemScores`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from assay.errors import InputError

Array = NDArray[np.float64]
ITEMS = "items"
"""The field of an error about two sets of scores that do not belong to the same items."""


@dataclass(frozen=True, eq=False)
class ItemScores:
    """I items scored R times each. The array is copied and made read-only.

    Raises InputError when the shapes disagree, an id occurs twice, no score is present, or a score
    lies outside `bounds`.
    """

    item_ids: tuple[str, ...]
    scores: Array
    """I x R; NaN where the checker abstained or the repeat was not run."""
    clusters: tuple[str, ...] | None = None
    """The source that each of the I items came from; items of one source are not independent."""
    bounds: tuple[float, float] = (0.0, 1.0)
    """Lowest and highest score that an item can get."""
    part: bool = False
    """Whether these are items drawn from a longer list before anything was measured, so that they
    stand for all of it."""

    def __post_init__(self) -> None:
        scores = np.array(self.scores, dtype=np.float64)
        if scores.ndim != 2 or scores.shape[0] != len(self.item_ids):
            raise InputError(
                f"scores of shape {scores.shape} for {len(self.item_ids)} items",
                fix="give an array of items x repeats",
            )
        if len(set(self.item_ids)) != len(self.item_ids):
            raise InputError("an item id occurs twice", field="item_ids")
        if self.clusters is not None and len(self.clusters) != len(self.item_ids):
            raise InputError(
                f"{len(self.clusters)} clusters for {len(self.item_ids)} items", field="clusters"
            )
        present = scores[~np.isnan(scores)]
        if present.size == 0:
            raise InputError("no item has a score", fix="every answer abstained or none was run")
        low, high = self.bounds
        if present.min() < low or present.max() > high:
            raise InputError(
                f"scores {present.min():g} to {present.max():g} lie outside {low:g} to {high:g}",
                fix="state the benchmark's own bounds; a percentage is not a score",
            )
        scores.setflags(write=False)
        object.__setattr__(self, "scores", scores)

    @property
    def repeats(self) -> int:
        """R, the number of passes over the items."""
        return self.scores.shape[1]

    @property
    def binary(self) -> bool:
        """Whether every score present is 0 or 1, on a scale from 0 to 1."""
        present = self.scores[~np.isnan(self.scores)]
        return self.bounds == (0.0, 1.0) and bool(np.isin(present, (0.0, 1.0)).all())

    @property
    def clustered(self) -> bool:
        """Whether some items share a source."""
        return self.clusters is not None and len(set(self.clusters)) < len(self.clusters)

    @property
    def sources(self) -> int | None:
        """Number of clusters of the items that have a score, where items share some."""
        if self.clusters is None or not self.clustered:
            return None
        scored = ~np.isnan(self.item_means)
        return len({c for c, keep in zip(self.clusters, scored, strict=True) if keep})

    @property
    def missing(self) -> int:
        """Number of answers without a score, of I x R."""
        return int(np.isnan(self.scores).sum())

    @property
    def changed_between_repeats(self) -> int:
        """Number of items whose score differs between repeats."""
        return int((np.fmax.reduce(self.scores, 1) > np.fmin.reduce(self.scores, 1)).sum())

    @property
    def item_means(self) -> Array:
        """I means over the repeats that have a score; NaN where an item has none."""
        counts = (~np.isnan(self.scores)).sum(1)
        totals = np.nansum(self.scores, 1)
        return np.where(counts > 0, totals / np.maximum(counts, 1), np.nan)

    @property
    def mean(self) -> float:
        """The score: the mean over the items that have one of the mean over their repeats."""
        return float(np.nanmean(self.item_means))


def item_scores(
    records: Iterable[tuple[str, int, float | None]],
    clusters: Mapping[str, str] | None = None,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> ItemScores:
    """Scores from records of (item id, repeat, score or None for an abstention), in any order.

    Items keep the order of their first record. `clusters` maps each item id to its source.
    Raises InputError when an item has two records for one repeat.
    """
    rows: dict[str, dict[int, float]] = {}
    for item, repeat, score in records:
        row = rows.setdefault(item, {})
        if repeat in row:
            raise InputError(f"item {item!r} has two records for repeat {repeat}")
        row[repeat] = np.nan if score is None else score
    repeats = sorted({repeat for row in rows.values() for repeat in row})
    table = [[row.get(repeat, np.nan) for repeat in repeats] for row in rows.values()]
    sources = None if clusters is None else tuple(clusters[item] for item in rows)
    return ItemScores(
        tuple(rows), np.array(table).reshape(len(rows), len(repeats)), sources, bounds
    )


def on_one_scale(*scores: ItemScores) -> tuple[ItemScores, ...]:
    """All on the widest scale that any has: bounds read off scores differ from run to run.

    Clusters that only some of them know are the others' as well, where the items are the same.
    """
    lows, highs = zip(*(each.bounds for each in scores), strict=True)
    bounds = (min(lows), max(highs))
    known = next((each for each in scores if each.clusters is not None), None)
    sources = dict(zip(known.item_ids, known.clusters or (), strict=True)) if known else {}
    scaled = []
    for each in scores:
        clusters = each.clusters
        if not clusters and sources.keys() >= set(each.item_ids):
            clusters = tuple(sources[item] for item in each.item_ids)
        same = (each.bounds, each.clusters) == (bounds, clusters)
        scaled.append(each if same else replace(each, bounds=bounds, clusters=clusters))
    return tuple(scaled)


def on_shared_items(*scores: ItemScores) -> tuple[ItemScores, ...]:
    """All on the items of the shortest part, where some were measured on a part of the items.

    Whether an item belongs to a part follows from its id alone, so that what is left out says
    nothing about the scores. Raises InputError where a part holds items that others lack.
    """
    if not any(each.part for each in scores):
        return scores
    shared = frozenset.intersection(*(frozenset(each.item_ids) for each in scores))
    shortest = min(len(each.item_ids) for each in scores)
    if len(shared) < shortest:
        problem = f"of {shortest} items that were drawn, the runs share {len(shared)}"
        fix = "evaluate both on the same items, or on parts of them"
        raise InputError(problem, field=ITEMS, fix=fix)
    return tuple(restricted(each, shared) for each in scores)


def restricted(scores: ItemScores, items: frozenset[str]) -> ItemScores:
    """The scores of these items alone."""
    places = [place for place, item in enumerate(scores.item_ids) if item in items]
    clusters = scores.clusters
    return replace(
        scores,
        item_ids=tuple(scores.item_ids[place] for place in places),
        scores=scores.scores[places],
        clusters=clusters if clusters is None else tuple(clusters[place] for place in places),
    )


def cluster_totals(values_I: Array, clusters: tuple[str, ...] | None) -> tuple[Array, Array]:
    """Sum and number of items per cluster: two arrays of C, in the order of the cluster names.

    Without clusters every item is its own. `values_I` may carry a trailing axis of data sets.
    """
    if clusters is None:
        return values_I, np.ones(len(values_I))
    _, cluster_I = np.unique(np.array(clusters), return_inverse=True)
    sizes_C = np.bincount(cluster_I).astype(np.float64)
    totals_C = np.zeros((len(sizes_C), *values_I.shape[1:]))
    np.add.at(totals_C, cluster_I, values_I)
    return totals_C, sizes_C
