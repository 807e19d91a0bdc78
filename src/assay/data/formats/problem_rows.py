"""Rows of problems for workflow programs: report 003's own, and those of six benchmarks.

  format              problem                     type   ground truth         tests
  workflow_problems   problem                     given  ground_truth         tests, else test
  workflow_math       question, else problem      math   answer, else solution
  humaneval           prompt                      code   canonical_solution   test
  mbpp                prompt                      code   code                 test_list
  hotpotqa            context and question        qa     answer
  drop                context                     qa     ref_text

The prompt of a row is the problem alone: neither truth nor hidden tests are in it. `public_tests`
are those that a program may know: MBPP's first, and the examples in a docstring of HumanEval.
"""

import ast
import contextlib
import doctest
from collections.abc import Mapping
from typing import Any

from assay.data.hashing import content_id
from assay.data.loaded import Record
from assay.data.row import Message, Row

PROBLEM, PROBLEM_TYPE, ENTRY_POINT = "problem", "problem_type", "entry_point"
TESTS, PUBLIC_TESTS = "tests", "public_tests"
"""Hidden tests, and those that a program may know; of code problems."""
SOLUTION = "solution"
"""A right solution of a code problem, for trials of its tests."""
TYPES = ("math", "code", "qa")


def problem_row(record: Record, fields: Mapping[str, Any], truth: str) -> Row:
    """A row with the fields of a problem.

    Raises DataError for an unknown type, a problem without a checkable answer, code without entry
    point or tests.
    """
    kind = fields[PROBLEM_TYPE]
    if kind not in TYPES:
        raise record.error(PROBLEM_TYPE, f"unknown type {kind!r}", f"one of {', '.join(TYPES)}")
    if not fields[PROBLEM].strip():
        raise record.error(PROBLEM, "is empty", "write the problem")
    entry_point = fields.get(ENTRY_POINT) or ""
    if kind == "code" and not entry_point.isidentifier():
        raise record.error(ENTRY_POINT, "a code problem has no entry point", "name its function")
    if kind == "code" and not fields.get(TESTS):
        raise record.error(TESTS, "a code problem has no tests", "add assertions, one a text")
    if kind != "code" and not truth.strip():
        fix = "add its right answer, or leave the row out"
        raise record.error("ground_truth", "the problem has no checkable answer", fix)
    own = record.maybe("id", str, int)
    return Row(
        id=str(content_id(record.value) if own is None else own),
        messages=(Message("user", fields[PROBLEM]),),
        gold=truth or None,
        origin=record.origin,
        extra={**fields, ENTRY_POINT: entry_point},
    )


def workflow_row(record: Record) -> Row:
    """A row of report 003: {problem, problem_type, ground_truth, entry_point?, source?, tests?}."""
    kind = record.need(PROBLEM_TYPE, str)
    tests = record.maybe(TESTS, list) or [t for t in [record.maybe("test", str)] if t]
    truth = record.maybe("ground_truth", str, int, float)
    fields = {
        PROBLEM: record.need(PROBLEM, str),
        PROBLEM_TYPE: kind,
        ENTRY_POINT: record.maybe(ENTRY_POINT, str),
        "source": record.maybe("source", str) or "",
        TESTS: tuple(tests),
        PUBLIC_TESTS: tuple(record.maybe(PUBLIC_TESTS, list) or ()),
    }
    if kind == "code" and truth:
        fields[SOLUTION] = str(truth)
    return problem_row(record, fields, "" if truth is None else str(truth))


def math_row(record: Record) -> Row:
    """A row of GSM8K or MATH."""
    question = record.maybe("question", str) or record.need(PROBLEM, str)
    truth = record.maybe("answer", str, int, float)
    if truth is None:
        truth = record.maybe("solution", str) or ""
    kept = {key: record.value[key] for key in ("level", "type") if key in record.value}
    return problem_row(record, {PROBLEM: question, PROBLEM_TYPE: "math", **kept}, str(truth))


def humaneval_row(record: Record) -> Row:
    """A row of HumanEval; `check` of its test is called with the function."""
    prompt, name = record.need("prompt", str), record.need(ENTRY_POINT, str)
    solution = prompt + record.need("canonical_solution", str)
    fields = {
        PROBLEM: prompt,
        PROBLEM_TYPE: "code",
        ENTRY_POINT: name,
        TESTS: (record.need("test", str),),
        PUBLIC_TESTS: examples_in(prompt, name),
        SOLUTION: solution,
        "task_id": record.need("task_id", str),
    }
    return problem_row(record, fields, solution)


def mbpp_row(record: Record) -> Row:
    """A row of MBPP; its first assertion may be known, as in its paper's prompts."""
    imports = "".join(f"{line}\n" for line in record.maybe("test_imports", list) or ())
    tests = tuple(imports + test for test in record.need("test_list", list))
    fields = {
        PROBLEM: record.need("prompt", str),
        PROBLEM_TYPE: "code",
        ENTRY_POINT: record.need(ENTRY_POINT, str),
        TESTS: tests,
        PUBLIC_TESTS: tests[:1],
        SOLUTION: record.need("code", str),
        "task_id": str(record.need("task_id", int)),
    }
    return problem_row(record, fields, fields[SOLUTION])


def hotpotqa_row(record: Record) -> Row:
    """A question of HotpotQA under its paragraphs."""
    paragraphs = record.need("context", list)
    shown = "\n".join(f"{title}: {''.join(sentences)}" for title, sentences in paragraphs)
    question = record.need("question", str)
    fields = {PROBLEM: f"{shown}\n\nQuestion: {question}", PROBLEM_TYPE: "qa"}
    kept = {key: record.value[key] for key in ("level", "type") if key in record.value}
    return problem_row(record, {**fields, **kept}, record.need("answer", str))


def drop_row(record: Record) -> Row:
    """A question of DROP under its passage; right answers stand between bars."""
    text = record.need("context", str).strip().removesuffix("Answer:").strip()
    return problem_row(record, {PROBLEM: text, PROBLEM_TYPE: "qa"}, record.need("ref_text", str))


def examples_in(prompt: str, name: str) -> tuple[str, ...]:
    """Assertions out of the examples in a docstring: `>>> f(1)` with its value below, `f(1) == 2`
    on a line of its own, also with `=` or an arrow. What is no call with a plain value is left
    out."""
    pairs = []
    with contextlib.suppress(ValueError):  # examples in another form
        pairs += [(e.source, e.want) for e in doctest.DocTestParser().get_examples(prompt)]
    for line in prompt.splitlines():
        for mark in ("==", "=>", "➞", "->", " = "):
            call, found, value = line.strip().partition(mark)
            if found and call.strip().startswith(f"{name}("):
                pairs.append((call, value))
                break
    made = (assertion(call.strip(), value.strip(), name) for call, value in pairs)
    return tuple(dict.fromkeys(filter(None, made)))


def assertion(call: str, value: str, name: str) -> str:
    """`assert CALL == VALUE` where the one calls the function and the other is a plain value."""
    try:
        parsed = ast.parse(call, mode="eval").body
        ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return ""
    match parsed:
        case ast.Call(func=ast.Name(id=called)) if called == name:
            return f"assert {call} == {value}"
    return ""


PROBLEM_ROWS = {
    "workflow_problems": workflow_row,
    "workflow_math": math_row,
    "humaneval": humaneval_row,
    "mbpp": mbpp_row,
    "hotpotqa": hotpotqa_row,
    "drop": drop_row,
}
"""By the name of the format."""
