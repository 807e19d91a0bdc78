"""Rows of mathematical problems become questions with a solution, a gold answer and a level."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay.data.formats.convert_rows import recognise
from assay.data.formats.formats import iter_items, read_rows
from assay.data.loaded import DataError, gather
from assay.data.row import Message, Row
from assay.data.row_fields import Condition, sorted_places, where
from assay.labs.math.rewards import gold_answer

PROBLEM = {
    "problem": "What is $1+1$?",
    "solution": r"One more than one is $\boxed{2}$.",
    "level": "Level 3",
    "type": "Algebra",
}
OLYMPIAD = {
    "id": 7,
    "context": None,
    "question": "Which are the roots of $x^2-3x+2$?",
    "solution": ["They are 1 and 2.", "By guessing."],
    "final_answer": ["$1,2$"],
    "is_multiple_answer": True,
    "answer_type": "Numerical",
    "unit": None,
    "error": "1e-1",
    "subfield": "Algebra",
}


def written(folder: Path, *values: dict[str, Any]) -> Path:
    file = folder / "a.jsonl"
    file.write_text("".join(json.dumps(value) + "\n" for value in values))
    return file


def only(folder: Path, value: dict[str, Any], format: str) -> Row:
    (row,) = read_rows(written(folder, value), format)
    return row


def test_math_takes_the_answer_from_the_solution_where_no_column_has_it(tmp_path: Path) -> None:
    row = only(tmp_path, PROBLEM, "math")
    assert row.messages == (
        Message("user", PROBLEM["problem"]),
        Message("assistant", PROBLEM["solution"]),
    )
    assert gold_answer(row) == "2" and row.extra == {"level": 3, "type": "Algebra"}
    row = only(tmp_path, {**PROBLEM, "answer": "two", "unique_id": "test/1"}, "math")
    assert row.gold == "two" and row.id == "test/1" and row.messages[-1].content.endswith("$.")


@pytest.mark.parametrize(
    ("answer", "gold"), [(27.0, "27"), (-1.0, "-1"), (0.5, "0.5"), (9, "9"), (" 025", "025")]
)
def test_answers_that_are_numbers_are_gold_as_text(tmp_path: Path, answer: Any, gold: str) -> None:
    row = only(tmp_path, {"question": "?", "answer": answer}, "math")
    assert row.gold == gold and row.messages[-1] == Message("assistant", gold)


def test_rows_of_the_report_are_sorted_and_filtered_by_their_difficulty(tmp_path: Path) -> None:
    given = ("medium", "easy", "hard", "olympic")
    rows = read_rows(
        written(
            tmp_path,
            *({"prompt": f"{d}?", "answer": "1", "meta": {"difficulty": d}} for d in given),
            {"prompt": "?", "solution": r"So \boxed{3}.", "answer": "3", "meta": {}},
        ),
        "math_cot",
    )
    assert [row.extra.get("difficulty") for row in rows] == [*given, None]
    assert [row.extra.get("level") for row in rows] == [2, 1, 3, None, None]
    assert rows[-1].messages[-1].content == r"So \boxed{3}." and rows[0].messages[-1].content == "1"
    kept, dropped = where(rows, [Condition("extra.difficulty", none_of=("easy",))])
    assert [row.extra["difficulty"] for row in kept] == ["medium", "hard", "olympic"]
    assert sum(map(len, dropped.values())) == 2
    known = rows[:3]
    assert [known[n].extra["difficulty"] for n in sorted_places(known, "extra.level", False)] == [
        *("easy", "medium", "hard")
    ]


def test_a_problem_that_nobody_graded_has_no_level(tmp_path: Path) -> None:
    row = only(tmp_path, {**PROBLEM, "level": "Level ?"}, "math")
    kept, _ = where([row], [Condition("extra.level", exists=False)])
    assert kept == (row,)


def test_olympiad_rows_keep_what_their_judge_reads(tmp_path: Path) -> None:
    row = only(tmp_path, OLYMPIAD, "olympiadbench")
    assert row.id == "7" and row.gold == "$1,2$"
    assert [message.content for message in row.messages] == [
        OLYMPIAD["question"],
        "They are 1 and 2.",
    ]
    assert dict(row.extra) == {
        name: OLYMPIAD[name]
        for name in ("is_multiple_answer", "answer_type", "unit", "error", "subfield")
    }
    row = only(tmp_path, {**OLYMPIAD, "context": "Let $x$ be real."}, "olympiadbench")
    assert row.messages[0].content == f"Let $x$ be real.\n{OLYMPIAD['question']}"


def test_a_union_reads_each_row_by_its_columns_and_tells_equal_ids_apart(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        {"source": "amc23", "id": 0, "problem": "1?", "answer": 1.0},
        {"source": "olympiad", **OLYMPIAD, "id": 0},
        {"source": "gsm8k", "question": "2?", "answer": "One more.\n#### 2"},
        {"source": "aime", "question": "3?", "answer": "3", "id": 0},
        {"source": "rl", "prompt": "4?", "answer": 4},
        {"source": "limr", "context": "5?", "context_messages": [], "answer": "5", "id": "x"},
    )
    rows = read_rows(file, "math_union")
    assert [gold_answer(row) for row in rows] == ["1", "$1,2$", "2", "3", "4", "5"]
    assert [row.extra["source"] for row in rows] == [
        *("amc23", "olympiad", "gsm8k", "aime", "rl", "limr")
    ]
    assert [rows[n].id for n in (0, 1, 3, 5)] == ["amc23/0", "olympiad/0", "aime/0", "limr/x"]
    assert rows[1].extra["error"] == "1e-1"


@pytest.mark.parametrize(
    ("format", "change", "said"),
    [
        ("math", {"problem": None}, "problem: missing"),
        ("math", {"solution": "So it is 2."}, r"answer: missing, and no solution holds \\boxed"),
        ("math", {"answer": True}, "answer: is true or false, not a string or"),
        ("math_cot", {}, "prompt: missing"),
        ("olympiadbench", {**OLYMPIAD, "final_answer": []}, "final_answer: is empty"),
        ("olympiadbench", {**OLYMPIAD, "final_answer": [2]}, r"final_answer\[0\]: is an integer"),
        ("olympiadbench", {**OLYMPIAD, "image_1": "a"}, "image_1: the question has images"),
        ("math_union", {}, "source: missing"),
        ("math_union", {"source": "x", "problem": None}, "problem: missing"),
    ],
)
def test_bad_rows_are_named_with_file_line_and_field(
    tmp_path: Path, format: str, change: dict[str, Any], said: str
) -> None:
    file = written(tmp_path, {**PROBLEM, **change})
    with pytest.raises(DataError, match=f"a.jsonl:1: {said}"):
        read_rows(file, format)


REAL = {
    "gsm8k_train": ("gsm8k", 7000),
    "gsm8k_test": ("gsm8k", 659),
    "math500": ("math", 250),
    "amc23": ("math", 20),
    "aime24": ("math", 15),
    "olympiadbench": ("olympiadbench", 338),
    "limr_train": ("limr", 1250),
}


@pytest.mark.parametrize("name", REAL)
def test_every_real_row_is_read_and_has_a_final_answer(shared: Path, name: str) -> None:
    format, count = REAL[name]
    file = shared / f"data/math/{name}.jsonl"
    assert recognise(file) == format
    found = gather(iter_items(file, format))
    assert len(found.rows) == count and not found.dropped and not found.remarks
    assert all(gold_answer(row) and row.prompt[-1].content.strip() for row in found.rows)
    assert len({row.id for row in found.rows}) == count
