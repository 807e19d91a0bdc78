"""Compares two methods, each trained with several seeds; both seeds and items are sampled.

Two single runs compare checkpoints, not methods: that is `paired`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from assay.errors import InputError
from assay.judge.cluster_robust import cluster_means, item_mean
from assay.judge.intervals import LEVEL, Interval, quantile
from assay.judge.paired import check_same_items, fillings, unscored_shares
from assay.judge.power import Precision, planned, smallest_seen
from assay.judge.scores import Array, ItemScores, ScoreError, cluster_totals, on_shared_items
from assay.judge.verdict import Comparison, Figures


@dataclass(frozen=True, slots=True)
class CrossedError:
    """The standard error of a mean, or of a difference of two, and what it is made of."""

    items: float
    """Variance of the estimate by items; what is left counts in it."""
    seeds: float
    """Variance by seeds beyond what is left; 0 where the seeds differ by no more than that."""
    freedom: float
    """Degrees of freedom of Student's t."""

    @property
    def error(self) -> float:
        """The standard error."""
        return (self.items + self.seeds) ** 0.5


def crossed_error(
    arms: Sequence[Array], clusters: tuple[str, ...] | None, width: float
) -> CrossedError:
    """The error of the mean of one arm, or of the first arm's less the second's.

    Each arm is S x I item means, S >= 2 seeds that may differ from arm to arm over the same I
    items. `width` is the distance between the lowest and the highest score that an item can get.

    The moment estimator of the two-way layout (Cornfield and Tukey 1956, Annals of Mathematical
    Statistics 27:907): the variance of the items' means and that of the seeds' means each hold what
    is left once, so the variance of the residuals is taken off the seeds', which stay at or above
    0. Items of one cluster are summed first, with the leverage correction CR2 (Bell and McCaffrey
    2002, Survey Methodology 28:169). Degrees of freedom by Satterthwaite (1946, Biometrics Bulletin
    2:110), in which the seeds count with all of their mean square: a difference of mean squares is
    known as badly as its larger part. They count for nothing where they vary less than half of all
    samples of seeds would that do not differ.
    """
    signs = (1.0, -1.0)[: len(arms)]
    values_I = np.sum([sign * arm_SI.mean(0) for sign, arm_SI in zip(signs, arms, strict=True)], 0)
    items, freedom = _items(values_I, clusters, width)
    between = [float(arm_SI.mean(1).var(ddof=1)) / len(arm_SI) for arm_SI in arms]
    left = sum(left_over(arm_SI, clusters) for arm_SI in arms)
    degrees = [len(arm_SI) - 1 for arm_SI in arms]
    doubt = items**2 / freedom
    if sum(between) > left * float(special.chdtri(sum(degrees), 0.5)) / sum(degrees):
        doubt += sum(b**2 / f for b, f in zip(between, degrees, strict=True))
    seeds = max(sum(between) - left, 0.0)
    return CrossedError(items, seeds, (items + seeds) ** 2 / doubt)


def _items(values_I: Array, clusters: tuple[str, ...] | None, width: float) -> tuple[float, float]:
    """Variance of the mean of I values by the items drawn, and its degrees of freedom."""
    found = item_mean(values_I, clusters, (-width, width))
    variance = float(found.standard_error) ** 2 if found.clusters > 1 else 0.0
    if found.alike:
        # Next to nothing varied: at least what the score interval has with no exception among C.
        z = quantile(LEVEL)
        variance = max(variance, (z / (found.clusters + z**2) * width) ** 2)
    return variance, max(found.degrees, 1.0)


def left_over(arm_SI: Array, clusters: tuple[str, ...] | None) -> float:
    """Variance of an arm's mean by what neither its items nor its S >= 2 seeds explain."""
    residuals_SI = arm_SI - arm_SI.mean(0) - arm_SI.mean(1, keepdims=True) + arm_SI.mean()
    totals_CS, sizes_C = cluster_totals(residuals_SI.T, clusters)
    if len(sizes_C) == 1:
        return 0.0
    errors_S = cluster_means(totals_CS, sizes_C, (-np.inf, np.inf)).standard_error
    seeds = len(arm_SI)
    return float((errors_S**2).sum()) / (seeds * (seeds - 1))


def aligned(
    control: Sequence[ItemScores], other: Sequence[ItemScores]
) -> tuple[tuple[Array, Array], tuple[str, ...] | None]:
    """The S x I item means of control and other over the I items that every run has a score for,
    in one order, and their clusters.

    Raises ItemsDifferError when the runs were scored on different items, scales or clusters,
    InputError when no item has a score in all.
    """
    first = control[0]
    for run in (*control, *other):
        check_same_items(first, run)
    order = sorted(first.item_ids)
    means = [dict(zip(r.item_ids, r.item_means, strict=True)) for r in (*control, *other)]
    table = np.array([[run[item] for item in order] for run in means])
    scored = np.logical_not(np.isnan(table).any(0))
    if not scored.any():
        raise ScoreError("no item has a score in every run")
    clusters = None
    if first.clusters is not None:
        source = dict(zip(first.item_ids, first.clusters, strict=True))
        clusters = tuple(source[i] for i, keep in zip(order, scored, strict=True) if keep)
    return (table[: len(control), scored], table[len(control) :, scored]), clusters


