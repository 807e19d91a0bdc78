"""Computes how large an experiment must be to detect a difference: items, repeats, seeds, arms.

Uses the variances of a pilot, or a given discordance or score. Which designs are shown, and in
which words, is decided by the caller.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy import special

from assay.errors import InputError
from assay.judge.arms import aligned, left_over
from assay.judge.cluster_robust import item_mean
from assay.judge.power import POWER, items_needed, least, minimum_detectable_difference
from assay.judge.scores import Array, ItemScores
from assay.judge.verdict import ALPHA

MOST_ITEMS = 100_000
"""More items than this are not planned for."""


@dataclass(frozen=True, slots=True)
class Variances:
    """What the mean difference of two arms varies by. None: unknown, and counted as 0."""

    items: float
    """Of one item's difference, without what further repeats and seeds average away."""
    sampling: float | None = None
    """Of one answer around its item's mean, both arms together."""
    luck: float | None = None
    """Of one seed's own luck on an item, both arms together."""
    seeds: float | None = None
    """Of one seed's mean beyond that, both arms together."""
    discordance: float | None = None
    """Share of the items that change, where one answer to an item is 0 or 1 and no item shares its
    source: then a design of one repeat and one seed is McNemar's test."""
    width: float = 1.0
    """Of the scale of scores: the largest difference there is."""


@dataclass(frozen=True, slots=True)
class Design:
    """One way to spend answers."""

    items: int
    repeats: int = 1
    seeds: int = 1
    """Trainings of each arm."""
    arms: int = 2
    """The control among them."""

    @property
    def answers(self) -> int:
        """Answers to be generated."""
        return self.items * self.repeats * self.seeds * self.arms

    @property
    def alpha(self) -> float:
        """The level of each comparison with the control (Bonferroni)."""
        return ALPHA / (self.arms - 1)


@dataclass(frozen=True, slots=True)
class DesignPower:
    """A design, and what it sees."""

    design: Design
    smallest: float | None
    """The smallest difference seen with the wanted power; None where none is."""
    enough: bool
    """Whether that is the wanted difference or less."""
    resolution: float | None = None
    """N / N*: its items over those that the wanted difference needs; None for more than
    MOST_ITEMS."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Designs for a wanted difference."""

    difference: float
    power: float
    variances: Variances
    designs: tuple[DesignPower, ...]


def given_discordance(discordance: float) -> Variances:
    """Variances from a given share of items that change. The part of sampling in it is unknown, so
    no gain from repeats is assumed."""
    return Variances(discordance, discordance=discordance)


def given_score(score: float) -> Variances:
    """Variances where only a score is known: the two arms answer independently of each other."""
    return given_discordance(2 * score * (1 - score))


def variances_of(control: Sequence[ItemScores], other: Sequence[ItemScores]) -> Variances:
    """Variances of a pilot: S >= 1 seeds of each arm, R >= 1 repeats, on the same items.

    The components of the layout of items crossed with seeds, with repeats in the cells, by their
    mean squares; none is below 0. Raises InputError as a comparison does.
    """
    pairs = aligned(control, other)
    arms, clusters = (pairs.control, pairs.other), pairs.clusters
    differences_I = arms[0].mean(0) - arms[1].mean(0)
    low, high = control[0].bounds
    width = high - low
    spread = float(item_mean(differences_I, clusters, (-width, width)).standard_error) ** 2
    count = len(differences_I)
    sampling = _sampling(control, other)
    counts = min(len(control), len(other)), min(control[0].repeats, other[0].repeats)
    per_answer = (sampling or 0.0) / counts[1]
    luck = seeds = None
    left = per_answer / counts[0]
    if counts[0] > 1:
        shares = [left_over(arm_SI, clusters) for arm_SI in arms]
        left = count * sum(shares)
        luck = max(
            count * sum(s * len(a) for s, a in zip(shares, arms, strict=True)) - per_answer, 0
        )
        between = [
            float(a.mean(1).var(ddof=1)) - s * len(a) for a, s in zip(arms, shares, strict=True)
        ]
        seeds = max(sum(between), 0.0)
    single = counts == (1, 1) and control[0].binary and other[0].binary and clusters is None
    changed = float((differences_I != 0).mean()) if single else None
    return Variances(max(spread * count - left, 0.0), sampling, luck, seeds, changed, width)


