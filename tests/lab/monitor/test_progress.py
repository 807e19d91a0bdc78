"""Progress is recomputed from the records: rates, trends, milestones, budgets, what changed."""

import json
from pathlib import Path

import numpy as np
import pytest

from assay.errors import InputError
from assay.experiment.read_file import read_experiment
from assay.experiment.tables import MilestoneSpec
from assay.judge.health_checks import RuleState
from assay.judge.intervals import counted, grouped, mean_interval, wilson
from assay.lab.monitor.guards import milestone_states, scored
from assay.lab.monitor.progress import MetricRow, Progress, progress, report_file, step_before
from assay.lab.run.runner import why_due
from assay.runs.history import History
from assay.runs.records import write_samples
from assay.runs.run_directory import RunDirectory
from assay.runs.run_files import write_listed
from tests.lab.watched import change_metrics, watched_run
from tests.pages.synthetic import empty_run
from tests.sample_lines import read_samples


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return watched_run(tmp_path)


def told(run: RunDirectory, **span: object) -> Progress:
    found = progress(run, **span)  # type: ignore[arg-type]
    assert found is not None
    return found


def row(found: Progress, metric: str) -> MetricRow:
    (one,) = [each for each in found.rows if each.metric == metric]
    return one


def test_a_rate_is_counted_again_from_the_samples_by_prompt(run):
    reward = row(told(run), "reward_mean")
    samples = read_samples(run.samples("rl", 24))
    rewards = np.array([s["reward"] for s in samples])
    assert reward.after is not None and reward.after.interval is not None
    assert reward.after.value == rewards.mean()
    assert (reward.after.trials, reward.after.clusters) == (32, 4)
    expected = mean_interval(rewards, tuple(s["row_id"] for s in samples), (0.0, 1.0))
    assert reward.after.interval == expected


def test_a_share_of_another_task_takes_its_own_trials_else_the_completions(run):
    change_metrics(run, completions=32, fallback_share=0.25, api_error_share=0.1)
    change_metrics(run, api_error_share_trials=200)
    found = told(run)
    fallback, errors = row(found, "fallback_share").after, row(found, "api_error_share").after
    assert fallback is not None and fallback.interval == wilson(8, 32)
    assert errors is not None and errors.interval == wilson(20, 200)
    assert "api_error_share_trials" not in [each.metric for each in found.rows]


def with_marks(run: RunDirectory) -> None:
    """The last step notes a format, a fallback and an API error that follow the prompt."""
    file = run.samples("rl", 24)
    samples = read_samples(file)
    first = samples[0]["row_id"]
    for each in samples:
        off = each["row_id"] == first
        each["parts"] = json.dumps({"format": float(not off)})
        each["facts"] = json.dumps({"solved/fallback": float(off), "api_error": "x" * off})
    write_samples(file, samples)


