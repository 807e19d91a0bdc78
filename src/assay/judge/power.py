"""The power of a paired design: the smallest difference it detects, and the items it needs.

Plans the mid-p McNemar test on n items, of which a share, the discordance, changes between two
runs. No scores are read here.
"""

from functools import lru_cache

import numpy as np
from scipy import special

from assay.judge.intervals import LEVEL, quantile
from assay.judge.scores import Array
from assay.judge.significance import mid_p_mcnemar
from assay.judge.verdict import ALPHA

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


@lru_cache(maxsize=4096)
def minimum_detectable_difference(
    items: int, discordance: float, power: float = POWER, alpha: float = ALPHA
) -> float | None:
    """Smallest difference seen with `power`; None when even a change of every item is not."""
    if predicted_power(items, discordance, 1.0, alpha) < power:
        return None
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        if predicted_power(items, discordance, middle, alpha) < power:
            low = middle
        else:
            high = middle
    return high


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
        if predicted_power(middle, share, size, alpha) < power:
            low = middle
        else:
            high = middle
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
