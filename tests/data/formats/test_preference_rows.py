"""Preference pairs are read as groups of two candidates with one prompt, or refused by line."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay.data.formats.formats import iter_items, read_rows
from assay.data.loaded import DataError
from assay.data.row import Message, Row

ASK = {"role": "user", "content": "2 + 2?"}
SYSTEM = {"role": "system", "content": "Be short."}


def said(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def read(folder: Path, value: dict[str, Any]) -> Row:
    file = folder / "pairs.jsonl"
    file.write_text(json.dumps(value) + "\n")
    (row,) = read_rows(file, "preference")
    return row


@pytest.mark.parametrize(
    "value",
    [
        {"prompt": "2 + 2?", "chosen": "4", "rejected": "5"},
        {"prompt": [ASK], "chosen": [said("4")], "rejected": [said("5")]},
        {"messages": [ASK], "chosen": "4", "rejected": [said("5")]},
        {"chosen": [ASK, said("4")], "rejected": [ASK, said("5")]},
        {"prompt": [ASK], "chosen": [ASK, said("4")], "rejected": [ASK, said("5")]},
    ],
)
def test_a_pair_is_a_group_of_two_with_rewards_1_and_0(tmp_path: Path, value: Any) -> None:
    row = read(tmp_path, {"id": "sum", "level": 2, **value})
    assert row.id == "sum" and row.messages == (Message("user", "2 + 2?"),) and row.gold is None
    assert row.extra == {
        "level": 2,
        "candidates": [{"text": "4", "reward": 1.0}, {"text": "5", "reward": 0.0}],
    }


def test_scores_of_the_two_are_their_rewards(tmp_path: Path) -> None:
    value = {"prompt": [SYSTEM, ASK], "chosen": "4", "rejected": "5"}
    row = read(tmp_path, {**value, "chosen_score": 0.75, "rejected_score": 0})
    assert [each["reward"] for each in row.extra["candidates"]] == [0.75, 0.0]
    assert [message.role for message in row.messages] == ["system", "user"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"prompt": "?", "chosen": "4"}, "rejected: missing"),
        ({"chosen": "4", "rejected": "5"}, "prompt: missing, and chosen and rejected begin with"),
        ({"chosen": [ASK, said("4")], "rejected": [said("5")]}, "prompt: missing"),
        ({"prompt": "?", "chosen": [ASK, said("4")], "rejected": "5"}, "chosen: does not begin"),
        (
            {"prompt": [ASK, said("4")], "chosen": "a", "rejected": "b"},
            "prompt: ends with the assistant",
        ),
        ({"prompt": "?", "chosen": "4", "rejected": [ASK]}, "rejected: does not end with a plain"),
        ({"prompt": "?", "chosen": "4", "rejected": []}, "rejected: holds no messages"),
        (
            {"prompt": "?", "chosen": "4", "rejected": "5", "chosen_score": "high"},
            "chosen_score: is a string, not an integer or a number",
        ),
    ],
)
def test_what_is_no_pair_is_refused_with_its_line(tmp_path: Path, value: Any, message: str) -> None:
    with pytest.raises(DataError) as found:
        read(tmp_path, value)
    assert f"pairs.jsonl:1: {message}" in str(found.value) and "\n" not in str(found.value)


def test_the_refusal_of_pairs_in_other_formats_names_this_one(tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text(json.dumps({"prompt": "?", "chosen": "4", "rejected": "5"}) + "\n")
    with pytest.raises(DataError, match='write format = "preference" for a dpo stage'):
        list(iter_items(file, "trl"))
