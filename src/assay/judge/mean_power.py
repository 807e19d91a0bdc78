"""The power of Student's test of a mean difference: the smallest seen, and how many more units.

Plans from what one experiment estimated, its standard error included. No scores are read here;
designs of many kinds are planned in `sample_size`.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import special

from assay.judge.cluster_robust import FEW_CLUSTERS
from assay.judge.intervals import quantile
from assay.judge.power import POWER
from assay.judge.scores import Array
from assay.judge.verdict import ALPHA

NODES = 32
"""Quantiles that stand for the distribution of an estimated standard error."""
KNOWN = 2000.0
"""Degrees of freedom from which on a standard error counts as known."""
HALVINGS = 30
MOST_TIMES = 2.0**40


@dataclass(frozen=True, slots=True)
class Precision:
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
    found: Precision, difference: float, alpha: float = ALPHA, times: float = 1.0
) -> float:
    """Chance that the test rejects at `alpha` with `times` as many units, in this direction.

    The estimated error says little about the true one where units are few, so the noncentral t of a
    known error is averaged over the errors that the estimate leaves possible: an experiment with
    this power shows the stated difference that often, however the estimate came out. Where a new
    experiment may find its units alike, the mean has to leave their wider limits as well.
    """
    critical = -float(special.stdtrit(found.degrees * times, alpha / 2))
    new_N = critical * _errors(found.degrees * times)
    if found.error == 0:
        return float(difference > _floor(found, alpha, times))
    scale_M1 = _errors(found.degrees)[:, None] * times**0.5 / found.error
    seen = special.ndtr(difference * scale_M1 - new_N).mean()
    alike = _chance_alike(found, times)
    if alike:
        least_M1 = _floor(found, alpha, times) * scale_M1
        both = special.ndtr(difference * scale_M1 - np.maximum(new_N, least_M1)).mean()
        seen = (1 - alike) * seen + alike * both
    return float(seen)


def _errors(degrees: float) -> Array:
    """Equally likely ratios of an estimated standard error to the true one, by chi-squared."""
    if degrees >= KNOWN:
        return np.ones(1)
    beyond = 1 - (np.arange(NODES) + 0.5) / NODES
    return np.sqrt(special.chdtri(degrees, beyond) / degrees)


def _floor(found: Precision, alpha: float, times: float) -> float:
    """The mean at which limits of units that are alike leave 0, see `cluster_robust.p_value`."""
    return found.width * quantile(1 - alpha) ** 2 / (found.clusters * times)


def _chance_alike(found: Precision, times: float) -> float:
    """Chance that fewer units than FEW_CLUSTERS, and than all but one, leave the median."""
    if not found.clusters or not found.tied:
        return 0.0
    units = round(found.clusters * times)
    others = units - 1
    return float(special.bdtr(min(FEW_CLUSTERS, others) - 1, others, 1 - found.tied))


@lru_cache(maxsize=4096)
def smallest_seen(found: Precision, alpha: float = ALPHA, power: float = POWER) -> float | None:
    """The smallest difference seen with `power`; None where the largest possible one is not."""
    low, high = 0.0, found.width
    if power_at(found, high, alpha) < power:
        return None
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if power_at(found, middle, alpha) < power:
            low = middle
        else:
            high = middle
    return high


@lru_cache(maxsize=4096)
def times_needed(
    found: Precision, difference: float, alpha: float = ALPHA, power: float = POWER
) -> float | None:
    """How many times as many units would show `difference` with `power`; None for none."""
    least = 2 / found.clusters if found.clusters else 1.0

    def seen(times: float) -> bool:
        return power_at(found, abs(difference), alpha, times) >= power

    high = 1.0
    while not seen(high):
        high *= 2
        if difference == 0 or high > MOST_TIMES:
            return None
    low = least if high == 1 else high / 2
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if seen(middle) else (middle, high)
    return high
