"""Rewards about form give TRL's numbers, and abstain where there is nothing to count."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.data.episode import Completion, Reward
from assay.data.row import Message, Row
from assay.labs.math.rewards import accuracy
from assay.tasks.text_rewards import cosine_length, cosine_scaled, repetition_penalty, think_format
from tests.rl.test_trl_oracle import trl_rows

ROW = Row("r", (Message("user", "?"),), gold="7")


def test_think_format_agrees_with_trl(shared: Path) -> None:
    rows = trl_rows(shared, "think_format_reward")
    assert len(rows) == 7
    for row in rows:
        assert think_format(ROW, Completion(row["input"])).value == row["expected"], row["input"]


def test_repetition_agrees_with_trl(shared: Path) -> None:
    rows = trl_rows(shared, "repetition_penalty_reward")
    assert len(rows) == 5
    for row in rows:
        reward = repetition_penalty(row["params"]["ngram_size"], row["params"]["max_penalty"])
        ids = tuple(row["input"]["completion_ids"])
        value = reward(ROW, Completion("x" if ids else "", ids)).value
        assert value == pytest.approx(row["expected"], abs=row["tol"])


@given(st.lists(st.integers(0, 3), max_size=30), st.integers(1, 4))
def test_repetition_lies_between_the_penalty_and_zero(ids: list[int], size: int) -> None:
    value = repetition_penalty(size, -2.0)(ROW, Completion("", tuple(ids))).value
    assert value is not None and -2.0 < value <= 0.0
    distinct = range(len(ids))
    assert repetition_penalty(size)(ROW, Completion("", tuple(distinct))).value == 0.0


def test_cosine_agrees_with_trl(shared: Path) -> None:
    rows = trl_rows(shared, "cosine_scaled_reward")
    assert len(rows) == 6
    for row in rows:
        params, given_ = row["params"], row["input"]
        value = cosine_length(
            given_["correct"],
            given_["completion_len"],
            params["max_len"],
            (params["min_value_wrong"], params["max_value_wrong"]),
            (params["min_value_correct"], params["max_value_correct"]),
        )
        assert value == pytest.approx(row["expected"], abs=row["tol"])


WRONG = {
    "equal": False,
    "gold_read": True,
    "answer_read": True,
    "math_verify": None,
}
"""A verdict of the checker."""


def test_cosine_reshapes_cheap_and_worked_out_answers_alike() -> None:
    reward = cosine_scaled(accuracy, max_length=10)
    tokens = tuple(range(10))
    assert reward.ask(ROW, Completion(r"\boxed{7}", tokens)) == Reward(
        0.5,
        {"format": 1.0, "answer": 1.0, "accuracy": 1.0},
        outcome="right",
        facts={"answer": "7"},
    )
    assert reward.read(ROW, Completion(r"\boxed{x}", tokens), WRONG).value == -0.5


def test_cosine_keeps_an_abstention_and_needs_tokens() -> None:
    reward = cosine_scaled(accuracy, max_length=10)
    unread = WRONG | {"gold_read": False}
    assert reward.read(ROW, Completion(r"\boxed{x}", (1,)), unread).value is None
    without = reward.ask(ROW, Completion(r"\boxed{7}"))
    assert isinstance(without, Reward) and without.value is None and "tokens" in without.why
