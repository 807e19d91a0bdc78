"""A test of marks by exchanging them within groups, for values that no normal curve describes.

Student's t of differences within groups claims too much where most members have one value and few
have the mark: the differences are then lopsided, and their mean is large where their scatter is
small. If a mark says nothing, each group's marks might as well lie on other members of it.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from assay.judge.scores import Array

DRAWS = 19_999
"""A p-value is 1/10 000 at least, so that a family of hundreds can still be shown."""
FIRST_DRAWS = 999
CLEARLY_NONE = 0.2
"""A p-value above it after the first draws is not drawn further. This only ever keeps a rejection
from being made, and spares most marks most of the time."""
MOST_CHOICES = 4096
"""Of so many members of a group; where there are more, so many are drawn at random."""
BATCH = 2000
SEED = 20_261_124
SMALLEST = 1e-12
"""Scatter, and differences of statistics, that are rounding."""

Group = tuple[Sequence[float], Sequence[bool]]
"""The values of its members, and which of them are marked."""
Tables = list[tuple[NDArray[np.int_], Array]]
"""Groups of one size and number of marks: their places, and G x M differences."""


def mark_exchange_test(groups: Sequence[Group], clusters: Sequence[str]) -> float:
    """Two-sided p-value of the mean over groups of marked minus other members; groups hold both.

    The statistic is the mean over its cluster-robust standard error, so that marks that are worth
    something here and the opposite there, by cluster, do not pass for worth something on the whole
    (Chung and Romano 2013, Annals of Statistics 41:484). Twice the smaller tail: the lopsided
    statistic has a longer one on the side of little scatter. The observed marks count as a draw
    (Phipson and Smyth 2010). Groups of equal values are the same under every exchange.
    """
    order = np.argsort(np.asarray(clusters), kind="stable")
    ordered = [groups[place] for place in order]
    named, starts, sizes_C = np.unique(
        np.asarray(clusters)[order], return_index=True, return_counts=True
    )
    observed_1G = np.array([[_difference(group) for group in ordered]])
    if len(named) == 1:
        return 1.0
    seen = float(_statistics(observed_1G, starts, sizes_C)[0])
    tables = _tables(ordered)
    if not tables:
        return 1.0
    draw = np.random.default_rng(SEED)
    above = below = made = 0
    p = 1.0
    while made < DRAWS:
        count = FIRST_DRAWS if not made else min(BATCH, DRAWS - made)
        drawn_D = _statistics(_drawn(tables, len(groups), count, draw), starts, sizes_C)
        above += int((drawn_D >= seen - SMALLEST).sum())
        below += int((drawn_D <= seen + SMALLEST).sum())
        made += count
        p = min(2 * (1 + min(above, below)) / (1 + made), 1.0)
        if made == FIRST_DRAWS and p > CLEARLY_NONE:
            break
    return p


def _difference(group: Group) -> float:
    values, marks = np.asarray(group[0], np.float64), np.asarray(group[1], np.bool_)
    return float(values[marks].mean() - values[~marks].mean())


def _statistics(
    differences_DG: Array, starts: NDArray[np.int_], sizes_C: NDArray[np.int_]
) -> Array:
    """The mean over its scatter, by a factor that all draws share; groups are in the order of
    their clusters, which begin at `starts`."""
    totals_DC = np.add.reduceat(differences_DG, starts, axis=1)
    means_D = totals_DC.sum(1) / differences_DG.shape[1]
    scatter_D = ((totals_DC - means_D[:, None] * sizes_C) ** 2).sum(1)
    # Rounded, because sums of one thing in another order must be ties.
    return np.round(means_D / np.sqrt(np.maximum(scatter_D, SMALLEST)), 9)


def _tables(groups: Sequence[Group]) -> Tables:
    """The differences that exchanges make of the groups whose values differ."""
    alike: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for place, (values, marks) in enumerate(groups):
        if max(values) - min(values) > SMALLEST:
            alike[len(marks), sum(marks)].append(place)
    found: Tables = []
    for (size, marked), places in alike.items():
        values_GN = np.array([groups[place][0] for place in places], np.float64)
        sums_GM = values_GN @ _choices(size, marked).T
        rest_GM = values_GN.sum(1, keepdims=True) - sums_GM
        found.append((np.array(places), sums_GM / marked - rest_GM / (size - marked)))
    return found


@lru_cache(maxsize=256)
def _choices(size: int, marked: int) -> Array:
    """M x N: choices of `marked` of `size` members, all of them or MOST_CHOICES at random."""
    if comb(size, marked) <= MOST_CHOICES:
        chosen = np.array(list(combinations(range(size), marked)))
    else:
        order = np.random.default_rng(SEED).random((MOST_CHOICES, size))
        chosen = order.argsort(axis=1)[:, :marked]
    choices_MN = np.zeros((len(chosen), size))
    np.put_along_axis(choices_MN, chosen, 1.0, axis=1)
    return choices_MN


def _drawn(tables: Tables, groups: int, count: int, draw: np.random.Generator) -> Array:
    """`count` x `groups` differences, each group's marks laid on any of its members."""
    differences_DG = np.zeros((count, groups))
    for places, table_GM in tables:
        chosen_DG = draw.integers(table_GM.shape[1], size=(count, len(places)))
        differences_DG[:, places] = table_GM[np.arange(len(places)), chosen_DG]
    return differences_DG
