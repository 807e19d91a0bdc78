"""Compares two scores that came without their items, as two binomials.

For old logs and tables of others. The comparison states that pairing by item would be sharper.
"""

from dataclasses import replace

import numpy as np
from scipy import special

from assay.errors import InputError
from assay.judge.intervals import LEVEL, Interval, independent_difference, quantile, wilson
from assay.judge.power import detectable_from_interval
from assay.judge.significance import agreeing
from assay.judge.verdict import ALPHA, MARGIN, Comparison, judged


class CountsError(InputError):
    """A reported count that cannot be a number of successes among the items."""


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


def compare_counts(
    control: float, control_items: int, successes: float, items: int, margin: float = MARGIN
) -> Comparison:
    """A run against its control from counts alone. Successes may be fractional: means of repeats.

    Repeats must not be counted as further items. Raises CountsError for impossible counts.
    """
    for count, among in ((control, control_items), (successes, items)):
        if not (among > 0 and 0 <= count <= among):
            raise CountsError(
                f"{count:g} successes of {among} items", fix="give counts, not percentages"
            )
    before, after = control / control_items, successes / items
    difference = after - before
    p_value = score_test(control, control_items, successes, items)
    interval_at = agreeing(
        lambda level: newcombe(control, control_items, successes, items, level), p_value
    )

    def plan_at(alpha: float) -> tuple[float | None, int | None]:
        reach = interval_at(1 - alpha).half_width
        needed = unpaired_items_needed(before, after, alpha=alpha)
        return detectable_from_interval(reach, 1 - alpha), needed

    interval = interval_at(LEVEL)
    detectable, needed = plan_at(ALPHA)
    compared = Comparison(
        control_score=before,
        score=after,
        difference=difference,
        interval=interval,
        p_value=p_value,
        adjusted_p=p_value,
        method="two binomials without items: score test, Newcombe interval",
        items=min(control_items, items),
        verdict="undecided",
        margin=margin,
        minimum_detectable_difference=detectable,
        items_needed=needed,
        interval_at=interval_at,
        plan_at=plan_at,
    )
    return judged(compared)


def unpaired_items_needed(
    control: float, score: float, power: float = 0.8, alpha: float = ALPHA
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
