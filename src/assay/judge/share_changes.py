"""Tests whether a share changed between two sets of trials, and says how large a change would show.

Counts are compared as two binomials (`binomial`), samples by exchanging their prompts. Running
counts share their trials: what came later holds what came first, so that the trials before are
compared with the new ones alone. Words are elsewhere.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from assay.judge.binomial import compare_counts
from assay.judge.intervals import (
    LEVEL,
    Estimate,
    Interval,
    counted,
    independent_difference,
    mean_interval,
)
from assay.judge.power import detectable_from_interval
from assay.judge.scores import Array, cluster_totals
from assay.judge.significance import agreeing
from assay.judge.verdict import ALPHA

Direction = Literal["rise", "fall", "none"]
"""`none`: no change that these trials could detect."""
Bounds = tuple[float, float]
ROUNDING = 1e-12
IntervalOf = Callable[[Array, tuple[str, ...] | None, Bounds, float], Interval]


@dataclass(frozen=True, slots=True)
class Counts:
    """How often something happened among trials."""

    count: int
    trials: int


@dataclass(frozen=True, slots=True)
class Trials:
    """Values of trials that come in clusters, such as the completions of one prompt."""

    values: Sequence[float]
    clusters: Sequence[str]


@dataclass(frozen=True, slots=True)
class Change:
    """A value at two times, and whether it changed."""

    before: Estimate | None
    """None where there was no trial."""
    after: Estimate | None
    interval: Interval | None = None
    """Of after - before, at the level that is corrected for the family; None without trials."""
    detectable: float | None = None
    """The smallest change that these trials show with 80 % power; None where they show none."""
    direction: Direction = "none"


def new_counts(before: Counts, after: Counts) -> Counts | None:
    """The trials that came after `before` in running counts; None where a running count fell, or
    rose by more than its trials."""
    count, trials = after.count - before.count, after.trials - before.trials
    return Counts(count, trials) if 0 <= count <= trials else None


def change_of_counts(before: Counts, after: Counts, family: int = 1) -> Change:
    """Whether the share of counts changed, one of `family` comparisons (Bonferroni). Raises
    InputError for impossible counts."""
    ends = _share(before), _share(after)
    if not before.trials or not after.trials:
        return Change(*ends)
    found = compare_counts(before.count, before.trials, after.count, after.trials)
    interval, detectable = found.interval_at(1 - ALPHA / family), found.plan_at(ALPHA / family)[0]
    return Change(*ends, interval, detectable, direction_of(interval))


def _share(found: Counts) -> Estimate | None:
    return counted(found.count / found.trials, found.trials) if found.trials else None


def change_of_trials(
    before: Trials,
    after: Trials,
    bounds: Bounds = (0.0, 1.0),
    family: int = 1,
    around: IntervalOf = mean_interval,
) -> Change:
    """Whether the mean of values within `bounds` changed, one of `family` comparisons (Bonferroni).

    The two times are taken as independent; each cluster's trials are not. `around` makes the
    interval of a mean: `mean_interval` of shares, `difference_interval` (Student's t) of amounts.
    Up to MOST_EXCHANGED clusters the test is `exchange_test`, which sees rare things earlier than
    intervals that allow for what few clusters hide, and the interval is made to agree with it.
    """
    first, last = mean_of(before, bounds, around), mean_of(after, bounds, around)
    if first is None or last is None:
        return Change(first, last)
    step, level = (first.value, last.value), 1 - ALPHA / family

    def interval_at(level: float) -> Interval:
        one, two = (_around(trials, bounds, level, around) for trials in (before, after))
        return independent_difference(step[0], one, step[1], two)

    p = exchange_test(before, after)
    interval = (interval_at if p is None else agreeing(interval_at, p))(level)
    detectable = detectable_from_interval(interval.half_width, bounds[1] - bounds[0], level)
    return Change(first, last, interval, detectable, direction_of(interval))


MOST_EXCHANGED = 200
DRAWS = 9_999


def exchange_test(before: Trials, after: Trials) -> float | None:
    """Two-sided p-value of equal means where whole clusters are exchanged between the two times
    (Ernst 2004, Statistical Science 19:676); None for more than MOST_EXCHANGED clusters."""
    parts = [
        cluster_totals(np.asarray(each.values, np.float64), tuple(each.clusters))
        for each in (before, after)
    ]
    totals_C, sizes_C = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    first = len(parts[0][0])
    if len(totals_C) > MOST_EXCHANGED:
        return None
    observed = np.zeros((1, len(totals_C)))
    observed[0, :first] = 1
    drawn = _differences(_exchanged(first, len(totals_C)), totals_C, sizes_C)
    seen = abs(_differences(observed, totals_C, sizes_C)[0])
    return float((1 + (np.abs(drawn) >= seen - ROUNDING).sum()) / (1 + DRAWS))


def _differences(chosen_DC: Array, totals_C: Array, sizes_C: Array) -> Array:
    """D differences: the mean of the clusters that are not chosen minus that of the chosen."""
    totals_D, sizes_D = chosen_DC @ totals_C, chosen_DC @ sizes_C
    rest_D, left_D = totals_C.sum() - totals_D, sizes_C.sum() - sizes_D
    return rest_D / left_D - totals_D / sizes_D


@lru_cache(maxsize=4)
def _exchanged(first: int, clusters: int) -> Array:
    """DRAWS choices of `first` of the clusters, the same for the same arguments."""
    order = np.random.default_rng(0).random((DRAWS, clusters)).argsort(axis=1)
    return (order < first).astype(np.float64)


def mean_of(
    trials: Trials, bounds: Bounds = (0.0, 1.0), around: IntervalOf = mean_interval
) -> Estimate | None:
    """The mean with its 95 % interval; None without trials."""
    if not trials.values:
        return None
    clusters = len(set(trials.clusters))
    interval = _around(trials, bounds, LEVEL, around)
    return Estimate(float(np.mean(trials.values)), interval, len(trials.values), clusters)


def _around(trials: Trials, bounds: Bounds, level: float, around: IntervalOf) -> Interval:
    values = np.asarray(trials.values, np.float64)
    return around(values, tuple(trials.clusters), bounds, level)


def direction_of(interval: Interval) -> Direction:
    """The side of 0 on which an interval of a difference lies."""
    if interval.low > 0:
        return "rise"
    return "fall" if interval.high < 0 else "none"
