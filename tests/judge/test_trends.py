"""Trends and forecasts: closed forms, other people's regression, and coverage by simulation."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from assay.judge.selection import forecast_total, trend
from tests.few import few

STEPS = list(range(1, 31))
# Neighbours on opposite sides of the line: no resemblance, so the textbook's formulas hold.
WOBBLE = [0.5 * s + (0.3 if s % 2 else -0.3) for s in STEPS]


def textbook(steps: Sequence[int], values: Sequence[float]) -> Any:
    """SciPy's regression, whose result has no useful type."""
    return stats.linregress(steps, values)


def series(seed: int, slope: float, resemblance: float = 0.0, count: int = 30) -> list[float]:
    """A line with scatter whose neighbours correlate by `resemblance`."""
    draw = np.random.default_rng(seed)
    noise = [draw.normal()]
    for _ in range(count - 1):
        noise.append(resemblance * noise[-1] + draw.normal() * (1 - resemblance**2) ** 0.5)
    return [slope * s + e for s, e in zip(range(1, count + 1), noise, strict=True)]


@given(st.floats(-50, 50), st.floats(-1e3, 1e3), st.integers(3, 40))
def test_an_exact_line_gives_its_slope_without_any_width(slope, start, count):
    found = trend(range(count), [start + slope * s for s in range(count)])
    assert found is not None
    assert found.slope == pytest.approx(slope, abs=1e-9)
    assert found.interval.half_width == 0
    assert (found.start, found.end) == pytest.approx((start, start + slope * (count - 1)), abs=1e-6)


def test_slope_and_interval_are_the_textbooks_where_neighbours_do_not_resemble_each_other():
    found, expected = trend(STEPS, WOBBLE), textbook(STEPS, WOBBLE)
    assert found is not None
    half = stats.t.ppf(0.975, len(STEPS) - 2) * expected.stderr
    assert found.slope == pytest.approx(expected.slope, rel=1e-4)
    assert found.interval.half_width == pytest.approx(half, rel=5e-3)
    assert found.rises and not found.falls


def false_slopes(resemblance: float, count: int, level: float, runs: int = 400) -> float:
    """Share of rows around a line whose interval does not hold its slope."""
    rows = [series(seed, 0.2, resemblance, count) for seed in range(runs)]
    found = [trend(range(count), row, level) for row in rows]
    return float(np.mean([not t.interval.low <= 0.2 <= t.interval.high for t in found if t]))


@few("resemblance", [0.6, 0.9, 0.0], fast=1)
@pytest.mark.slow
def test_slopes_are_false_as_rarely_as_they_say_however_much_neighbours_resemble_each_other(
    resemblance,
):
    # Lag-one autocorrelation as it was estimated left 14 % at 0.9, for 1 % said.
    assert false_slopes(resemblance, 20, 0.99) <= 0.03
    assert false_slopes(resemblance, 50, 0.95) <= 0.075
    if resemblance < 0.9:  # ten steps cannot tell 0.9 from a line: 10 % for 5 % said
        assert false_slopes(resemblance, 10, 0.95) <= 0.075


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 2.0], [None, 1.0, float("inf")]])
def test_two_points_have_no_trend(values):
    assert trend(range(len(values)), values) is None


def test_steps_of_one_cost_make_an_exact_total():
    found = forecast_total([2.0] * 5, 495, 500)
    assert found is not None
    assert found.value == found.interval.low == found.interval.high == 1000.0


def test_a_total_holds_what_is_spent_before_and_never_less_than_what_is_spent():
    found = forecast_total([0.1, 5.0], 1, 3, before=7.0)
    assert found is not None
    assert 7 + 5.1 + 2.55 <= found.value <= 7 + 5.1 + 5.0
    assert found.interval.low == pytest.approx(12.1)


@few("resemblance", [0.6, 0.9, 0.0], fast=1)
def test_a_total_holds_the_sum_that_comes_as_often_as_it_says(resemblance):
    hits = []
    for seed in range(150):
        costs = [20 + cost for cost in series(seed, 0.0, resemblance, count=60)]
        found = forecast_total(costs[:20], 40, 60)
        assert found is not None
        hits.append(found.interval.low <= sum(costs) <= found.interval.high)
    # As if the steps were independent, 39 % at 0.9.
    assert np.mean(hits) >= 0.9


@pytest.mark.parametrize("value", [0.02, 0.1, 1 / 3, 0.0, -7.3])
@pytest.mark.parametrize("steps", [5, 8, 20])
def test_a_constant_has_no_slope_whatever_rounding_does(value, steps):
    found = trend(range(4, 4 + steps), [value] * steps)
    assert found is not None and found.slope == found.interval.low == found.interval.high == 0
    assert not found.rises and not found.falls and found.start == found.end == value
