"""The check names helper models that are not declared, and what those that are will cost."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.data.episode import Reward
from assay.tasks.helper_model import UnknownHelper
from assay.tasks.judge_reward import JudgeReward
from assay.tasks.math.rewards import REWARDS
from tests.lab.sound_lab import look, make_sound_lab

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


def test_a_helper_that_is_not_declared_is_named_with_the_nearest(lab: Path) -> None:
    declare(lab, JUDGE.replace("model.judge", "model.jugde"))
    with pytest.raises(UnknownHelper, match=r"no helper model 'judge' \(did you mean 'jugde'"):
        look(lab, "stage.rl.reward=asked")


def test_the_price_of_a_run_is_requests_times_tokens(lab: Path) -> None:
    declare(lab, JUDGE)
    numbers = look(lab, "stage.rl.reward=asked", "stage.rl.steps=3").numbers["model.judge"]
    plain = look(lab, "stage.rl.reward=asked", "stage.rl.steps=6").numbers["model.judge"]
    assert numbers["requests"] > 0
    assert plain["requests"] == 2 * numbers["requests"]
    assert numbers["cost"] == pytest.approx(10 * numbers["requests"])
