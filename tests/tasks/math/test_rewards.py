"""Right answers score 1, wrong or missing ones 0, and what cannot be judged abstains."""

import json
from pathlib import Path

import pytest

from assay.data.episode import Completion, Reward
from assay.data.row import Message, Row
from assay.tasks.math.rewards import REWARD_MAXIMUM, REWARDS, accuracy, reasoning_accuracy
from assay.tasks.running import RewardRunner, WorkerReward


def row(gold: object) -> Row:
    return Row("r", (Message("user", "?"),), gold=gold)


def trl_rows(shared: Path, function: str) -> list[dict]:
    lines = (shared / "data/oracle/trl_fixture_rows.jsonl").read_text().splitlines()
    return [each for each in map(json.loads, lines) if each["function"] == function]


@pytest.mark.parametrize("reward", [accuracy, reasoning_accuracy])
def test_accuracy_agrees_with_trl(shared: Path, reward: WorkerReward) -> None:
    rows = trl_rows(
        shared, "accuracy_reward" if reward is accuracy else "reasoning_accuracy_reward"
    )
    assert len(rows) == 4
    pairs = [(row(r["input"]["solution"]), Completion(r["input"]["completion"])) for r in rows]
    with RewardRunner(reward, 60.0) as runner:
        values = [reward.value for reward in runner.score(pairs)]
    assert values == [each["expected"] for each in rows]


@pytest.mark.parametrize(
    ("gold", "text", "reward"),
    [
        ("18", r"\boxed{18}", Reward(1.0, {"format": 1.0, "answer": 1.0})),
        ("... #### 2,125", "#### 2125", Reward(1.0, {"format": 1.0, "answer": 1.0})),
        (18, r"\boxed{\$18.00}", Reward(1.0, {"format": 1.0, "answer": 1.0})),
        ("18", r"\boxed{19}", Reward(0.0, {"format": 1.0, "answer": 0.0})),
        ("18", "18", Reward(0.0, {"format": 0.0, "answer": 0.0}, "no final answer")),
        ("18", "", Reward(0.0, {"format": 0.0, "answer": 0.0}, "no final answer")),
        ("", r"\boxed{18}", Reward(None, why="the row has no gold answer")),
        (None, r"\boxed{18}", Reward(None, why="the row has no gold answer")),
    ],
)
def test_plain_numbers_need_no_worker(gold: object, text: str, reward: Reward) -> None:
    assert accuracy.ask(row(gold), Completion(text)) == reward


@pytest.mark.parametrize(
    ("gold", "text", "reward"),
    [
        ("0.5", r"\boxed{\frac{1}{2}}", Reward(1.0, {"format": 1.0, "answer": 1.0})),
        ("18", "#### 18 eggs", Reward(1.0, {"format": 1.0, "answer": 1.0})),
        ("2^{10}", r"\boxed{1024}", Reward(1.0, {"format": 1.0, "answer": 1.0})),
        ("2^{10}", r"\boxed{2}", Reward(0.0, {"format": 1.0, "answer": 0.0})),
        ("x+1", r"\boxed{1+x}", Reward(1.0, {"format": 1.0, "answer": 1.0})),
        (r"\frac12", "no box", Reward(0.0, {"format": 0.0, "answer": 0.0}, "no final answer")),
        (
            "18",
            r"\boxed{forty two}",
            Reward(0.0, {"format": 0.0, "answer": 0.0}, "the final answer cannot be parsed"),
        ),
        (
            "forty two",
            r"\boxed{forty two}",
            Reward(None, why="the gold answer cannot be parsed: forty two"),
        ),
        ("forty two", "no box", Reward(None, why="the gold answer cannot be parsed: forty two")),
    ],
)
def test_the_rest_is_settled_by_math_verify(gold: str, text: str, reward: Reward) -> None:
    with RewardRunner(accuracy, 60.0, workers=1) as runner:
        assert runner.score([(row(gold), Completion(text))]) == [reward]


def test_an_endless_comparison_is_an_abstention_that_is_counted() -> None:
    pairs = [(row("7"), Completion(text)) for text in (r"\boxed{9^{9^{9^{9}}}}", r"\boxed{7}")]
    with RewardRunner(accuracy, 1.5) as runner:
        endless, right = runner.score(pairs)
        assert endless.value is None and right.value == 1.0
        assert runner.abstained_share == 0.5


def test_only_what_follows_the_reasoning_counts() -> None:
    text = r"<think>\boxed{1}</think>\boxed{2}</think> \boxed{3}"
    assert reasoning_accuracy.ask(row("3"), Completion(text)) == Reward(
        1.0, {"format": 1.0, "answer": 1.0}
    )
    unfinished = reasoning_accuracy.ask(row("1"), Completion(r"<think>\boxed{1}"))
    assert isinstance(unfinished, Reward) and unfinished.value == 0.0


def test_every_reward_says_its_maximum_by_a_name_that_exists() -> None:
    assert set(REWARD_MAXIMUM) <= set(REWARDS)
    right = Completion("<think>a b c</think> \\boxed{3}", tuple(range(9)))
    for name, reward in REWARDS.items():
        asked = reward.ask(row("3"), right) if isinstance(reward, WorkerReward) else None
        value = (asked or reward(row("3"), right)).value  # type: ignore[union-attr]
        assert value == pytest.approx(REWARD_MAXIMUM.get(name, 1.0), abs=1e-3)
