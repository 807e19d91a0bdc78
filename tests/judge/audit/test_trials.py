"""Rates, forecasts and choices: intervals agree with simulation and closed forms."""

import numpy as np
import pytest

from assay.judge.audit.rules import forecast_total
from assay.judge.intervals import wilson
from tests.judge.audit.faults import found, metric


@pytest.mark.parametrize("steps", [[3, 5], [2, 3, 7, 9], [1, 2, 3, 4, 5, 6]])
def test_the_forecast_covers_as_often_as_it_says(steps: list[int]):
    draws = np.random.default_rng(3).normal(10, 1, (4000, 60)).cumsum(1)
    covered = 0
    for totals in draws:
        read = [float(totals[step - 1]) for step in steps]
        _, interval = forecast_total(steps, read, 60)
        assert interval is not None
        covered += interval.low <= totals[-1] <= interval.high
    assert covered / len(draws) == pytest.approx(0.95, abs=0.011)


def test_a_rate_has_the_interval_of_its_last_reading():
    text = metric(steps=[3, 5], counts=[2, 2], totals=[44, 64])
    (flaw,) = found(text, "few_trials")
    assert (flaw.values["low"], flaw.values["high"]) == pytest.approx(
        (100 * wilson(2, 64).low, 100 * wilson(2, 64).high)
    )
    assert flaw.severity == "note"
    assert found(text + 'reads = "stable"\n', "few_trials")[0].severity == "warning"


def test_new_events_are_those_between_the_readings():
    text = metric(steps=[3, 5], counts=[2, 4], totals=[44, 64], cumulative="true")
    (flaw,) = found(text, "cumulative_as_rate")
    assert (flaw.values["new"], flaw.values["trials"]) == (2, 20)
