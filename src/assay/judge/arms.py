"""Compares two methods, each trained with several seeds; both seeds and items are sampled.

Two single runs compare checkpoints, not methods: that is `paired`. Then mean@n and pass@k of
answers that were sampled several times: means over items of one value per item, so that items and
clusters are what varies, and of several arms the seeds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import comb

import numpy as np
from scipy import special

from assay.errors import InputError
from assay.judge.cluster_robust import cluster_means, item_mean
from assay.judge.intervals import LEVEL, Interval, quantile, score_interval
from assay.judge.paired import (
    check_same_items,
    fillings,
    score_range,
    unscored_shares,
    with_missing_at,
)
from assay.judge.power import DesignPrecision, planned, smallest_seen
from assay.judge.scores import Array, ItemScores, cluster_totals, on_shared_items
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
    estimate = item_mean(values_I, clusters, (-width, width))
    variance = float(estimate.standard_error) ** 2 if estimate.clusters > 1 else 0.0
    if estimate.alike:
        # Next to nothing varied: at least what the score interval has with no exception among C.
        z = quantile(LEVEL)
        variance = max(variance, (z / (estimate.clusters + z**2) * width) ** 2)
    return variance, max(estimate.degrees, 1.0)


def left_over(arm_SI: Array, clusters: tuple[str, ...] | None) -> float:
    """Variance of an arm's mean by what neither its items nor its S >= 2 seeds explain."""
    residuals_SI = arm_SI - arm_SI.mean(0) - arm_SI.mean(1, keepdims=True) + arm_SI.mean()
    totals_CS, sizes_C = cluster_totals(residuals_SI.T, clusters)
    if len(sizes_C) == 1:
        return 0.0
    errors_S = cluster_means(totals_CS, sizes_C, (-np.inf, np.inf)).standard_error
    seeds = len(arm_SI)
    return float((errors_S**2).sum()) / (seeds * (seeds - 1))


@dataclass(frozen=True, slots=True)
class Arms:
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


def aligned(control: Sequence[ItemScores], other: Sequence[ItemScores]) -> Arms:
    """The item means of every run in one order of items.

    Raises InputError when the runs were scored on different items, scales or clusters, and when no
    item has a score in all.
    """
    first = control[0]
    for run in (*control, *other):
        check_same_items(first, run)
    order = sorted(first.item_ids)
    means = [dict(zip(r.item_ids, r.item_means, strict=True)) for r in (*control, *other)]
    table = np.array([[run[item] for item in order] for run in means])
    scored = np.logical_not(np.isnan(table).any(0))
    if not scored.any():
        raise InputError("no item has a score in every run")
    clusters = None
    if first.clusters is not None:
        source = dict(zip(first.item_ids, first.clusters, strict=True))
        clusters = tuple(source[i] for i, keep in zip(order, scored, strict=True) if keep)
    return Arms(table[: len(control), scored], table[len(control) :, scored], clusters)


def compare_arms(control: Sequence[ItemScores], other: Sequence[ItemScores]) -> Comparison:
    """The runs of one arm against those of its control, all scored on the same items.

    Student's t with the standard error of `crossed_error`: items and seeds are both
    samples, and each source of variance counts once.

    Raises InputError when an arm has one run only, no item has a score in all, or the runs were
    scored on different items, scales or clusters.
    """
    if min(len(control), len(other)) < 2:
        problem = f"{len(control)} and {len(other)} runs: a method needs at least two seeds per arm"
        raise InputError(problem, fix="compare single runs as checkpoints")
    item_count = max(len(run.item_ids) for run in (*control, *other))
    shared = on_shared_items(*control, *other)
    control, other = shared[: len(control)], shared[len(control) :]
    arms = aligned(control, other)
    differences = arms.differences
    estimate = _figures(control, other)
    lowest, highest = fillings(_figures, control, other)
    low, high = control[0].bounds
    crossed = crossed_error((arms.other, arms.control), arms.clusters, high - low)
    known = DesignPrecision(crossed.error, crossed.freedom, high - low)
    # More items do not help where seeds vary, so no number of items is promised.
    return planned(
        estimate,
        lambda alpha: (smallest_seen(known, alpha), None),
        method="t over seeds and items",
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
        control_only=item_count - len(control[0].item_ids),
    )


