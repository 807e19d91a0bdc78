"""The check names helper models that are not declared, and what those that are will cost."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from assay.data.episode import Reward
from assay.errors import InputError
from assay.labs.math.rewards import REWARDS
from assay.labs.workflows.task import TASK
from assay.tasks.helper_model import HelperModel
from assay.tasks.judge_reward import JudgeReward, Pair
from tests.lab.sound_lab import found, look, make_sound_lab

JUDGE = """
[model.judge]
source = "scripted:judge.jsonl"
sampling = { max_tokens = 10 }
price = { prompt = 0.0, completion = 1e6 }
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Path]:
    judge = JudgeReward(lambda batch, helpers: [Reward(1.0)] * len(batch), helpers=("judge",))
    REWARDS["asked"] = judge  # type: ignore[index]
    folder = make_sound_lab(tmp_path)
    (folder / "judge.jsonl").write_text('{"answer": "yes"}\n')
    yield folder
    del REWARDS["asked"]  # type: ignore[attr-defined]


def declare(lab: Path, table: str) -> None:
    file = lab / "tiny.toml"
    file.write_text(file.read_text().replace("model =", "model.policy =") + table)


def test_a_watched_metric_of_a_helper_is_one_that_is_recorded(lab: Path) -> None:
    declare(lab, JUDGE)
    with pytest.raises(InputError, match=r"unknown metric of helper models 'costs' .*'cost'"):
        look(lab, "stage.rl.reward=asked", 'budget={ "helper/judge/costs" = 1 }')


def test_a_judge_that_can_never_ask_is_an_error_although_others_judge_too(lab: Path) -> None:
    def ask(batch: Sequence[Pair], helpers: Mapping[str, HelperModel]) -> list[Reward]:
        return [Reward(sum(s)) for s in helpers["judge"].score([r.prompt for r, _ in batch], ["x"])]

    REWARDS["asked"] = JudgeReward(ask, helpers=("judge",))  # type: ignore[index]
    declare(lab, JUDGE)
    seen = look(lab, "stage.rl.reward={ accuracy = 1.0, asked = 1.0 }")
    (error,) = seen.errors
    assert "full reward of 'asked'" in error.what and "no rule of judge.jsonl" in error.evidence


def test_the_price_of_a_run_is_requests_times_tokens(lab: Path) -> None:
    declare(lab, JUDGE)
    numbers = look(lab, "stage.rl.reward=asked", "stage.rl.steps=3").numbers["model.judge"]
    plain = look(lab, "stage.rl.reward=asked", "stage.rl.steps=6").numbers["model.judge"]
    assert numbers["requests"] > 0
    assert plain["requests"] == 2 * numbers["requests"]
    assert numbers["cost"] == pytest.approx(10 * numbers["requests"])


def test_nobody_knows_what_programs_cost_before_one_ran(lab: Path) -> None:
    declare(lab, JUDGE)
    REWARDS["asked"] = replace(REWARDS["asked"], questions=None)  # type: ignore[index, type-var]
    seen = look(lab, "stage.rl.reward=asked")
    note = found(seen, "what it will cost is not known")
    assert "a run of a few steps" in note.fix
    assert "model.judge" not in seen.numbers, "not one request a program"


def test_programs_of_the_workflows_lab_are_counted_as_such() -> None:
    for name, reward in TASK.rewards.items():
        assert isinstance(reward, JudgeReward) and reward.questions is None, name
