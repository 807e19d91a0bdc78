"""Rows of problems: what a prompt may hold, what is checked, and real rows of six benchmarks."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay.data.formats.formats import iter_items, read_rows
from assay.data.formats.problem_rows import examples_in
from assay.data.loaded import DataError, gather
from assay.data.row import Row
from assay.labs.math.rewards import gold_answer

FILES = {
    "workflow_math": ("gsm8k", 132),
    "humaneval": ("humaneval", 17),
    "mbpp": ("mbpp", 43),
    "hotpotqa": ("hotpotqa", 100),
    "drop": ("drop", 100),
}
GOOD = {
    "math": {"problem": "1+1?", "problem_type": "math", "ground_truth": "2"},
    "qa": {"problem": "Who?", "problem_type": "qa", "ground_truth": "Ada", "source": "mine"},
    "code": {
        "problem": "Write f.",
        "problem_type": "code",
        "ground_truth": "def f(): return 1",
        "entry_point": "f",
        "tests": ["assert f() == 1"],
    },
}
BAD = [
    ({**GOOD["math"], "problem_type": "maths"}, "problem_type", "unknown type 'maths'"),
    ({**GOOD["math"], "ground_truth": " "}, "ground_truth", "no checkable answer"),
    ({**GOOD["code"], "entry_point": ""}, "entry_point", "no entry point"),
    ({**GOOD["math"], "entry_point": "f"}, "entry_point", "a math problem has one"),
    ({**GOOD["code"], "tests": ["assert " + "-" * 20000 + "1"]}, r"tests\[0\]", "is no Python"),
    ({k: v for k, v in GOOD["code"].items() if k != "tests"}, "tests", "no tests"),
    ({**GOOD["code"], "tests": ["assert True"]}, r"tests\[0\]", "asserts nothing"),
]


def written(tmp_path: Path, *rows: dict) -> Path:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_rows_of_the_report_are_read(tmp_path: Path) -> None:
    math, qa, code = read_rows(written(tmp_path, *GOOD.values()), "workflow_problems")
    assert (math.gold, math.extra["problem_type"]) == ("2", "math")
    assert (qa.gold, qa.extra["source"]) == ("Ada", "mine")
    assert code.extra["tests"] == ("assert f() == 1",)
    assert code.extra["solution"] == "def f(): return 1"


@pytest.mark.parametrize(("row", "field", "problem"), BAD)
def test_a_row_that_cannot_be_judged_is_refused_by_line_and_field(
    tmp_path: Path, row: dict, field: str, problem: str
) -> None:
    file = written(tmp_path, GOOD["qa"], row)
    with pytest.raises(DataError, match=f"rows.jsonl:2: {field}: .*{problem}"):
        read_rows(file, "workflow_problems")


@pytest.mark.parametrize("format", FILES)
def test_no_prompt_of_a_real_row_holds_its_truth_or_hidden_tests(format: str, shared: Path) -> None:
    name, count = FILES[format]
    rows = read_rows(shared / "data" / "workflow" / f"aflow_{name}_validate.jsonl", format)
    assert len(rows) == count
    for row in rows:
        (message,) = row.messages
        hidden = [*row.extra.get("tests", ()), row.extra.get("solution", "")]
        assert all(text not in message.content for text in hidden if text), row.id
        known = set(row.extra.get("public_tests", ()))
        assert known <= set(row.extra.get("tests", ())) or format == "humaneval"


def test_examples_of_docstrings_become_assertions() -> None:
    prompt = '''
def f(x):
    """Doubles.
    >>> f(2)
    4

    f([1]) == [2]
    f("a") ➞ "aa"
    f(x) = something
    g(1) == 2
    """
'''
    assert examples_in(prompt, "f") == (
        "assert f(2) == 4",
        "assert f([1]) == [2]",
        'assert f("a") == "aa"',
    )


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


def only(folder: Path, value: dict[str, Any], format: str) -> Row:
    (row,) = read_rows(written(folder, value), format)
    return row


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
        ("math", {"solution": "So it is 2."}, r"answer: missing, and no solution holds \\boxed"),
        ("math", {"answer": True}, "answer: is true or false, not a string or"),
        ("olympiadbench", {**OLYMPIAD, "final_answer": [2]}, r"final_answer\[0\]: is an integer"),
        ("olympiadbench", {**OLYMPIAD, "image_1": "a"}, "image_1: the question has images"),
        ("math_union", {"source": "x", "problem": None}, "problem: missing"),
    ],
)
def test_bad_rows_are_named_with_file_line_and_field(
    tmp_path: Path, format: str, change: dict[str, Any], said: str
) -> None:
    file = written(tmp_path, {**PROBLEM, **change})
    with pytest.raises(DataError, match=f"rows.jsonl:1: {said}"):
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
    found = gather(iter_items(file, format))
    assert len(found.rows) == count and not found.dropped and not found.remarks
    assert all(gold_answer(row) and row.prompt[-1].content.strip() for row in found.rows)
    assert len({row.id for row in found.rows}) == count
