"""Trends and forecasts: closed forms, other people's regression, and coverage by simulation."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from assay.judge.trends import forecast_total, forecast_value, trend

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
    assert found.slope == pytest.approx(expected.slope)
    assert found.interval.half_width == pytest.approx(half)
    assert found.rises and not found.falls


@given(st.integers(0, 10_000), st.floats(0.01, 100), st.integers(-50, 50))
def test_a_trend_scales_with_its_values_and_does_not_depend_on_where_steps_begin(
    seed, scale, shift
):
    values = series(seed, 0.1, count=12)
    found = trend(range(12), values)
    moved = trend(range(shift, shift + 12), [scale * v for v in values])
    assert found is not None and moved is not None
    assert moved.slope == pytest.approx(scale * found.slope, rel=1e-6, abs=1e-9)
    assert moved.interval.half_width == pytest.approx(scale * found.interval.half_width, rel=1e-6)


def covered(resemblance: float) -> float:
    found = [trend(STEPS, series(seed, 0.2, resemblance)) for seed in range(600)]
    return float(np.mean([t.interval.low <= 0.2 <= t.interval.high for t in found if t]))


def test_intervals_of_slopes_cover_what_they_say():
    assert 0.93 <= covered(0.0) <= 0.985


def test_steps_that_resemble_their_neighbours_do_not_count_in_full():
    values = [series(seed, 0.2, 0.7) for seed in range(300)]
    fits = [textbook(STEPS, v) for v in values]
    reach = stats.t.ppf(0.975, len(STEPS) - 2)
    naive = np.mean([abs(r.slope - 0.2) <= reach * r.stderr for r in fits])
    assert naive < 0.75
    assert covered(0.7) > naive + 0.1


def test_values_that_are_not_finite_or_absent_are_left_out():
    found = trend([1, 2, 3, 4, 5], [1.0, None, 3.0, float("nan"), 5.0])
    assert found is not None and (found.steps, found.slope) == (3, pytest.approx(1.0))


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 2.0], [None, 1.0, float("inf")]])
def test_two_points_have_no_trend(values):
    assert trend(range(len(values)), values) is None
    assert forecast_value(range(len(values)), values, 9) is None


def test_a_forecast_of_a_value_is_the_textbooks_prediction_interval():
    found, line = forecast_value(STEPS, WOBBLE, 50), textbook(STEPS, WOBBLE)
    assert found is not None
    count, middle = len(STEPS), float(np.mean(STEPS))
    residuals = np.array(WOBBLE) - line.intercept - line.slope * np.array(STEPS)
    error = (residuals @ residuals / (count - 2)) ** 0.5
    spread = ((np.array(STEPS) - middle) ** 2).sum()
    half = (
        stats.t.ppf(0.975, count - 2) * error * (1 + 1 / count + (50 - middle) ** 2 / spread) ** 0.5
    )
    assert found.value == pytest.approx(line.intercept + 50 * line.slope)
    assert found.interval.half_width == pytest.approx(half)
    assert (found.at, found.assumption, found.steps) == (50, "line", 30)


def test_a_forecast_holds_the_later_value_as_often_as_it_says():
    hits = []
    for seed in range(600):
        values = series(seed, 0.2, count=40)
        found = forecast_value(STEPS, values[:30], 40)
        assert found is not None
        hits.append(found.interval.low <= values[39] <= found.interval.high)
    assert 0.93 <= np.mean(hits) <= 0.985


def test_a_forecast_is_wider_the_farther_it_looks():
    near, far = (forecast_value(STEPS, WOBBLE, at) for at in (31, 300))
    assert near is not None and far is not None
    assert far.interval.half_width > 2 * near.interval.half_width


def test_steps_of_one_cost_make_an_exact_total():
    found = forecast_total([2.0] * 5, 495, 500)
    assert found is not None
    assert found.value == found.interval.low == found.interval.high == 1000.0


def test_a_total_holds_what_is_spent_before_and_never_less_than_what_is_spent():
    found = forecast_total([0.1, 5.0], 1, 3, before=7.0)
    assert found is not None
    assert found.value == pytest.approx(7 + 5.1 + 2.55)
    assert found.interval.low == pytest.approx(12.1)


def test_five_steps_leave_a_total_of_five_hundred_wide_open():
    costs = [0.00130, 0.00208, 0.00286, 0.00112, 0.00120]
    found = forecast_total(costs, 495, 500)
    assert found is not None
    assert found.value == pytest.approx(100 * sum(costs))
    assert found.interval.half_width > 0.4 * found.value


def test_a_total_holds_the_sum_that_comes_as_often_as_it_says():
    draw = np.random.default_rng(1)
    hits = []
    for _ in range(600):
        costs = [float(c) for c in draw.normal(10, 2, 60)]
        found = forecast_total(costs[:10], 50, 60)
        assert found is not None
        hits.append(found.interval.low <= sum(costs) <= found.interval.high)
    assert 0.92 <= np.mean(hits) <= 0.98


def test_one_step_forecasts_nothing():
    assert forecast_total([1.0], 9, 10) is None
