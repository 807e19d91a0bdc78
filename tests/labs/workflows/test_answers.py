"""Whether answers are right: by the rules of each benchmark, beside AFlow's own scores."""

from pathlib import Path

import pytest

from assay.data.episode import Completion
from assay.data.formats.formats import read_rows
from assay.data.row import Message, Row
from assay.labs.math.rewards import accuracy
from assay.labs.workflows.answers import agreement, code_in, judge_answer
from assay.tasks.running import RewardRunner
from tests.few import few
from tests.json_lines import json_lines


def problem(kind: str, gold: str) -> Row:
    return Row("a", (Message("user", "?"),), gold=gold, extra={"problem_type": kind})


@pytest.mark.parametrize(
    ("gold", "answer", "score"),
    [
        ("65,960", "65960", 1),
        ("6", "So it is \\boxed{6}, which takes 4 days", 1),
        ("1/2", "0.5", 1),
        ("$2\\sqrt{3}$", "2\\sqrt{3}", 1),
        ("6", "7", 0),
        ("6", "", 0),
        ("MAKE", "MAKE", 1),
        ("120^\\circ", "\\boxed{120}", 1),
    ],
)
def test_mathematical_answers_are_compared_as_the_math_task_does(
    gold: str, answer: str, score: float
) -> None:
    assert judge_answer(problem("math", gold), answer)[0] == score


def test_without_a_gold_answer_there_is_no_verdict() -> None:
    score, why = judge_answer(problem("math", ""), "42")
    assert score is None and "no gold answer" in why


@few("name", ["gsm8k", "math"], fast=1)
def test_where_aflows_scores_differ_they_read_the_last_number_for_the_boxed_one(
    name: str, shared: Path
) -> None:
    lines = json_lines(shared / "data" / "workflow" / f"graded_{name}.jsonl")
    pairs = [
        (
            Row(f"{n}", (Message("user", line["question"]),), gold=str(line["gold"])),
            Completion(line["prediction"]),
        )
        for n, line in enumerate(lines)
    ]
    with RewardRunner(accuracy, workers=1) as runner:
        found = runner.score(pairs)
    differ = [
        (line, own.value)
        for line, own in zip(lines, found, strict=True)
        if own.value != line["score"]
    ]
    assert len(differ) == {"gsm8k": 11, "math": 11}[name]
    assert not [line for line, value in differ if value == 0]


def test_the_code_of_an_answer_is_the_block_that_defines_the_function_under_what_is_given() -> None:
    said = "Look:\n```python\nx = 1\n```\nand\n```python\ndef f(): return 2\n```"
    assert code_in(said, "f") == "def f(): return 2\n"
    assert code_in(said, "g") == "x = 1\n\ndef f(): return 2\n"
    assert code_in("def f(): pass", "f", "import math") == "import math\ndef f(): pass"
    future = "from __future__ import annotations\ndef f(): pass"
    assert code_in(future, "f", "import math") == f"{future}\nimport math"


CODE = "def f(x):\n    return x + 1\n"
FENCED = {
    "python": f"Look:\n```python\n{CODE}```",
    "no language": f"```\n{CODE}```",
    "no end": f"```python\n{CODE}",
    "marked as something else": f"```text\nf(1) == 2\n```\n```code\n{CODE}```",
}


@pytest.mark.parametrize("fence", FENCED)
def test_code_is_found_behind_every_fence_that_commonmark_reads(fence: str) -> None:
    assert code_in(FENCED[fence], "f") == CODE


@pytest.mark.parametrize("format", ["hotpotqa", "drop"])
def test_gold_answers_score_fully_and_exchanged_ones_do_not(format: str, shared: Path) -> None:
    rows = read_rows(shared / "data" / "workflow" / f"aflow_{format}_validate.jsonl", format)
    golds = [str(row.gold).split("|")[0] for row in rows]
    assert all(
        agreement(g, str(r.gold).split("|"), format) == 1 for g, r in zip(golds, rows, strict=True)
    )
    turned = [
        agreement(g, str(r.gold).split("|"), format)
        for g, r in zip(golds[1:], rows[:-1], strict=True)
    ]
    assert sum(score == 1 for score in turned) <= 0.1 * len(rows)