@dataclass(frozen=True, slots=True)
class _Arms:
    """The item means of both arms, over the I items that every run has a score for."""

    control: Array
    """Control seeds x I."""
    other: Array
    """Other seeds x I."""
    clusters: tuple[str, ...] | None

    @property
    def differences(self) -> Array:
        """I differences between the means over seeds, other minus control."""
        return self.other.mean(0) - self.control.mean(0)


def compare_arms(control: Sequence[ItemScores], other: Sequence[ItemScores]) -> Comparison:
    """The runs of one arm against those of its control, all scored on the same items.

    Student's t with the standard error of `seed_variance.crossed_error`: items and seeds are both
    samples, and each source of variance counts once.

    Raises InputError when an arm has one run only or no item has a score in all, ItemsDifferError
    when the runs were scored on different items, scales or clusters.
    """
    asked = max(len(run.item_ids) for run in (*control, *other))
    shared = on_shared_items(*control, *other)
    control, other = shared[: len(control)], shared[len(control) :]
    arms = _align(control, other)
    differences = arms.differences
    found = _figures(control, other)
    lowest, highest = fillings(_figures, control, other)
    low, high = control[0].bounds
    crossed = crossed_error((arms.other, arms.control), arms.clusters, high - low)
    known = Precision(crossed.error, crossed.freedom, high - low)
    # More items do not help where seeds vary, so no number of items is promised.
    return planned(
        found,
        lambda alpha: (smallest_seen(known, alpha), None),
        "t over seeds and items",
        items=len(differences),
        gained=int((differences > 0).sum()),
        lost=int((differences < 0).sum()),
        unchanged=int((differences == 0).sum()),
        clusters=len(set(arms.clusters)) if control[0].clustered and arms.clusters else None,
        repeats=(control[0].repeats, other[0].repeats),
        unscored=len(control[0].item_ids) - len(differences),
        unscored_shares=unscored_shares(control, other),
        lowest=lowest,
        highest=highest,
        asked_of_one=asked - len(control[0].item_ids),
    )


def _figures(control: Sequence[ItemScores], other: Sequence[ItemScores]) -> Figures:
    """Test and interval of the difference between the means of the arms."""
    arms = _align(control, other)
    difference = float(arms.differences.mean())
    low, high = control[0].bounds
    found = crossed_error((arms.other, arms.control), arms.clusters, high - low)
    error, freedom = found.error, found.freedom

    def interval_at(level: float) -> Interval:
        reach = -float(special.stdtrit(freedom, 0.5 - level / 2)) * error
        low, high = difference - reach, difference + reach
        return Interval(low, high, "t over seeds and items", level)

    p_value = float(2 * special.stdtr(freedom, -abs(difference) / error))
    means = float(arms.control.mean()), float(arms.other.mean())
    return Figures(*means, difference, p_value, interval_at)


def arm_interval(runs: Sequence[ItemScores]) -> Interval:
    """The interval of the mean score of several seeds of one arm, seeds and items both sampled.

    Student's t as in `compare_arms`. Raises what `compare_arms` raises.
    """
    arms = _align(runs, runs)
    low, high = runs[0].bounds
    found = crossed_error((arms.control,), arms.clusters, high - low)
    reach = -float(special.stdtrit(found.freedom, 0.5 - LEVEL / 2)) * found.error
    mean = float(arms.control.mean())
    return Interval(max(mean - reach, low), min(mean + reach, high), "t over seeds and items")


def as_repeats(runs: Sequence[ItemScores]) -> ItemScores:
    """Runs on the same items as repeats of one, for statements about these runs alone.

    Raises ItemsDifferError when the items differ.
    """
    first = runs[0]
    if len(runs) == 1:
        return first
    columns = []
    for run in runs:
        check_same_items(first, run)
        place = {item: i for i, item in enumerate(run.item_ids)}
        columns.append(run.scores[[place[item] for item in first.item_ids]])
    return replace(first, scores=np.hstack(columns))


def _align(control: Sequence[ItemScores], other: Sequence[ItemScores]) -> _Arms:
    """Item means of every run in one order of items."""
    if min(len(control), len(other)) < 2:
        raise InputError(
            f"{len(control)} and {len(other)} runs: a method needs at least two seeds per arm",
            fix="compare single runs as checkpoints",
        )
    (control_SI, other_SI), clusters = aligned(control, other)
    return _Arms(control_SI, other_SI, clusters)
