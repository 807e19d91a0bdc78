"""Two methods, each trained with several seeds: the seed is sampled as well as the items.

One run per arm says something about two checkpoints, which `paired` compares; several say something
about the method.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from assay.judge.intervals import LEVEL, Interval, bootstrap, quantile
from assay.judge.paired import check_same_items
from assay.judge.power import detectable_from_interval
from assay.judge.scores import Array, ItemScores, ScoreError, cluster_totals
from assay.judge.verdict import MARGIN, Comparison, decide


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

    Student's t with three sources of variance: seeds of either arm, and items, the latter from the
    cluster bootstrap of the differences between arm means; degrees of freedom by Satterthwaite
    (1946, Biometrics Bulletin 2:110). Sampling noise counts among seeds and items both, so the
    interval errs on the wide side.

    Raises ScoreError when an arm has one run only or no item has a score in all, ItemsDifferError
    when the runs were scored on different items, scales or clusters.
    """
    arms = _align(control, other)
    differences = arms.differences
    difference = float(differences.mean())
    error, freedom = _standard_error(arms, control[0].bounds)
    reach = -float(special.stdtrit(freedom, 0.5 - LEVEL / 2)) * error
    interval = Interval(difference - reach, difference + reach, "t over seeds and items")
    p_value = float(2 * special.stdtr(freedom, -abs(difference) / error))
    return Comparison(
        control_score=float(arms.control.mean()),
        score=float(arms.other.mean()),
        difference=difference,
        interval=interval,
        p_value=p_value,
        adjusted_p=p_value,
        method=f"t over {len(control)} and {len(other)} seeds and items",
        items=len(differences),
        verdict=decide(difference, interval, p_value, margin),
        margin=margin,
        minimum_detectable_difference=detectable_from_interval(reach),
        # More items do not help where seeds vary, so no number of items is promised.
        items_needed=None,
        gained=int((differences > 0).sum()),
        lost=int((differences < 0).sum()),
        unchanged=int((differences == 0).sum()),
        clusters=len(set(arms.clusters)) if control[0].clustered and arms.clusters else None,
        repeats=(control[0].repeats, other[0].repeats),
        unscored=len(control[0].item_ids) - len(differences),
    )


def arm_interval(runs: Sequence[ItemScores]) -> Interval:
    """The interval of the mean score of several seeds of one arm, seeds and items both sampled.

    Student's t from the variance between seeds and that of the item bootstrap, as in
    `compare_arms`. Raises what `compare_arms` raises.
    """
    arms = _align(runs, runs)
    spread = bootstrap(arms.control.mean(0), arms.clusters, runs[0].bounds)
    _, sizes_C = cluster_totals(arms.control.mean(0), arms.clusters)
    variances = [(spread.half_width / quantile(LEVEL)) ** 2]
    variances.append(float(arms.control.mean(1).var(ddof=1)) / len(runs))
    freedoms = [max(len(sizes_C) - 1, 1), len(runs) - 1]
    error, freedom = _satterthwaite(variances, freedoms)
    reach = -float(special.stdtrit(freedom, 0.5 - LEVEL / 2)) * error
    mean, (low, high) = float(arms.control.mean()), runs[0].bounds
    return Interval(max(mean - reach, low), min(mean + reach, high), "t over seeds and items")


def as_repeats(runs: Sequence[ItemScores]) -> ItemScores:
    """Runs on the same items as repeats of one: what they say about these runs alone.

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
    return ItemScores(first.item_ids, np.hstack(columns), first.clusters, first.bounds)


def _align(control: Sequence[ItemScores], other: Sequence[ItemScores]) -> _Arms:
    """Item means of every run in one order of items."""
    if min(len(control), len(other)) < 2:
        raise ScoreError(
            f"{len(control)} and {len(other)} runs: a method needs at least two seeds per arm",
            fix="compare single runs as checkpoints",
        )
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
    return _Arms(table[: len(control), scored], table[len(control) :, scored], clusters)


def _standard_error(arms: _Arms, bounds: tuple[float, float]) -> tuple[float, float]:
    """Standard error of the difference and its degrees of freedom."""
    width = bounds[1] - bounds[0]
    spread = bootstrap(arms.differences, arms.clusters, (-width, width))
    _, sizes_C = cluster_totals(arms.differences, arms.clusters)
    variances, freedoms = [(spread.half_width / quantile(LEVEL)) ** 2], [max(len(sizes_C) - 1, 1)]
    for seeds in (arms.control, arms.other):
        variances.append(float(seeds.mean(1).var(ddof=1)) / len(seeds))
        freedoms.append(len(seeds) - 1)
    return _satterthwaite(variances, freedoms)


def _satterthwaite(variances: Sequence[float], freedoms: Sequence[float]) -> tuple[float, float]:
    """Standard error and degrees of freedom of a sum of independent estimates."""
    total = sum(variances)
    return total**0.5, total**2 / sum(v**2 / f for v, f in zip(variances, freedoms, strict=True))
