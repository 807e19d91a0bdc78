"""Compares two runs item by item, and bounds what answers without a score could change.

Chooses the test and interval that fit the scores and fills one `Comparison`. Leaving failures
unscored raises a score, so each missing score is also put at either end of its scale: the worst
case for the difference and for the tests by counts and by signs. `verdict` decides from these
figures, `confounds` whether the runs may be compared.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from assay.errors import InputError
from assay.judge.cluster_robust import item_mean, p_value, tied_share
from assay.judge.intervals import LEVEL, Interval, difference_interval, tango
from assay.judge.power import (
    DesignPrecision,
    items_needed,
    minimum_detectable_difference,
    smallest_seen,
    times_needed,
)
from assay.judge.scores import ITEMS, Array, ItemScores, cluster_totals, on_shared_items
from assay.judge.significance import agreeing, mid_p_mcnemar
from assay.judge.verdict import (
    ALPHA,
    MARGIN,
    Comparison,
    Figures,
    Filled,
    IntervalAt,
    PlanAt,
    filled,
    judged,
)

Runs = Sequence[ItemScores]


def with_missing_at(scores: ItemScores, value: float) -> ItemScores:
    """The scores with `value` for every answer that has none; answers that have one keep it."""
    if not scores.missing:
        return scores
    return replace(scores, scores=np.where(np.isnan(scores.scores), value, scores.scores))


def score_range(scores: ItemScores) -> tuple[float, float]:
    """The lowest and the highest score that the missing answers leave possible."""
    low, high = (with_missing_at(scores, end).mean for end in scores.bounds)
    return low, high


def fillings(
    figures: Callable[[Runs, Runs], Figures], control: Runs, other: Runs
) -> tuple[Filled | None, Filled | None]:
    """`figures` of (control, other) where the missing scores are least and most in favour of
    `other`: its own at the lower end and the control's at the upper, and the other way round.

    Two times None where no answer lacks a score.
    """
    if not any(run.missing for run in (*control, *other)):
        return None, None
    ends = [(_at(control, 1), _at(other, 0)), (_at(control, 0), _at(other, 1))]
    lowest, highest = (filled(figures(*runs)) for runs in ends)
    return lowest, highest


def unscored_shares(control: Runs, other: Runs) -> tuple[float, float]:
    """Share of the answers without a score, in the control and in the other."""
    first, second = (
        sum(run.missing for run in runs) / sum(run.scores.size for run in runs)
        for runs in (control, other)
    )
    return first, second


def _at(runs: Runs, end: int) -> list[ItemScores]:
    return [with_missing_at(run, run.bounds[end]) for run in runs]


ROUNDING = 1e-12
"""Mean differences up to this count as 0: thirds that cancel leave 1e-17."""
COUNTS = "mid-p McNemar, Tango interval"
MEANS = "cluster-robust t (CR2) of the mean difference"
FEWEST = 5
"""With fewer independent items than this no plan is given."""
SKEWED_UNITS, SKEWNESS = 50, 1.0
"""A t test is unreliable with at most this many independent items and more than this skewness."""


@dataclass(frozen=True, slots=True)
class _Pairs:
    """The I items scored in both runs, in the order of their ids."""

    control: Array
    """I item means of the control."""
    other: Array
    """I item means of the other run."""
    clusters: tuple[str, ...] | None

    @property
    def differences(self) -> Array:
        """I differences, other minus control."""
        return self.other - self.control

    @property
    def difference(self) -> float:
        """The mean difference; what rounding leaves where means over repeats cancel is 0.

        Of the differences, not the difference of rounded means, so that swapping is exact.
        """
        mean = float(self.differences.mean())
        return mean if abs(mean) > ROUNDING else 0.0

    @property
    def totals(self) -> Array:
        """C sums of the differences by cluster."""
        return cluster_totals(self.differences, self.clusters)[0]


def compare(control: ItemScores, other: ItemScores, margin: float = MARGIN) -> Comparison:
    """`other` against `control`, paired by item id; differences are other minus control.

    Independent single-pass 0/1 items: mid-p McNemar and Tango's interval. Anything else: Student's
    t of the item means over repeats, robust to clusters. At every level the interval leaves out 0
    exactly where the test rejects.

    Where one was measured on a part of the items, both are compared on that part.

    Raises InputError when the runs were scored on different items, scales or clusters, and when no
    item has a score in both.
    """
    item_count = max(len(control.item_ids), len(other.item_ids))
    control, other = on_shared_items(control, other)
    pairs, counts = _pair(control, other), _by_counts(control, other)
    estimate = figures(control, other)
    lowest, highest = fillings(lambda one, two: figures(one[0], two[0]), [control], [other])
    plan_at = _plan_of_counts(pairs) if counts else _plan_of_means(pairs, control.bounds)
    detectable, needed = plan_at(ALPHA)
    differences = pairs.differences
    compared = Comparison(
        control_score=estimate.control_score,
        score=estimate.score,
        difference=estimate.difference,
        interval=estimate.interval_at(LEVEL),
        p_value=estimate.p_value,
        adjusted_p=estimate.p_value,
        method=COUNTS if counts else MEANS,
        items=len(differences),
        verdict="undecided",
        margin=margin,
        minimum_detectable_difference=detectable,
        items_needed=needed,
        interval_at=estimate.interval_at,
        plan_at=plan_at,
        gained=int((differences > 0).sum()),
        lost=int((differences < 0).sum()),
        unchanged=int((differences == 0).sum()),
        clusters=len(set(pairs.clusters)) if control.clustered and pairs.clusters else None,
        repeats=(control.repeats, other.repeats),
        changed_between_repeats=(control.changed_between_repeats, other.changed_between_repeats),
        unscored=len(control.item_ids) - len(differences),
        unscored_shares=unscored_shares([control], [other]),
        lowest=lowest,
        highest=highest,
        skewed=not counts and _skewed(pairs),
        control_only=item_count - len(control.item_ids),
    )
    return judged(compared)


def figures(control: ItemScores, other: ItemScores) -> Figures:
    """What the test and the interval that fit the scores find of the items scored in both.

    Raises what `compare` raises.
    """
    pairs = _pair(control, other)
    counts = _by_counts(control, other)
    p, interval_at = _counted(pairs) if counts else _by_means(pairs, control.bounds)
    means = float(pairs.control.mean()), float(pairs.other.mean())
    return Figures(*means, pairs.difference, p, interval_at)


def _by_counts(control: ItemScores, other: ItemScores) -> bool:
    """Whether every item is one answer of its own, right or wrong."""
    return all(s.binary and s.repeats == 1 and not s.clustered for s in (control, other))


def _pair(control: ItemScores, other: ItemScores) -> _Pairs:
    """Align the two runs by item id and drop items that one of them has no score for."""
    check_same_items(control, other)
    place = {item: i for i, item in enumerate(other.item_ids)}
    # By id, so that rounding does not depend on the order in which items were recorded.
    order = sorted(range(len(control.item_ids)), key=lambda i: control.item_ids[i])
    means_control = control.item_means[order]
    means_other = other.item_means[[place[control.item_ids[i]] for i in order]]
    scored = ~(np.isnan(means_control) | np.isnan(means_other))
    if not scored.any():
        raise InputError("no item has a score in both runs")
    clusters = None
    if control.clusters is not None:
        clusters = tuple(control.clusters[i] for i, keep in zip(order, scored, strict=True) if keep)
    return _Pairs(means_control[scored], means_other[scored], clusters)


def check_same_items(control: ItemScores, other: ItemScores) -> None:
    """Refuse runs whose items, scale or clusters are not the same. Raises InputError."""
    only_control = set(control.item_ids) - set(other.item_ids)
    only_other = set(other.item_ids) - set(control.item_ids)
    if only_control or only_other:
        example = min(only_control or only_other)
        raise InputError(
            f"the runs were scored on different items: {len(only_control)} only in the control, "
            f"{len(only_other)} only in the other, {example!r} for one",
            field=ITEMS,
            fix="evaluate both on the same items",
        )
    if control.bounds != other.bounds:
        problem = f"the scores run over {control.bounds} and {other.bounds}"
        raise InputError(problem, field=ITEMS)
    sources = [dict(zip(s.item_ids, s.clusters or (), strict=False)) for s in (control, other)]
    if sources[0] != sources[1]:
        problem = "the runs group the same items into different clusters"
        raise InputError(problem, field=ITEMS)


def _counted(pairs: _Pairs) -> tuple[float, IntervalAt]:
    """Mid-p McNemar and Tango's interval."""
    gained, lost = _flips(pairs)
    items, p = len(pairs.control), float(mid_p_mcnemar(gained, lost))
    return p, agreeing(lambda level: tango(gained, lost, items, level), p)


