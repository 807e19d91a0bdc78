"""Compares two methods, each trained with several seeds; both seeds and items are sampled.

Two single runs compare checkpoints, not methods: that is `paired`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from assay.judge.intervals import LEVEL, Interval
from assay.judge.paired import check_same_items, fillings, unscored_shares
from assay.judge.power import Precision, smallest_seen
from assay.judge.scores import Array, ItemScores, ScoreError, on_shared_items
from assay.judge.seed_variance import aligned, crossed_error
from assay.judge.verdict import MARGIN, Comparison, Figures, judged


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


def compare_arms(
    control: Sequence[ItemScores], other: Sequence[ItemScores], margin: float = MARGIN
) -> Comparison:
    """The runs of one arm against those of its control, all scored on the same items.

    Student's t with the standard error of `seed_variance.crossed_error`: items and seeds are both
    samples, and each source of variance counts once.

    Raises ScoreError when an arm has one run only or no item has a score in all, ItemsDifferError
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
    compared = Comparison(
        control_score=found.control_score,
        score=found.score,
        difference=found.difference,
        interval=found.interval_at(LEVEL),
        p_value=found.p_value,
        adjusted_p=found.p_value,
        method="t over seeds and items",
        items=len(differences),
        verdict="undecided",
        margin=margin,
        minimum_detectable_difference=smallest_seen(known),
        # More items do not help where seeds vary, so no number of items is promised.
        items_needed=None,
        interval_at=found.interval_at,
        plan_at=lambda alpha: (smallest_seen(known, alpha), None),
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
    return judged(compared)


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
        raise ScoreError(
            f"{len(control)} and {len(other)} runs: a method needs at least two seeds per arm",
            fix="compare single runs as checkpoints",
        )
    (control_SI, other_SI), clusters = aligned(control, other)
    return _Arms(control_SI, other_SI, clusters)
