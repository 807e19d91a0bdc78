"""The power of a paired design: the smallest difference it detects, and the items it needs.

Plans the mid-p McNemar test on n items, of which a share, the discordance, changes between two
runs. No scores are read here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import special

from assay.judge.cluster_robust import FEW_CLUSTERS
from assay.judge.intervals import LEVEL, quantile
from assay.judge.scores import Array
from assay.judge.significance import mid_p_mcnemar
from assay.judge.verdict import ALPHA, MARGIN, Comparison, Figures, PlanAt, judged

POWER = 0.8
EXACT_ITEMS = 10_000


def binomial_mass(successes: Array, trials: Array | float, chance: Array | float) -> Array:
    """Probability of exactly `successes` of `trials` at `chance`."""
    log = special.gammaln(trials + 1.0) - special.gammaln(successes + 1.0)
    log = log - special.gammaln(trials - successes + 1.0)
    log = log + special.xlogy(successes, chance) + special.xlog1py(trials - successes, -chance)
    return np.exp(log)


def predicted_power(
    items: int, discordance: float, difference: float, alpha: float = ALPHA
) -> float:
    """Chance that mid-p McNemar rejects at `alpha`, exactly, by summing over the discordant counts.

    `discordance` is the probability that an item changes; a difference cannot exceed it, so it is
    raised to |difference| where it is smaller.
    """
    size = abs(difference)
    share = min(max(discordance, size), 1.0)
    if share == 0:
        return 0.0
    centre, spread = items * share, 8 * np.sqrt(items * share * (1 - share)) + 10
    low, high = max(0, int(centre - spread)), min(items, int(centre + spread))
    changed_M = np.arange(low, high + 1, dtype=np.float64)
    critical_M = _critical(low, high, alpha)
    gaining = (share + size) / (2 * share)
    # bdtr is the binomial distribution function; an empty region has critical count -1.
    reject_M = np.where(
        critical_M < 0,
        0.0,
        special.bdtr(np.maximum(critical_M, 0), changed_M, gaining)
        + special.bdtrc(changed_M - np.maximum(critical_M, 0) - 1, changed_M, gaining),
    )
    return float(np.sum(binomial_mass(changed_M, items, share) * reject_M))


@lru_cache(maxsize=256)
def _critical(low: int, high: int, alpha: float) -> Array:
    """Largest count of the rarer direction at which the test still rejects, for each number of
    changed items from `low` to `high`; -1 for none. A search for a size asks for the same again."""
    changed_M = np.arange(low, high + 1, dtype=np.float64)
    guess_M = np.floor(changed_M / 2 - quantile(1 - alpha) * np.sqrt(changed_M) / 2)
    candidates_KM = guess_M + np.arange(-3, 4)[:, None]
    usable_KM = (candidates_KM >= 0) & (candidates_KM < changed_M / 2)
    counts_KM = np.where(usable_KM, candidates_KM, 0.0)
    rejects_KM = usable_KM & (mid_p_mcnemar(counts_KM, changed_M - counts_KM) < alpha)
    return np.where(rejects_KM, candidates_KM, -1.0).max(0)


def least(holds: Callable[[float], bool], low: float, high: float, halvings: int = 30) -> float:
    """The least value above `low` for which something holds that holds for `high`, by bisection."""
    for _ in range(halvings):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


@lru_cache(maxsize=4096)
def minimum_detectable_difference(
    items: int, discordance: float, power: float = POWER, alpha: float = ALPHA
) -> float | None:
    """Smallest difference seen with `power`; None when even a change of every item is not."""
    if predicted_power(items, discordance, 1.0, alpha) < power:
        return None
    return least(lambda x: predicted_power(items, discordance, x, alpha) >= power, 0.0, 1.0)


@lru_cache(maxsize=4096)
def items_needed(
    discordance: float, difference: float, power: float = POWER, alpha: float = ALPHA
) -> int | None:
    """Items at which `difference` is seen with `power`; None for a difference of zero.

    Bisection on the exact power around the normal approximation, and the approximation itself
    beyond EXACT_ITEMS, where the two agree.
    """
    size = abs(difference)
    if size == 0:
        return None
    share = max(discordance, size)
    z = quantile(1 - alpha) + float(special.ndtri(power))
    approximate = share * (z / size) ** 2
    if approximate > EXACT_ITEMS:
        return int(np.ceil(approximate))
    low, high = int(approximate / 2), int(2 * approximate) + 20
    while high - low > 1:
        middle = (low + high) // 2
        seen = predicted_power(middle, share, size, alpha) >= power
        low, high = (low, middle) if seen else (middle, high)
    return high


def detectable_from_interval(half_width: float, most: float, level: float = LEVEL) -> float | None:
    """Smallest difference seen with 80 % power by a test whose interval has this half-width; None
    where that is more than `most`, the largest difference there is.

    The normal approximation (z_level + z_0.8) x standard error, for intervals put together from
    several, of which no test is planned.
    """
    z = quantile(level)
    smallest = half_width * (z + float(special.ndtri(POWER))) / z
    return smallest if smallest <= most else None


NODES = 32
"""Quantiles that stand for the distribution of an estimated standard error."""
KNOWN = 2000.0
"""Degrees of freedom from which on a standard error counts as known."""
MOST_TIMES = 2.0**40


@dataclass(frozen=True, slots=True)
class DesignPrecision:
    """How well an experiment knew its mean difference."""

    error: float
    """The standard error, as it was estimated."""
    degrees: float
    """Its degrees of freedom."""
    width: float
    """The distance between the lowest and the highest score: the largest difference there is."""
    clusters: int = 0
    """Independent units whose limits are widened where next to nothing varies
    (`cluster_robust.ClusterMeans.alike`); 0 where limits never are."""
    tied: float = 0.0
    """Chance that a unit's difference is the median one (`cluster_robust.tied_share`)."""


