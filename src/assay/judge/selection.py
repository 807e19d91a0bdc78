"""What choosing does to a number: many looks at the same items, and the best of many scores.

Corrections and expectations in closed form. Which checkpoint is chosen is decided elsewhere.
"""

import numpy as np
from scipy import special

from assay.judge.intervals import LEVEL, quantile
from assay.judge.scores import Array

NODES = 128
SHARED_CONTROL = 0.5
"""Correlation of two checkpoints' differences to one control, when nothing but the control is
shared."""


def adjust_for_looks(p_value: float, looks: int) -> float:
    """The p-value of the most favourable of `looks` looks (Bonferroni: valid however related)."""
    return min(1.0, p_value * looks)


def chance_of_false_promotion(
    looks: int, level: float = LEVEL, correlation: float = SHARED_CONTROL
) -> float:
    """Chance that at least one of `looks` checkpoints that are no better is called better.

    Each look rejects upwards with probability (1 - level) / 2; the looks are equally correlated
    normal statistics, as when every checkpoint is compared with the same control (Dunnett 1955,
    JASA 50:1096).
    """
    shared, mass = _normal_nodes()
    bound = (quantile(level) - np.sqrt(correlation) * shared) / np.sqrt(1 - correlation)
    return float(1 - mass @ special.ndtr(bound) ** looks)


def expected_maximum(looks: int) -> float:
    """Expected maximum of `looks` independent standard normal values, by the trapezoid rule."""
    grid = np.linspace(0, 10, 4001)
    # E max = integral over x > 0 of P(max > x) - P(max < -x).
    beyond = 1 - special.ndtr(grid) ** looks - special.ndtr(-grid) ** looks
    return float(np.trapezoid(beyond, grid))


def expected_optimism(looks: int, items: int, item_variance: float = 0.25) -> float:
    """How much better the best of `looks` equally good checkpoints looks on n items than it is.

    `item_variance` is the variance of one item's score that differs between checkpoints, averaged
    over items: p (1 - p) when every item has chance p, less when items are easy or hard for all.
    """
    return expected_maximum(looks) * float(np.sqrt(item_variance / items))


def _normal_nodes() -> tuple[Array, Array]:
    """Gauss-Hermite nodes and weights of the standard normal distribution."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    return nodes, weights / weights.sum()