@pytest.mark.parametrize(("metric", "value"), [("format_share", 0.75), ("fallback_share", 0.25)])
def test_marks_of_rewards_are_counted_with_prompts_as_clusters(run, metric, value):
    """One of four prompts fails with all its completions: four trials, not 32."""
    with_marks(run)
    change_metrics(run, completions=32, **{metric: value}, **{f"{metric}_trials": 32})
    found = row(told(run), metric).after
    assert found is not None and found.interval is not None
    assert (found.value, found.trials, found.clusters) == (value, 32, 4)
    rows = [str(n // 8) for n in range(32)]
    marks = [float(n < 32 * value) for n in range(32)]
    assert found.interval == grouped(marks, rows, (0.0, 1.0)).interval
    alone = wilson(32 * value, 32)
    assert found.interval.low < alone.low and found.interval.high > alone.high
    above = MilestoneSpec(stage="rl", step=24, metric=metric, above=alone.low - 0.01)
    assert scored(above, counted(value, 32)) == "met" and scored(above, found) == "undecided"


def test_a_mean_over_groups_has_no_interval_of_completions(run):
    change_metrics(run, completions=32, different_trees_share=0.5)
    found = row(told(run), "different_trees_share").after
    assert found is not None and (found.value, found.interval) == (0.5, None)


def test_a_known_slope_is_found_between_the_two_steps_alone(run):
    change_metrics(run, cost=lambda s: 0.01 * s if s <= 12 else 9.0)
    cost = row(told(run, first=2, last=12), "cost")
    assert cost.trend is not None
    assert cost.trend.slope == pytest.approx(0.01)
    assert (cost.trend.first, cost.trend.last, cost.trend.steps) == (2, 12, 11)
    assert cost.before is not None and cost.before.value == pytest.approx(0.02)
    assert cost.moved


def test_progress_counts_from_the_last_report_else_from_the_first_step(run):
    assert (told(run).first, told(run).last) == (1, 24)
    for step in (5, 20, 24):
        file = report_file(run, "rl", step)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    found = told(run)
    assert (found.first, found.last) == (20, 24)
    assert (told(run, last=20).first, told(run, last=5).first) == (5, 1)
    assert told(run, first=2).first == 2


def test_a_run_without_a_step_has_no_progress(tmp_path):
    run = empty_run(tmp_path)
    assert progress(run) is None
    with pytest.raises(InputError, match="has recorded no step"):
        progress(run, first=1)
    with pytest.raises(InputError, match="'sft' has recorded no step"):
        progress(run, stage="sft")


def milestones(found: Progress) -> dict[str, RuleState]:
    return {each.rule: each for each in found.states if each.consequence == "expect"}


def test_milestones_are_scored_when_their_step_is_reached(run):
    states = milestones(told(run))
    assert {n: m.state for n, m in states.items()} == {
        "early": "met",
        "hopeful": "missed",
        "fine": "undecided",
        "late": "undecided",
        "done": "met",
    }
    hopeful = states["hopeful"].reading
    assert hopeful is not None and hopeful.figures.keys() >= {"low", "high", "trials"}


def test_before_its_step_a_milestone_is_pending(run):
    states = milestones(told(run, last=10))
    assert states["late"].state == states["done"].state == "pending"


@pytest.mark.parametrize(
    ("right", "trials", "state"),
    [(0, 500, "met"), (0, 64, "undecided"), (1, 100, "undecided"), (30, 100, "missed")],
)
def test_errors_under_one_percent_need_trials_enough_to_be_believed(right, trials, state):
    spec = MilestoneSpec(stage="rl", step=20, metric="error_share", below=0.01)
    assert scored(spec, counted(right / trials, trials)) == state


def test_a_milestone_without_a_step_is_open_until_it_is_met(run):
    text = '\n[milestone.any]\nstage = "rl"\nmetric = "cost"\nabove = 5.0\n'
    write_listed(run.path, run.spec, run.spec.read_text() + text)
    change_metrics(run, cost=float)
    found = told(run, last=5)
    late = told(run, last=6)
    assert [milestones(each)["any"].state for each in (found, late)] == ["open", "met"]
    run.metrics.unlink()
    states = milestone_states(History(run))
    assert {m.state for m in states} == {"pending"}


def test_findings_are_told_apart_by_when_they_began(run):
    change_metrics(run, abstained_share=lambda s: 0.9 if s > 12 else 0.0)
    change_metrics(run, rollout_gap_mean=lambda s: 0.9 if s < 8 else 0.01)
    found = told(run, first=10, last=24)
    assert found.new == {"abstentions"} and found.gone == {"rollout_gap"}
    assert "abstentions" in {d.code for d in found.findings}


def test_a_budget_is_summed_over_the_stages_and_forecast_to_the_end(run):
    change_metrics(run, seconds=100.0)
    found = told(run)
    (seconds,) = found.spending
    assert seconds.spent == pytest.approx(14 * 4.2 + 24 * 100.0)
    assert seconds.forecast is not None and seconds.forecast.at == 40
    assert seconds.forecast.value == pytest.approx(14 * 4.2 + 40 * 100.0)
    assert seconds.forecast.interval.half_width == pytest.approx(0, abs=1e-9)
    assert "over_budget" not in {d.code for d in found.findings}
    change_metrics(run, seconds=130.0)
    over = {d.code: d for d in told(run).findings}["over_budget"]
    assert over.severity == "warning"
    change_metrics(run, seconds=300.0)
    assert {d.code: d for d in told(run).findings}["over_budget"].severity == "error"


def test_forecasts_end_where_the_stage_ends(run):
    assert {name: each.at for name, each in told(run).forecasts.items()} == {"seconds": 40}
    change = run.spec.read_text().replace("steps = 40", "steps = 24")
    write_listed(run.path, run.spec, change)
    assert told(run).forecasts == {}


def test_reports_are_due_every_so_many_steps_at_milestones_and_at_the_end(run):
    experiment = read_experiment(run.spec)
    due = {step: why_due(experiment, "rl", step, 40) for step in range(1, 41)}
    milestones, steps = (5, 10, 20, 24), (15, 25, 30, 35, 40)
    expected = dict.fromkeys(milestones, "milestone") | dict.fromkeys(steps, "steps")
    assert {s: w for s, w in due.items() if w} == expected
    assert why_due(experiment, "sft", 13, 13) == "end"


def test_nine_steps_foretell_nothing(run):
    few, enough = told(run, last=9), told(run, last=10)
    assert few.forecasts == {} and enough.forecasts
    assert few.spending and all(each.forecast is None for each in few.spending)


def test_the_last_steps_or_generations_are_counted_from_the_end_in_whole_steps(run):
    change_metrics(run, completions=16)
    steps = [line["step"] for line in History(run).lines("rl")]
    assert step_before(run, "rl", 3, 0) == steps[-4]
    assert step_before(run, None, 0, 16) == steps[-2]
    assert step_before(run, None, 0, 17) == steps[-3]
    assert step_before(run, "rl", 10**6, 0) == steps[0]