def power_at(
    precision: DesignPrecision, difference: float, alpha: float = ALPHA, times: float = 1.0
) -> float:
    """Chance that the test rejects at `alpha` with `times` as many units, in this direction.

    The estimated error says little about the true one where units are few, so the noncentral t of a
    known error is averaged over the errors that the estimate leaves possible: an experiment with
    this power shows the stated difference that often, however the estimate came out. Where a new
    experiment may find its units alike, the mean has to leave their wider limits as well.
    """
    critical = -float(special.stdtrit(precision.degrees * times, alpha / 2))
    new_N = critical * _errors(precision.degrees * times)
    if precision.error == 0:
        return float(difference > _floor(precision, alpha, times))
    scale_M1 = _errors(precision.degrees)[:, None] * times**0.5 / precision.error
    seen = special.ndtr(difference * scale_M1 - new_N).mean()
    alike = _chance_alike(precision, times)
    if alike:
        least_M1 = _floor(precision, alpha, times) * scale_M1
        both = special.ndtr(difference * scale_M1 - np.maximum(new_N, least_M1)).mean()
        seen = (1 - alike) * seen + alike * both
    return float(seen)


def _errors(degrees: float) -> Array:
    """Equally likely ratios of an estimated standard error to the true one, by chi-squared."""
    if degrees >= KNOWN:
        return np.ones(1)
    beyond = 1 - (np.arange(NODES) + 0.5) / NODES
    return np.sqrt(special.chdtri(degrees, beyond) / degrees)


def _floor(precision: DesignPrecision, alpha: float, times: float) -> float:
    """The mean at which limits of units that are alike leave 0, see `cluster_robust.p_value`."""
    return precision.width * quantile(1 - alpha) ** 2 / (precision.clusters * times)


def _chance_alike(precision: DesignPrecision, times: float) -> float:
    """Chance that fewer units than FEW_CLUSTERS, and than all but one, leave the median."""
    if not precision.clusters or not precision.tied:
        return 0.0
    units = round(precision.clusters * times)
    others = units - 1
    return float(special.bdtr(min(FEW_CLUSTERS, others) - 1, others, 1 - precision.tied))


@lru_cache(maxsize=4096)
def smallest_seen(
    precision: DesignPrecision, alpha: float = ALPHA, power: float = POWER
) -> float | None:
    """The smallest difference seen with `power`; None where the largest possible one is not."""
    if power_at(precision, precision.width, alpha) < power:
        return None
    return least(lambda x: power_at(precision, x, alpha) >= power, 0.0, precision.width)


@lru_cache(maxsize=4096)
def times_needed(
    precision: DesignPrecision, difference: float, alpha: float = ALPHA, power: float = POWER
) -> float | None:
    """How many times as many units would show `difference` with `power`; None for none."""
    fewest = 2 / precision.clusters if precision.clusters else 1.0

    def seen(times: float) -> bool:
        return power_at(precision, abs(difference), alpha, times) >= power

    high = 1.0
    while not seen(high):
        high *= 2
        if difference == 0 or high > MOST_TIMES:
            return None
    return least(seen, fewest if high == 1 else high / 2, high)


def planned(figures: Figures, plan_at: PlanAt, *, method: str, **counts: Any) -> Comparison:
    """A comparison alone, with its verdict and what its design sees."""
    detectable, needed = plan_at(ALPHA)
    compared = Comparison(
        control_score=figures.control_score,
        score=figures.score,
        difference=figures.difference,
        interval=figures.interval_at(LEVEL),
        p_value=figures.p_value,
        adjusted_p=figures.p_value,
        method=method,
        verdict="undecided",
        margin=MARGIN,
        minimum_detectable_difference=detectable,
        items_needed=needed,
        interval_at=figures.interval_at,
        plan_at=plan_at,
        **counts,
    )
    return judged(compared)
