"""Compares two scores that came without their items, as two binomials.

For old logs and tables of others. The comparison states that pairing by item would be sharper.
"""

from dataclasses import replace
from functools import lru_cache

import numpy as np
from scipy import special

from assay.errors import InputError
from assay.judge.intervals import LEVEL, Interval, independent_difference, quantile, wilson
from assay.judge.power import POWER, binomial_mass, planned
from assay.judge.scores import Array
from assay.judge.significance import agreeing
from assay.judge.verdict import ALPHA, Comparison, Figures


def newcombe(
    control: float, control_items: int, successes: float, items: int, level: float = LEVEL
) -> Interval:
    """Hybrid score interval for successes / items - control / control_items.

    Newcombe 1998, Statistics in Medicine 17:873, method 10: the Wilson limits of both, squared and
    added.
    """
    before, after = control / control_items, successes / items
    first, second = wilson(control, control_items, level), wilson(successes, items, level)
    return replace(independent_difference(before, first, after, second), method="Newcombe")


def score_test(control: float, control_items: int, successes: float, items: int) -> float:
    """Two-sided p-value of the pooled score test of two proportions (Pearson's, uncorrected)."""
    pooled = (control + successes) / (control_items + items)
    variance = pooled * (1 - pooled) * (1 / control_items + 1 / items)
    if variance == 0:
        return 1.0
    z = (successes / items - control / control_items) / np.sqrt(variance)
    return float(2 * special.ndtr(-abs(z)))


def compare_counts(control: float, control_items: int, successes: float, items: int) -> Comparison:
    """A run against its control from counts alone. Successes may be fractional: means of repeats.

    Repeats must not be counted as further items. Raises InputError for impossible counts.
    """
    for count, among in ((control, control_items), (successes, items)):
        if not (among > 0 and 0 <= count <= among):
            raise InputError(
                f"{count:g} successes of {among} items", fix="give counts, not percentages"
            )
    before, after = control / control_items, successes / items
    p_value = score_test(control, control_items, successes, items)
    interval_at = agreeing(
        lambda level: newcombe(control, control_items, successes, items, level), p_value
    )

    def plan_at(alpha: float) -> tuple[float | None, int | None]:
        needed = unpaired_items_needed(before, after, alpha=alpha)
        return unpaired_detectable(before, control_items, items, alpha), needed

    return planned(
        Figures(before, after, after - before, p_value, interval_at),
        plan_at,
        "two binomials without items: score test, Newcombe interval",
        items=min(control_items, items),
    )


EXACT_TABLES = 100_000
"""Tables of two counts up to which the power of the score test is summed over all of them."""


@lru_cache(maxsize=1024)
def unpaired_detectable(
    control: float, control_items: int, items: int, alpha: float = ALPHA
) -> float | None:
    """Smallest difference to the chance `control` seen with 80 % power; None where none is.

    Toward the middle of the scale, where a difference is hardest to see.
    """
    toward, most = (1, 1 - control) if control < 0.5 else (-1, control)
    sees = _exact_power if (control_items + 1) * (items + 1) <= EXACT_TABLES else _normal_power

    def seen(difference: float) -> bool:
        chances = control, control + toward * difference
        return sees(chances, (control_items, items), alpha) >= POWER

    if not seen(most):
        return None
    low, high = 0.0, most
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if seen(middle) else (middle, high)
    return high


def _exact_power(chances: tuple[float, float], items: tuple[int, int], alpha: float) -> float:
    """Chance that the score test rejects, summed over all tables."""
    before, after = (
        binomial_mass(np.arange(n + 1.0), n, float(np.clip(chance, 0, 1)))
        for chance, n in zip(chances, items, strict=True)
    )
    return float(before @ _rejected(*items, alpha) @ after)


@lru_cache(maxsize=64)
def _rejected(control_items: int, items: int, alpha: float) -> Array:
    """1 where the score test rejects, for every pair of counts."""
    before, after = np.arange(control_items + 1.0)[:, None], np.arange(items + 1.0)
    pooled = (before + after) / (control_items + items)
    variance = pooled * (1 - pooled) * (1 / control_items + 1 / items)
    distance = np.abs(after / items - before / control_items)
    return (distance > quantile(1 - alpha) * np.sqrt(variance)).astype(np.float64)


def _normal_power(chances: tuple[float, float], items: tuple[int, int], alpha: float) -> float:
    """The same in the normal approximation."""
    before, after = chances
    pooled = (before * items[0] + after * items[1]) / sum(items)
    null = pooled * (1 - pooled) * (1 / items[0] + 1 / items[1])
    error = np.sqrt(before * (1 - before) / items[0] + after * (1 - after) / items[1])
    if error == 0:
        return float(before != after)
    beyond = abs(after - before) - quantile(1 - alpha) * np.sqrt(null)
    return float(special.ndtr(beyond / error))


def unpaired_items_needed(
    control: float, score: float, power: float = POWER, alpha: float = ALPHA
) -> int | None:
    """Items per run that are needed to separate two independent proportions; None when equal.

    Fleiss, Levin and Paik 2003, Statistical Methods for Rates and Proportions, 4.14.
    """
    if control == score:
        return None
    middle = (control + score) / 2
    spread = control * (1 - control) + score * (1 - score)
    z = quantile(1 - alpha) * np.sqrt(2 * middle * (1 - middle))
    z += float(special.ndtri(power)) * np.sqrt(spread)
    return int(np.ceil((z / (score - control)) ** 2))