def _by_means(pairs: _Pairs, bounds: tuple[float, float]) -> tuple[float, IntervalAt]:
    """Student's t of the mean difference, robust to clusters: test and interval are one."""
    differences, width = pairs.differences, bounds[1] - bounds[0]
    ends = -width, width

    def interval_at(level: float) -> Interval:
        return difference_interval(differences, pairs.clusters, ends, level)

    p = float(p_value(item_mean(differences, pairs.clusters, ends)))
    return p, agreeing(interval_at, p)


def _plan_of_counts(pairs: _Pairs) -> PlanAt:
    """The least detectable difference, and the items that the observed one needs, at any alpha."""
    items = len(pairs.control)
    gained, lost = _flips(pairs)

    def plan_at(alpha: float) -> tuple[float | None, int | None]:
        discordance = (gained + lost) / items
        needed = items_needed(discordance, abs(gained - lost) / items, alpha=alpha)
        return minimum_detectable_difference(items, discordance, alpha=alpha), needed

    return plan_at


def _plan_of_means(pairs: _Pairs, bounds: tuple[float, float]) -> PlanAt:
    """The same for the t test."""
    units, width = len(pairs.totals), bounds[1] - bounds[0]
    if units < FEWEST:
        return lambda _: (None, None)
    means = item_mean(pairs.differences, pairs.clusters, (-width, width))
    tied = tied_share(pairs.differences, pairs.clusters)
    known = DesignPrecision(float(means.standard_error), means.degrees, width, units, tied)

    def plan_at(alpha: float) -> tuple[float | None, int | None]:
        times = times_needed(known, abs(pairs.difference), alpha)
        needed = None if times is None else int(np.ceil(len(pairs.differences) * times))
        return smallest_seen(known, alpha), needed

    return plan_at


def _flips(pairs: _Pairs) -> tuple[int, int]:
    """Items on which the other run scored higher, and lower."""
    return int((pairs.differences > 0).sum()), int((pairs.differences < 0).sum())


def _skewed(pairs: _Pairs) -> bool:
    """Whether SKEWED_UNITS independent items or fewer differ with a skewness beyond SKEWNESS."""
    totals = pairs.totals
    spread = float(totals.std())
    if len(totals) > SKEWED_UNITS or spread < ROUNDING:
        return False
    return abs(float(((totals - totals.mean()) ** 3).mean()) / spread**3) > SKEWNESS
