"""Whether members of a group that have a mark are worth more than those of it that have none.

The unit is the group: the mean of its marked members minus that of the others, so that easy groups
do not pass for good marks. Groups of one cluster are not independent. The test exchanges marks
within groups (`mark_exchange`), and Student's interval is made to agree with it; p-values of a
family are Holm's, and a difference that is not shown comes with the clusters that would show one.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np

from assay.judge.cluster_robust import LEVEL, ClusterMeans, difference_limits, item_mean
from assay.judge.families import holm
from assay.judge.intervals import Interval
from assay.judge.mark_exchange import mark_exchange_test
from assay.judge.sample_size import Design, Variances, items_for
from assay.judge.significance import agreeing
from assay.judge.verdict import ALPHA

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
