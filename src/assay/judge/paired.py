"""Comparing two runs item by item.

Chooses the test and the interval that fit the scores and puts the result into one `Comparison`.
Whether the runs may be compared at all is a matter of `confounds`.
"""

from dataclasses import dataclass

import numpy as np

from assay.judge.intervals import Interval, bootstrap, tango
from assay.judge.power import (
    detectable_from_interval,
    items_needed,
    minimum_detectable_difference,
)
from assay.judge.scores import Array, ItemScores, ItemsDifferError, ScoreError, cluster_totals
from assay.judge.significance import EXACT_CLUSTERS, mid_p_mcnemar, sign_flip
from assay.judge.verdict import ALPHA, MARGIN, Comparison, decide

ROUNDING = 1e-12
"""Mean differences at most so large are none: thirds that cancel leave 1e-17."""


@dataclass(frozen=True, slots=True)
class _Evidence:
    """What one choice of test found."""

    interval: Interval
    p_value: float
    method: str
    detectable: float | None
    needed: int | None


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


def compare(control: ItemScores, other: ItemScores, margin: float = MARGIN) -> Comparison:
    """`other` against `control`, paired by item id; differences are other minus control.

    Independent single-pass 0/1 items: mid-p McNemar and Tango's interval. Anything else: a
    sign-flip permutation test and a cluster bootstrap of the item means over repeats.

    Raises ItemsDifferError when the runs were scored on different items, scales or clusters,
    ScoreError when no item has a score in both.
    """
    pairs = _pair(control, other)
    counts = all(s.binary and s.repeats == 1 and not s.clustered for s in (control, other))
    differences = pairs.differences
    found = _by_counts(pairs) if counts else _by_resampling(pairs, control.bounds)
    return Comparison(
        control_score=float(pairs.control.mean()),
        score=float(pairs.other.mean()),
        difference=pairs.difference,
        interval=found.interval,
        p_value=found.p_value,
        adjusted_p=found.p_value,
        method=found.method,
        items=len(differences),
        verdict=decide(pairs.difference, found.interval, found.p_value, margin),
        margin=margin,
        minimum_detectable_difference=found.detectable,
        items_needed=found.needed,
        gained=int((differences > 0).sum()),
        lost=int((differences < 0).sum()),
        unchanged=int((differences == 0).sum()),
        clusters=len(set(pairs.clusters)) if control.clustered and pairs.clusters else None,
        repeats=(control.repeats, other.repeats),
        changed_between_repeats=(control.changed_between_repeats, other.changed_between_repeats),
        unscored=len(control.item_ids) - len(differences),
    )


def _pair(control: ItemScores, other: ItemScores) -> _Pairs:
    """Align the two runs by item id and drop items that one of them has no score for."""
    check_same_items(control, other)
    place = {item: i for i, item in enumerate(other.item_ids)}
    order = sorted(range(len(control.item_ids)), key=lambda i: control.item_ids[i])
    means_control = control.item_means[order]
    means_other = other.item_means[[place[control.item_ids[i]] for i in order]]
    scored = ~(np.isnan(means_control) | np.isnan(means_other))
    if not scored.any():
        raise ScoreError("no item has a score in both runs")
    clusters = None
    if control.clusters is not None:
        clusters = tuple(control.clusters[i] for i, keep in zip(order, scored, strict=True) if keep)
    return _Pairs(means_control[scored], means_other[scored], clusters)


def check_same_items(control: ItemScores, other: ItemScores) -> None:
    """Refuse runs whose items, scale or clusters are not the same. Raises ItemsDifferError."""
    only_control = set(control.item_ids) - set(other.item_ids)
    only_other = set(other.item_ids) - set(control.item_ids)
    if only_control or only_other:
        example = min(only_control or only_other)
        raise ItemsDifferError(
            f"the runs were scored on different items: {len(only_control)} only in the control, "
            f"{len(only_other)} only in the other, {example!r} for one",
            fix="evaluate both on the same items",
        )
    if control.bounds != other.bounds:
        raise ItemsDifferError(f"the scores run over {control.bounds} and {other.bounds}")
    sources = [dict(zip(s.item_ids, s.clusters or (), strict=False)) for s in (control, other)]
    if sources[0] != sources[1]:
        raise ItemsDifferError("the runs group the same items into different clusters")


def _by_counts(pairs: _Pairs) -> _Evidence:
    """Mid-p McNemar and Tango's interval."""
    differences = pairs.differences
    items = len(differences)
    gained, lost = int((differences > 0).sum()), int((differences < 0).sum())
    discordance = (gained + lost) / items
    return _Evidence(
        interval=tango(gained, lost, items),
        p_value=float(mid_p_mcnemar(gained, lost)),
        method="mid-p McNemar, Tango interval",
        detectable=minimum_detectable_difference(items, discordance),
        needed=items_needed(discordance, abs(gained - lost) / items),
    )


def _by_resampling(pairs: _Pairs, bounds: tuple[float, float]) -> _Evidence:
    """Sign-flip permutation and the cluster bootstrap of the item differences."""
    differences = pairs.differences
    width = bounds[1] - bounds[0]
    interval = bootstrap(differences, pairs.clusters, (-width, width))
    totals_C, _ = cluster_totals(differences, pairs.clusters)
    detectable = detectable_from_interval(interval.half_width)
    # With so few clusters no pattern of signs is rarer than the significance level.
    if 0.5 ** len(totals_C) > ALPHA:
        return _Evidence(interval, sign_flip(totals_C), _method(totals_C), None, None)
    observed = abs(pairs.difference)
    ratio = detectable / observed if observed else None
    needed = None if ratio is None else int(np.ceil(len(differences) * ratio**2))
    return _Evidence(interval, sign_flip(totals_C), _method(totals_C), detectable, needed)


def _method(totals_C: Array) -> str:
    """The name of the resampling test, saying whether it was exact."""
    exact = np.count_nonzero(totals_C) <= EXACT_CLUSTERS
    return f"{'exact ' if exact else ''}mid-p sign-flip permutation, cluster bootstrap"
