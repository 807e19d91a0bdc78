"""The rule over training rewards takes the end of a shown rise and nothing that noise makes."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from assay.judge.selection import longest_rise

CUTS = [10, 20, 30, 40]
STEPS = list(range(1, 41))


def noisy(levels: Sequence[float], seed: int = 0, spread: float = 0.02) -> list[float]:
    """Four stretches of ten steps, each going evenly from one level to the next, with noise."""
    line = np.concatenate([np.linspace(a, b, 11)[1:] for a, b in pairwise(levels)])
    return list(line + np.random.default_rng(seed).normal(0, spread, len(line)))


@pytest.mark.parametrize(
    ("levels", "window"),
    [
        ((0, 0.3, 0.5, 0.7, 0.9), (0, 40)),  # rises to the end
        ((0, 0.4, 0.8, 0.4, 0), (0, 20)),  # rises and collapses
        ((0, 0.6, 1.2, 1.8, 1.4), (0, 30)),  # the whole is a rise still, but it ends in a fall
        ((0.9, 0.5, 0, 0.4, 0.9), (10, 40)),  # falls first
    ],
)
def test_the_end_of_the_longest_rise_is_taken_and_no_collapse_after_it(levels, window):
    found = longest_rise(STEPS, noisy(levels), CUTS)
    assert found is not None
    assert (found.after, found.until) == window
    assert found.trend.interval.low > 0
    assert (found.trend.first, found.trend.last) == (window[0] + 1, window[1])


def test_nothing_is_chosen_of_rewards_that_fall_or_stay():
    assert longest_rise(STEPS, noisy((0.9, 0.7, 0.5, 0.3, 0.1)), CUTS) is None
    assert longest_rise(STEPS, [0.5] * 40, CUTS) is None
    assert longest_rise([], [], []) is None


def test_the_earliest_of_equally_long_rises_is_taken():
    # Two rises of ten steps, and a fall of twenty between them.
    found = longest_rise(STEPS, noisy((0.5, 0.9, 0.5, 0.1, 0.5), spread=0.01), CUTS)
    assert found is not None and (found.after, found.until) == (0, 10)