def _sampling(control: Sequence[ItemScores], other: Sequence[ItemScores]) -> float | None:
    """Variance of an answer around its item's mean, summed over the arms; None where a run has no
    item with two scores."""
    within = [[_within(run.scores) for run in arm] for arm in (control, other)]
    if any(np.isnan(variances_I).all() for arm in within for variances_I in arm):
        return None
    return sum(float(np.mean([np.nanmean(each) for each in arm])) for arm in within)


def _within(scores_IR: Array) -> Array:
    """I variances over the repeats that have a score; NaN for fewer than two."""
    counts = np.logical_not(np.isnan(scores_IR)).sum(1)
    means_I = np.nansum(scores_IR, 1) / np.maximum(counts, 1)
    squares_I = np.nansum((scores_IR - means_I[:, None]) ** 2, 1)
    return np.where(counts > 1, squares_I / np.maximum(counts - 1, 1), np.nan)


@lru_cache(maxsize=4096)
def smallest_difference(variances: Variances, design: Design, power: float = POWER) -> float | None:
    """The smallest difference that a design sees with `power` in every comparison; None for none.

    McNemar's test exactly where it is the test; else Student's t of `arms.crossed_error`,
    its degrees of freedom at their expectation.
    """
    v, n = variances, design.items
    if v.discordance is not None and design.repeats == design.seeds == 1:
        return minimum_detectable_difference(n, v.discordance, power, design.alpha)
    by_items, by_luck, by_seeds = _parts(variances, design)
    total = by_items + by_luck + by_seeds
    if n < 2 or total == 0:
        return None
    doubt = (by_items + by_luck) ** 2 / (n - 1)
    if design.seeds > 1 and v.seeds is not None:
        doubt += (by_luck + by_seeds) ** 2 / (2 * (design.seeds - 1))
    difference = _detectable(total**2 / doubt, power, design.alpha) * float(np.sqrt(total))
    return difference if difference <= v.width else None


def _parts(variances: Variances, design: Design) -> tuple[float, float, float]:
    """The variance of the mean difference by items, by what is left, and by seeds."""
    v, n = variances, design.items
    answers = (v.sampling or 0.0) / design.repeats
    luck = ((v.luck or 0.0) + answers) / design.seeds
    return v.items / n, luck / n, (v.seeds or 0.0) / design.seeds


def _detectable(freedom: float, power: float, alpha: float) -> float:
    """How many standard errors Student's test at `alpha` sees with `power`."""
    critical = -float(special.stdtrit(freedom, alpha / 2))
    # The other tail rejects next to never at such differences.
    high = 100.0 + 2 * critical
    # Far out SciPy gives NaN, which is seen.
    return least(lambda x: not 1 - special.nctdtr(freedom, x, critical) < power, 0.0, high, 60)


def items_for(
    variances: Variances, design: Design, difference: float, power: float = POWER
) -> int | None:
    """Items at which the design sees `difference`; None for more than MOST_ITEMS."""
    if variances.discordance is not None and design.repeats == design.seeds == 1:
        needed = items_needed(variances.discordance, difference, power, design.alpha)
        return needed if needed is not None and needed <= MOST_ITEMS else None
    low, high = 1, MOST_ITEMS

    def sees(count: int) -> bool:
        smallest = smallest_difference(variances, replace(design, items=count), power)
        return smallest is not None and smallest <= difference

    if not sees(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if sees(middle) else (middle, high)
    return high


def plan(
    variances: Variances,
    difference: float,
    designs: Sequence[Design],
    power: float = POWER,
) -> Plan:
    """Each design with the items needed for the wanted difference, and, where it has items already,
    the difference that these detect. A design of 0 items asks only for the number needed."""
    if not 0 < difference <= 1:
        raise InputError(f"a difference of {100 * difference:g} points", fix="above 0, at most 100")
    if not 0.5 <= power < 1:
        raise InputError(f"a power of {power:g}", fix="from 0.5 to below 1, such as 0.8")
    plans = []
    for design in designs:
        needed = items_for(variances, design, difference, power)
        items = design.items or needed
        if items is None:
            plans.append(DesignPower(replace(design, items=0), None, False))
            continue
        whole = replace(design, items=items)
        smallest = smallest_difference(variances, whole, power)
        # Exact power has steps: what was asked for holds where the items were found for it.
        enough = not design.items or (smallest is not None and smallest <= difference)
        resolution = items / needed if needed else None
        plans.append(DesignPower(whole, smallest, enough, resolution))
    return Plan(difference, power, variances, tuple(plans))
