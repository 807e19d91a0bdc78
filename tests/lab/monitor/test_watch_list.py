"""What to watch next: figures beside their bounds, and a program before and after."""

import math
from dataclasses import asdict

import pytest

from assay.lab.monitor.progress import Progress, progress
from assay.lab.monitor.watch_list import Watched, next_report
from assay.runs.run_directory import RunDirectory
from tests.lab.monitor.program_runs import Made, program_run

TABLES = """
[milestone.form]
stage = "rl"
step = 20
metric = "format_share"
above = 0.95

[milestone.past]
stage = "rl"
step = 5
metric = "format_share"
above = 0.5

[guard.cut]
metric = "truncated_share"
above = 0.5
steps = 3
"""
METRICS = {
    "format_share": lambda step: 0.9,
    "truncated_share": lambda step: 0.28,
    "repeated_share": lambda step: 0.8,
    "fallback_share": lambda step: 0.001,
    "abstained_share": lambda step: 0.001,
    "rollout_gap_mean": lambda step: 0.001,
    "kl": lambda step: 0.001,
    "signal_share": lambda step: 0.9,
}


def told(run: RunDirectory, **span: int) -> Progress:
    found = progress(run, "rl", span.get("first"), span.get("last"))
    assert found is not None
    return found


def watched(found: Progress, kind: str, name: str) -> Watched:
    (one,) = [each for each in found.watched if (each.kind, each.name) == (kind, name)]
    return one


@pytest.fixture
def found(tmp_path) -> Progress:
    run = program_run(tmp_path, lambda s, p, n: Made(), 12, tables=TABLES, metrics=METRICS)
    return told(run)


def test_rules_say_how_far_their_figure_is_from_the_threshold(found):
    cut = watched(found, "rule", "truncated")
    assert (cut.metric, cut.side, cut.bound, cut.beyond) == ("truncated_share", "above", 0.3, False)
    assert cut.now == pytest.approx(0.28) and asdict(cut)["distance"] == pytest.approx(0.02)


def test_what_is_beyond_its_bound_comes_first_and_the_nearest_of_the_rest_follow(found):
    assert found.watched[0].name == "repeated_samples" and found.watched[0].beyond
    calm = [each.name for each in found.watched if each.kind == "rule" and not each.beyond]
    assert calm == ["truncated", "abstentions", "fallbacks", "rollout_gap", "kl_blow_up"]


def test_milestones_ahead_come_with_their_forecast_and_those_scored_do_not(found):
    ahead = watched(found, "milestone", "form")
    assert (ahead.side, ahead.bound, ahead.step) == ("above", 0.95, 20)
    assert ahead.distance == pytest.approx(0.05)
    assert ahead.forecast is not None and ahead.forecast.at == 20
    assert not [each for each in found.watched if each.name == "past"]


def test_guards_are_watched_with_their_present_figure(found):
    guard = watched(found, "guard", "cut")
    assert (guard.bound, guard.beyond) == (0.5, False)
    assert guard.distance == pytest.approx(0.22)


def test_a_figure_that_is_not_finite_meets_its_guard_and_is_not_an_older_one(tmp_path):
    metrics = {"truncated_share": lambda step: 0.1 if step < 4 else math.nan}
    run = program_run(tmp_path, lambda s, p, n: Made(), 4, tables=TABLES, metrics=metrics)
    guard = watched(told(run), "guard", "cut")
    assert (guard.now, guard.distance, guard.beyond) == (None, None, True)


def test_a_guard_whose_metric_is_not_recorded_is_not_beyond(tmp_path):
    run = program_run(tmp_path, lambda s, p, n: Made(), 2, tables=TABLES)
    guard = watched(told(run), "guard", "cut")
    assert (guard.now, guard.beyond) == (None, False)


def test_the_list_is_for_the_steps_until_the_next_report(found):
    assert found.next_report == 15
    assert next_report(found.experiment, 39, 40) == 40
    assert next_report(found.experiment, 40, 40) is None


def graded(step: int, prompt: int, number: int) -> Made:
    """Two of four completions fail, one is wrong, one right."""
    kinds = (Made("syntax"), Made("raised KeyError"), Made(solved=False), Made())
    return kinds[(number + step) % 4]


def test_programs_before_and_after_are_medians_of_the_first_row_of_both_steps(tmp_path):
    def rows(step: int, prompt: int) -> str:
        return f"row_{prompt}" if prompt > 1 else f"row_{step}_{prompt}"

    pair = told(program_run(tmp_path, graded, 4, rows=rows), first=2, last=4).pair
    assert pair is not None and pair.same_row
    assert (pair.before.facts.row_id, pair.after.facts.row_id) == ("row_2", "row_2")
    assert (pair.before.facts.step, pair.after.facts.step) == (2, 4)
    # Rewards are -0.2, -0.2, 0, 1: the lower median is the later of the two failures.
    assert pair.before.facts.reward == pytest.approx(-0.2)
    assert pair.before.facts.error == "raised KeyError" and pair.before.facts.sample == 3
    assert "class Workflow" in pair.before.program


def test_without_a_common_row_each_step_gives_its_own_median(tmp_path):
    pair = told(program_run(tmp_path, graded, 4), first=2, last=4).pair
    assert pair is not None and not pair.same_row
    assert pair.before.facts.row_id.startswith("row_2_")
    assert pair.after.facts.row_id.startswith("row_4_")


def test_one_step_and_steps_without_rewards_have_no_pair(tmp_path):
    assert told(program_run(tmp_path, graded, 1)).pair is None
    run = program_run(tmp_path / "b", lambda s, p, n: Made("model"), 2)
    assert told(run).pair is None
