"""Whether members of a group that have a mark are worth more than those of it that have none.

The unit is the group: the mean of its marked members minus that of the others, so that easy groups
do not pass for good marks. Groups of one cluster are not independent. The test exchanges marks
within groups (`mark_exchange`), and Student's interval is made to agree with it; p-values of a
family are Holm's, and a difference that is not shown comes with the clusters that would show one.
"""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from assay.judge.cluster_robust import LEVEL, ClusterMeans, difference_limits, item_mean
from assay.judge.families import holm
from assay.judge.intervals import Interval
from assay.judge.sample_size import Design, Variances, items_for
from assay.judge.scores import Array
from assay.judge.significance import agreeing
from assay.judge.verdict import ALPHA

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


FEWEST_CLUSTERS = 10
"""A mark with fewer clusters that hold both is not tested: Student's t of so few differences, most
of them equal, claims too much. No family grows by it."""
WANTED = 0.1
"""The difference, as a share of the scale, for which the needed clusters are given."""
ASSUMED = 0.25
"""Variance of a group's difference, on a scale of length 1, where too few clusters show it: that
of differences of half the scale."""

Side = Literal["better", "worse", "undecided"]
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a group."""

    value: float
    marked: bool
    group: str
    cluster: str


@dataclass(frozen=True, slots=True)
class Contrast:
    """Marked minus other members, within groups that hold both."""

    difference: float | None
    """None where no group holds both."""
    interval: Interval | None
    """At 95 %, for this contrast alone; it leaves out 0 where p is below 0.05."""
    p: float
    groups: int
    clusters: int
    variance: float
    """Of one cluster's difference, on a scale of length 1."""


@dataclass(frozen=True, slots=True)
class Effect:
    """A contrast judged within its family."""

    contrast: Contrast
    adjusted_p: float | None
    """None where there were too few clusters to test it."""
    verdict: Side
    needed: int | None
    """Further clusters at which a difference of WANTED shows with 80 % power; 0 where those that
    are there are enough, None for more than can be planned for."""


def contrast(members: Sequence[Member], bounds: tuple[float, float]) -> Contrast:
    """The contrast of values that lie within `bounds`."""
    groups: dict[str, list[Member]] = {}
    for member in members:
        groups.setdefault(member.group, []).append(member)
    both = [g for g in groups.values() if len({member.marked for member in g}) == 2]
    if not both:
        return Contrast(None, None, 1.0, 0, 0, ASSUMED)
    width = bounds[1] - bounds[0]
    differences_G = np.array([mean_of(g, True) - mean_of(g, False) for g in both])
    clusters = tuple(group[0].cluster for group in both)
    means = item_mean(differences_G, clusters, (-width, width))
    count = len(set(clusters))
    variance = float(means.standard_error) ** 2 * count / width**2
    if count < FEWEST_CLUSTERS or not variance:
        variance = max(variance, ASSUMED) if np.isfinite(variance) else ASSUMED
    marks = [([m.value / width for m in g], [m.marked for m in g]) for g in both]
    p = mark_exchange_test(marks, clusters)
    interval = agreeing(lambda level: _student(means, level), p)(LEVEL)
    return Contrast(float(means.mean), interval, p, len(both), count, variance)


def _student(means: ClusterMeans, level: float) -> Interval:
    low, high = (float(limit) for limit in difference_limits(means, level))
    return Interval(low, high, "cluster-robust t", level, share=False)


def mean_of(group: Sequence[Member], marked: bool) -> float:
    """The mean value of the members with or without the mark."""
    return float(np.mean([member.value for member in group if member.marked == marked]))


def judged_effects(contrasts: Mapping[Key, Contrast]) -> dict[Key, Effect]:
    """The effects of one family; contrasts of too few clusters are no part of it."""
    tested = [key for key, each in contrasts.items() if each.clusters >= FEWEST_CLUSTERS]
    adjusted = dict(zip(tested, holm([contrasts[key].p for key in tested]), strict=True))
    family = max(len(tested), 1)
    return {key: _judged(each, adjusted.get(key), family) for key, each in contrasts.items()}


def _judged(found: Contrast, adjusted_p: float | None, family: int) -> Effect:
    verdict: Side = "undecided"
    if adjusted_p is not None and adjusted_p < ALPHA and found.difference:
        verdict = "better" if found.difference > 0 else "worse"
    total = items_for(Variances(found.variance), Design(0, arms=family + 1), WANTED)
    needed = None if total is None else max(total - found.clusters, 0)
    return Effect(found, adjusted_p, verdict, needed)
