"""A forecast of a run's cost counts each step once: its last try, and none twice."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from assay.judge.trends import Forecast
from assay.lab.monitor.run_costs import run_costs
from assay.runs.cost_ledger import LedgerCall, read_calls
from assay.runs.run_directory import RunDirectory
from assay.runs.status import hold_run
from tests.lab.monitor.program_runs import Made, add_calls, call, program_run

UNIT = 10**9
STEPS, PLANNED = 10, 40


def tries(step: int, *costs: float) -> list[LedgerCall]:
    return [call(step, f"row_{step}", n, cost=round(c * UNIT)) for n, c in enumerate(costs)]


def steps(first: int, last: int) -> list[LedgerCall]:
    """Steps that cost 1 each."""
    return [each for step in range(first, last + 1) for each in tries(step, 0.5, 0.5)]


def spent_run(folder: Path, *openings: Sequence[LedgerCall]) -> RunDirectory:
    """Ten of forty steps are recorded; each process of the run made the calls of one opening."""
    run = program_run(folder, lambda s, p, n: Made(), STEPS)
    for calls in openings:
        add_calls(run, calls)
    return run


def forecast(run: RunDirectory, *, live: bool = True) -> Forecast:
    if not live:
        found = run_costs(run).ahead
    else:
        with hold_run(run.path):
            found = run_costs(run).ahead
    assert found is not None and found.forecast is not None
    return found.forecast


@pytest.mark.parametrize(("so_far", "whole"), [((), 40), ((0.3,) * 3, 40), ((0.7,) * 3, 41.1)])
def test_a_step_under_way_is_one_of_those_to_come(tmp_path, so_far, whole):
    run = spent_run(tmp_path, steps(1, STEPS) + tries(11, *so_far))
    assert forecast(run).value == pytest.approx(whole)


def test_a_step_that_a_kill_ended_is_spent_and_to_come(tmp_path):
    run = spent_run(tmp_path, steps(1, STEPS) + tries(11, 0.9))
    assert forecast(run, live=False).value == pytest.approx(40.9)


def test_a_try_that_a_kill_ended_is_no_part_of_what_its_step_costs(tmp_path):
    run = spent_run(tmp_path, steps(1, 5) + tries(6, 0.4, 0.5), steps(6, STEPS))
    found = forecast(run)
    assert found.value == pytest.approx(40.9)
    assert (found.interval.low, found.interval.high) == pytest.approx((40.9, 40.9))


def test_steps_that_are_repeated_from_a_checkpoint_count_as_spent_once_more(tmp_path):
    again = steps(4, 8), steps(7, STEPS) + tries(11, 0.2)
    run = spent_run(tmp_path, steps(1, 6) + tries(7, 0.25), *again)
    assert forecast(run).value == pytest.approx(40 + 3 + 0.25 + 2)
    assert {c.opening for c in read_calls(run.path) if c.step == 7} == {0, 1, 2}


def test_nothing_is_forecast_below_what_is_spent(tmp_path):
    run = spent_run(tmp_path, steps(1, STEPS) + tries(11, 100))
    found = forecast(run)
    assert found.value == pytest.approx(139) and found.interval.low >= 110


def test_what_may_have_been_charged_counts(tmp_path):
    lost = [
        call(n, f"row_{n}", 9, cost=None, uncertain=UNIT, status="failed")
        for n in range(1, STEPS + 1)
    ]
    assert forecast(spent_run(tmp_path, steps(1, STEPS) + lost)).value == pytest.approx(80)
