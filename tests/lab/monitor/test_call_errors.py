"""Errors of calls by type with their effect, costs of steps, problems and calls, and savings."""

import pytest

from assay.judge.health_checks import Spending
from assay.judge.trends import forecast_total
from assay.lab.monitor.call_errors import CallReport, failure_type, savings
from assay.lab.monitor.progress import progress
from assay.runs.run_directory import RunDirectory
from tests.lab.monitor.program_runs import Made, add_calls, call, program_run


def report(run: RunDirectory, first: int) -> CallReport:
    found = progress(run, "rl", first)
    assert found is not None and found.calls is not None
    return found.calls


@pytest.mark.parametrize(
    ("why", "name"),
    [
        ("endpoint: HTTP 429: slow down", "HTTP 429"),
        ("endpoint: deadline", "timeout"),
        ("endpoint: garbled answer: {", "unreadable answer"),
        ("no such thing", "other"),
    ],
)
def test_failures_have_types(why, name):
    assert failure_type(why) == name


def flaky(run: RunDirectory, since: int) -> None:
    """A call for each completion; the first of each prompt fails after a step."""
    calls = []
    for step in range(1, 11):
        for prompt in range(4):
            for number in range(4):
                failed = step > since and not number
                more = (
                    {"status": "failed", "why": "endpoint: HTTP 429", "cost": 0} if failed else {}
                )
                calls.append(call(step, f"row_{step}_{prompt}", number, **more))
    add_calls(run, calls)


def test_failed_calls_are_counted_by_type_and_found_to_rise(tmp_path):
    run = program_run(tmp_path, lambda s, p, n: Made(), 10)
    flaky(run, since=5)
    (error,) = report(run, 5).errors
    assert (error.source, error.name) == ("helper", "HTTP 429")
    assert (error.before.count, error.before.trials) == (0, 80)
    assert (error.after.count, error.after.trials) == (20, 80)
    assert error.change.direction == "rise"


def test_the_effect_of_failed_calls_is_that_on_the_completions_they_hit(tmp_path):
    def of(step: int, prompt: int, number: int) -> Made:
        return Made("model" if step > 5 and not number else "")

    run = program_run(tmp_path, of, 10)
    flaky(run, since=5)
    (effect,) = report(run, 5).effects
    assert (effect.source, effect.hit, effect.others) == ("helper", 20, 140)
    assert effect.unanswered.before is not None and effect.unanswered.after is not None
    assert (effect.unanswered.before.value, effect.unanswered.after.value) == (0, 1)
    assert effect.unanswered.direction == "rise"
    assert effect.reward.after is None, "an abstention has no reward"


def test_failed_calls_without_an_effect_have_none(tmp_path):
    run = program_run(tmp_path, lambda s, p, n: Made(solved=bool(p % 2)), 10)
    flaky(run, since=5)
    (effect,) = report(run, 5).effects
    assert effect.unanswered.direction == "none" and effect.reward.direction == "none"


def test_programs_that_use_what_the_interface_lacks_are_api_errors_too(tmp_path):
    def of(step: int, prompt: int, number: int) -> Made:
        return Made(("llm_attribute", "unknown_attribute", "", "")[number] if step > 5 else "")

    found = report(program_run(tmp_path, of, 10), 5)
    assert {e.name: (e.source, e.after.count) for e in found.errors} == {
        "llm_attribute": ("program", 20),
        "unknown_attribute": ("program", 20),
    }
    (effect,) = found.effects
    assert effect.reward.after is not None and effect.reward.after.value == pytest.approx(-0.2)
    assert effect.reward.direction == "fall"


def test_costs_are_of_steps_completions_and_calls(tmp_path):
    run = program_run(tmp_path, lambda s, p, n: Made(), 10)
    rows = [(step, f"row_{step}_{p}", n) for step in range(1, 11) for p in range(4) for n in (0, 1)]
    add_calls(run, [call(*row, cost=1_000_000 if row[0] <= 5 else 3_000_000) for row in rows * 2])
    found = report(run, 5)
    means = {
        row.per: (row.change.before.value, row.change.after.value)
        for row in found.costs
        if row.change.before and row.change.after
    }
    assert means["call"] == pytest.approx((0.001, 0.003))
    assert means["problem"] == pytest.approx((0.002, 0.006))
    assert means["step"] == pytest.approx((0.016, 0.048))
    assert {row.change.direction for row in found.costs} == {"rise"}
    assert not found.noted and not found.unknown_cost


def test_without_a_ledger_costs_are_those_that_rewards_noted(tmp_path):
    found = report(program_run(tmp_path, lambda s, p, n: Made(cost=0.01), 4), 2)
    assert found.noted
    assert {row.per: row.change.direction for row in found.costs} == {
        "step": "none",
        "problem": "none",
    }


def test_a_cost_that_is_not_known_is_no_number(tmp_path):
    run = program_run(tmp_path, lambda s, p, n: Made(), 4)
    add_calls(run, [call(1, "row_1_0", 0, cost=None, prompt_price=None, completion_price=None)])
    found = report(run, 2)
    assert found.unknown_cost and found.costs == ()


def test_a_saving_is_the_plan_minus_the_forecast_with_its_interval():
    ahead = forecast_total([1.0, 1.2, 0.8, 1.0], 6, 10)
    assert ahead is not None
    for plan, direction in ((20.0, "rise"), (ahead.value, "none"), (4.5, "fall")):
        (found,) = savings([Spending("helper/executor/cost", 4.0, plan, ahead)])
        assert found.direction == direction
        assert found.value == pytest.approx(plan - ahead.value)
        assert found.interval.low == pytest.approx(plan - ahead.interval.high)
    assert savings([Spending("seconds", 4.0, 20.0, ahead)]) == ()


def test_no_saving_is_claimed_without_a_plan(tmp_path):
    spent = {"helper/executor/cost": lambda step: 0.001 + 0.0001 * (step % 2)}
    plain = progress(program_run(tmp_path, lambda s, p, n: Made(), 12, metrics=spent))
    assert plain is not None and plain.savings == ()
    assert plain.forecasts["helper/executor/cost"].at == 40
    head = 'budget = { "helper/executor/cost" = 1.0 }'
    planned = progress(
        program_run(tmp_path / "b", lambda s, p, n: Made(), 12, metrics=spent, head=head)
    )
    assert planned is not None
    (saving,) = planned.savings
    assert saving.plan == 1.0 and saving.direction == "rise"
