r"""Rows of mathematical problems: GSM8K, MATH and its like, OlympiadBench, and files of several.

  format          question                 worked solution   gold
  gsm8k           question                                   answer, all of it with `#### 42`
  math            problem, else question   solution          answer, else the solution
  math_cot        prompt                   solution          answer, else the solution
  limr            context                                    answer
  olympiadbench   context and question     solution          final_answer
  math_union      each row as the format that its columns show; `source` names its benchmark

The row's last message is the solution, else the answer. `math` reads MATH, MATH-500, AMC and AIME;
`math_cot` report 001's rows. `extra.level` is a number to filter and sort by: 3 of "Level 3", and
of the difficulties easy, medium and hard their rank from 1. The final answer within a gold text is
the task's to find.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from assay.data.formats.kept import build_row
from assay.data.hashing import content_id
from assay.data.loaded import Record
from assay.data.row import Message, Row

Parse = Callable[[Record], Row]

BOX = r"\boxed"
MARK = "####"
"""Stands before the final answer of GSM8K."""
RANKS = {"easy": 1, "medium": 2, "hard": 3}
"""Difficulty in words -> `extra.level`."""
_LEVEL = re.compile(r"Level (\d+|\?)")


def gsm8k_row(record: Record) -> Row:
    """A row whose gold is the whole answer text; `extra` holds the raw fields but the id.

    Raises DataError.
    """
    question = record.need("question", str)
    answer = record.need("answer", str)
    source = record.maybe("id", str, int)
    return Row(
        id=str(content_id(record.value) if source is None else source),
        messages=(Message("user", question), Message("assistant", answer)),
        gold=answer,
        origin=record.origin,
        extra=record.others("id"),
    )


def problem_row(record: Record, columns: tuple[str, ...]) -> Row:
    """A row with its question in the first of these columns, a solution, an answer, or both.

    Raises DataError, also where neither holds a final answer.
    """
    column = next((name for name in columns if record.value.get(name) is not None), columns[0])
    asked = record.need(column, str)
    solution = record.maybe("solution", str) or ""
    number = record.maybe("answer", str, int, float)
    if isinstance(number, float) and number.is_integer():
        number = int(number)  # 27 of the number 27.0
    answer = "" if number is None else str(number).strip()
    if not answer and BOX not in solution:
        problem = f"missing, and no solution holds {BOX}{{...}}"
        raise record.error("answer", problem, "give the row an answer, or leave it out")
    messages = Message("user", asked), Message("assistant", solution or answer)
    row = build_row(record, messages, (), column, "solution", "answer", "context_messages")
    own_id = record.maybe("unique_id", str) if record.value.get("id") is None else None
    fields, meta = dict(row.extra), row.extra.get("meta")
    if isinstance(meta, Mapping) and "difficulty" in meta:
        fields.setdefault("difficulty", meta["difficulty"])
    if graded := _LEVEL.fullmatch(str(fields.get("level"))):
        # MATH has "Level ?" where nobody graded the problem.
        fields["level"] = int(graded[1]) if graded[1] != "?" else None
    if fields.get("difficulty") in RANKS:
        fields.setdefault("level", RANKS[fields["difficulty"]])
    return replace(row, id=own_id or row.id, gold=answer or solution, extra=fields)


def olympiad_row(record: Record) -> Row:
    """A row whose gold is the text of all final answers; `extra` keeps what its judge reads:
    `error` (the tolerance), `unit`, `answer_type`, `is_multiple_answer`, and `subfield`.

    Raises DataError, also for a question with images.
    """
    if record.value.get("image_1") is not None:
        fix = "use a text-only part, such as OE_TO_maths_en_COMP"
        raise record.error("image_1", "the question has images, which this format refuses", fix)
    finals = record.need("final_answer", list)
    if not finals:
        raise record.error("final_answer", "is empty", "leave theorems to prove out")
    gold = ", ".join(record.typed(f"final_answer[{n}]", each, str) for n, each in enumerate(finals))
    solutions = record.maybe("solution", list) or [gold]
    said = record.typed("solution[0]", solutions[0], str)
    asked = (record.maybe("context", str), record.need("question", str))
    question = Message("user", "\n".join(filter(None, asked)))
    own = ("context", "question", "solution", "final_answer")
    return replace(build_row(record, (question, Message("assistant", said)), (), *own), gold=gold)


MATH_ROWS: Mapping[str, Parse] = {
    "gsm8k": gsm8k_row,
    "math": partial(problem_row, columns=("problem", "question")),
    "math_cot": partial(problem_row, columns=("prompt",)),
    "limr": partial(problem_row, columns=("context",)),
    "olympiadbench": olympiad_row,
}
"""The formats of one kind of row each."""


def math_format(value: Mapping[str, Any]) -> str | None:
    """The format among MATH_ROWS whose columns an object has; None for none."""
    if {"final_answer", "question"} <= set(value):
        return "olympiadbench"
    if "problem" in value:
        return "math"
    if "prompt" in value:
        return "math_cot"
    if {"context", "answer"} <= set(value):
        return "limr"
    if {"question", "answer"} <= set(value):
        return "gsm8k" if MARK in str(value["answer"]) else "math"
    return None


def union_row(record: Record) -> Row:
    """A row of a file that holds several benchmarks; its id begins with its `source`, since
    benchmarks number their items alike. Raises DataError.
    """
    source = record.need("source", str)
    format = math_format(record.value)
    if format is None:
        fix = "columns are those of gsm8k, math, math_cot, limr or olympiadbench"
        raise record.error(", ".join(record.value), "no format has these columns", fix)
    row = MATH_ROWS[format](record)
    return replace(row, id=f"{source}/{row.id}")