def _figures(control: Sequence[ItemScores], other: Sequence[ItemScores]) -> Figures:
    """Test and interval of the difference between the means of the arms."""
    arms = aligned(control, other)
    difference = float(arms.differences.mean())
    low, high = control[0].bounds
    crossed = crossed_error((arms.other, arms.control), arms.clusters, high - low)
    error, freedom = crossed.error, crossed.freedom

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
    arms = aligned(runs, runs)
    low, high = runs[0].bounds
    error = crossed_error((arms.control,), arms.clusters, high - low)
    reach = -float(special.stdtrit(error.freedom, 0.5 - LEVEL / 2)) * error.error
    mean = float(arms.control.mean())
    return Interval(max(mean - reach, low), min(mean + reach, high), "t over seeds and items")


def as_repeats(runs: Sequence[ItemScores]) -> ItemScores:
    """Runs on the same items as repeats of one, for statements about these runs alone.

    Raises InputError when the items differ.
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


@dataclass(frozen=True, slots=True)
class AtK:
    """A mean over items at k completions of each."""

    k: int
    value: float
    interval: Interval
    items: int
    """Items that have a value; one with fewer than k scored completions has none."""
    possible: tuple[float, float]
    """The lowest and the highest value that unscored completions leave possible."""


@dataclass(frozen=True, slots=True)
class SampledScores:
    """What n sampled completions of each item say; k is 1, 2, 4, ... and n."""

    mean: AtK
    """The mean score, k = n."""
    passes: tuple[AtK, ...]
    """Whether one of k completions is right; empty where scores are not 0 or 1."""
    binary: bool
    """Whether every score is 0 or 1."""


def sampled_scores(runs: Sequence[ItemScores]) -> SampledScores:
    """The figures of one run, or of several seeds of one arm on the same items.

    Raises InputError of seeds that do not fit together.
    """
    counts = counts_up_to(min(each.repeats for each in runs))
    mean = _figure(runs, counts[-1], [score_range(each) for each in runs])
    binary = all(each.binary for each in runs)
    if not binary:
        return SampledScores(mean, (), binary)
    values = [_passes(run, counts) for run in runs]
    passes = tuple(
        _figure(
            [each[k] for each in values],
            k,
            [_pass_limits(run, each[k], k) for run, each in zip(runs, values, strict=True)],
        )
        for k in counts
        if all(k in each for each in values)
    )
    return SampledScores(mean, passes, binary)


def counts_up_to(n: int) -> list[int]:
    """The powers of two up to n, and n itself."""
    powers = [1 << power for power in range(n.bit_length())]
    return sorted({*powers, n})


def pass_at_k(n: int, right: int, k: int) -> float:
    """The chance that k of n completions, drawn without putting back, hold a right one.

    1 - C(n - right, k) / C(n, k): unbiased for the chance that k fresh ones do (Chen et al. 2021,
    arXiv:2107.03374, section 2.1).
    """
    return 1.0 - comb(n - right, k) / comb(n, k)


def _passes(run: ItemScores, counts: Sequence[int]) -> dict[int, ItemScores]:
    """pass@k of every item, by k; NaN where an item has fewer than k scored completions."""
    scored_I = (~np.isnan(run.scores)).sum(1).tolist()
    right_I = np.nansum(run.scores, 1).astype(int).tolist()
    items = list(zip(scored_I, right_I, strict=True))
    values = {
        k: [pass_at_k(n, right, k) if n >= k else np.nan for n, right in items]
        for k in counts
        if max(scored_I) >= k
    }
    # Rounding may leave one a hair outside the scale.
    return {k: replace(run, scores=np.clip(v, 0.0, 1.0)[:, None]) for k, v in values.items()}


def _pass_limits(run: ItemScores, value: ItemScores, k: int) -> tuple[float, float]:
    """pass@k with a wrong and with a right answer for every unscored completion."""
    if not run.missing:
        return value.mean, value.mean
    low, high = (_passes(with_missing_at(run, end), [k])[k].mean for end in (0.0, 1.0))
    return low, high


def _figure(values: Sequence[ItemScores], k: int, ranges: Sequence[tuple[float, float]]) -> AtK:
    """The mean of the items' values over the runs, with its interval."""
    interval = arm_interval(values) if len(values) > 1 else score_interval(values[0])
    low, high = (float(np.mean(ends)) for ends in zip(*ranges, strict=True))
    scored_I = ~np.isnan([each.item_means for each in values]).any(0)
    means = [float(each.item_means[scored_I].mean()) for each in values]
    return AtK(k, float(np.mean(means)), interval, int(scored_I.sum()), (low, high))
