"""Rates of a step carry intervals, and the change between two steps allows for both."""

import pytest

from assay.judge.binomial import newcombe
from assay.judge.intervals import change, counted, grouped, wilson


def test_the_difference_of_wilsons_is_newcombes_published_example():
    # Newcombe 1998, Statistics in Medicine 17:873, table II, method 10: 56/70 and 48/80.
    found = change(counted(48 / 80, 80), counted(56 / 70, 70))
    assert found is not None
    assert (found.low, found.high) == pytest.approx((0.0524, 0.3339), abs=5e-5)
    same = newcombe(48, 80, 56, 70)
    assert (same.low, same.high, same.method) == (found.low, found.high, "Newcombe")


def test_completions_of_one_prompt_are_no_independent_trials():
    values = [1.0] * 32 + [0.0] * 32
    groups = [f"prompt {i // 8}" for i in range(64)]
    found = grouped(values, groups, (0.0, 1.0))
    assert (found.value, found.trials, found.clusters) == (0.5, 64, 8)
    assert found.interval is not None
    assert found.interval.half_width > 1.5 * wilson(32, 64).half_width
