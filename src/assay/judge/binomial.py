"""Compares two scores that came without their items, as two binomials.

For old logs and tables of others. The comparison states that pairing by item would be sharper. Then
changes of shares between two sets of trials: counts as two binomials, samples by exchanging their
prompts. Running counts share their trials: what came later holds what came first, so that the
trials before are compared with the new ones alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy import special

from assay.errors import InputError
from assay.judge.intervals import (
    LEVEL,
    Estimate,
    Interval,
    counted,
    independent_difference,
    mean_interval,
    quantile,
    wilson,
)
from assay.judge.power import POWER, binomial_mass, detectable_from_interval, least, planned
from assay.judge.scores import Array, cluster_totals
from assay.judge.significance import agreeing
from assay.judge.verdict import ALPHA, Comparison, Figures


def newcombe(
    control: float, control_items: int, successes: float, items: int, level: float = LEVEL
) -> Interval:
    """Hybrid score interval for successes / items - control / control_items.

    Newcombe 1998, Statistics in Medicine 17:873, method 10: the Wilson limits of both, squared and
    added.
    """
    before, after = control / control_items, successes / items
    first, second = wilson(control, control_items, level), wilson(successes, items, level)
    return replace(independent_difference(before, first, after, second), method="Newcombe")


def score_test(control: float, control_items: int, successes: float, items: int) -> float:
    """Two-sided p-value of the pooled score test of two proportions (Pearson's, uncorrected)."""
    pooled = (control + successes) / (control_items + items)
    variance = pooled * (1 - pooled) * (1 / control_items + 1 / items)
    if variance == 0:
        return 1.0
    z = (successes / items - control / control_items) / np.sqrt(variance)
    return float(2 * special.ndtr(-abs(z)))


def compare_counts(control: float, control_items: int, successes: float, items: int) -> Comparison:
    """A run against its control from counts alone. Successes may be fractional: means of repeats.

    Repeats must not be counted as further items. Raises InputError for impossible counts.
    """
    for count, among in ((control, control_items), (successes, items)):
        if not (among > 0 and 0 <= count <= among):
            raise InputError(
                f"{count:g} successes of {among} items", fix="give counts, not percentages"
            )
    before, after = control / control_items, successes / items
    p_value = score_test(control, control_items, successes, items)
    interval_at = agreeing(
        lambda level: newcombe(control, control_items, successes, items, level), p_value
    )

    def plan_at(alpha: float) -> tuple[float | None, int | None]:
        needed = unpaired_items_needed(before, after, alpha=alpha)
        return unpaired_detectable(before, control_items, items, alpha), needed

    return planned(
        Figures(before, after, after - before, p_value, interval_at),
        plan_at,
        method="two binomials without items: score test, Newcombe interval",
        items=min(control_items, items),
    )


EXACT_TABLES = 100_000
"""Tables of two counts up to which the power of the score test is summed over all of them."""


@lru_cache(maxsize=1024)
def unpaired_detectable(
    control: float, control_items: int, items: int, alpha: float = ALPHA
) -> float | None:
    """Smallest difference to the chance `control` seen with 80 % power; None where none is.

    Toward the middle of the scale, where a difference is hardest to see.
    """
    toward, most = (1, 1 - control) if control < 0.5 else (-1, control)
    sees = _exact_power if (control_items + 1) * (items + 1) <= EXACT_TABLES else _normal_power

    def seen(difference: float) -> bool:
        chances = control, control + toward * difference
        return sees(chances, (control_items, items), alpha) >= POWER

    if not seen(most):
        return None
    return least(seen, 0.0, most)


def _exact_power(chances: tuple[float, float], items: tuple[int, int], alpha: float) -> float:
    """Chance that the score test rejects, summed over all tables."""
    before, after = (
        binomial_mass(np.arange(n + 1.0), n, float(np.clip(chance, 0, 1)))
        for chance, n in zip(chances, items, strict=True)
    )
    return float(before @ _rejected(*items, alpha) @ after)


@lru_cache(maxsize=64)
def _rejected(control_items: int, items: int, alpha: float) -> Array:
    """1 where the score test rejects, for every pair of counts."""
    before, after = np.arange(control_items + 1.0)[:, None], np.arange(items + 1.0)
    pooled = (before + after) / (control_items + items)
    variance = pooled * (1 - pooled) * (1 / control_items + 1 / items)
    distance = np.abs(after / items - before / control_items)
    return (distance > quantile(1 - alpha) * np.sqrt(variance)).astype(np.float64)


def _normal_power(chances: tuple[float, float], items: tuple[int, int], alpha: float) -> float:
    """The same in the normal approximation."""
    before, after = chances
    pooled = (before * items[0] + after * items[1]) / sum(items)
    null = pooled * (1 - pooled) * (1 / items[0] + 1 / items[1])
    error = np.sqrt(before * (1 - before) / items[0] + after * (1 - after) / items[1])
    if error == 0:
        return float(before != after)
    beyond = abs(after - before) - quantile(1 - alpha) * np.sqrt(null)
    return float(special.ndtr(beyond / error))


def unpaired_items_needed(
    control: float, score: float, power: float = POWER, alpha: float = ALPHA
) -> int | None:
    """Items per run that are needed to separate two independent proportions; None when equal.

    Fleiss, Levin and Paik 2003, Statistical Methods for Rates and Proportions, 4.14.
    """
    if control == score:
        return None
    middle = (control + score) / 2
    spread = control * (1 - control) + score * (1 - score)
    z = quantile(1 - alpha) * np.sqrt(2 * middle * (1 - middle))
    z += float(special.ndtri(power)) * np.sqrt(spread)
    return int(np.ceil((z / (score - control)) ** 2))


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
class ValueChange:
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


def change_of_counts(before: Counts, after: Counts, family: int = 1) -> ValueChange:
    """Whether the share of counts changed, one of `family` comparisons (Bonferroni). Raises
    InputError for impossible counts."""
    ends = _share(before), _share(after)
    if not before.trials or not after.trials:
        return ValueChange(*ends)
    change = compare_counts(before.count, before.trials, after.count, after.trials)
    interval, detectable = change.interval_at(1 - ALPHA / family), change.plan_at(ALPHA / family)[0]
    return ValueChange(*ends, interval, detectable, direction_of(interval))


def _share(counts: Counts) -> Estimate | None:
    return counted(counts.count / counts.trials, counts.trials) if counts.trials else None


def change_of_trials(
    before: Trials,
    after: Trials,
    bounds: Bounds = (0.0, 1.0),
    family: int = 1,
    around: IntervalOf = mean_interval,
) -> ValueChange:
    """Whether the mean of values within `bounds` changed, one of `family` comparisons (Bonferroni).

    The two times are taken as independent; each cluster's trials are not. `around` makes the
    interval of a mean: `mean_interval` of shares, `difference_interval` (Student's t) of amounts.
    Up to MOST_EXCHANGED clusters the test is `exchange_test`, which sees rare things earlier than
    intervals that allow for what few clusters hide, and the interval is made to agree with it.
    """
    first, last = mean_of(before, bounds, around), mean_of(after, bounds, around)
    if first is None or last is None:
        return ValueChange(first, last)
    step, level = (first.value, last.value), 1 - ALPHA / family

    def interval_at(level: float) -> Interval:
        one, two = (_around(trials, bounds, level, around) for trials in (before, after))
        return independent_difference(step[0], one, step[1], two)

    p = exchange_test(before, after)
    interval = (interval_at if p is None else agreeing(interval_at, p))(level)
    detectable = detectable_from_interval(interval.half_width, bounds[1] - bounds[0], level)
    return ValueChange(first, last, interval, detectable, direction_of(interval))


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
