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
from collections.abc import Mapping, Sequence
from typing import Any

from assay.data.formats.code_examples import examples_in
from assay.data.hashing import content_id
from assay.data.loaded import Record
from assay.data.row import Message, Row

PROBLEM, PROBLEM_TYPE, ENTRY_POINT = "problem", "problem_type", "entry_point"
TESTS, PUBLIC_TESTS = "tests", "public_tests"
"""Hidden tests, and those that a program may know; of code problems."""
SOLUTION = "solution"
"""A right solution of a code problem, for trials of its tests."""
GIVEN = "given_code"
"""Python that solutions of a code problem stand on: the prompt's imports and helpers."""
SCORING = "scoring"
"""The benchmark by whose rules an answer in words is compared; HotpotQA's where a row has none."""
TYPES = ("math", "code", "qa")
TOPIC, LEVEL = "topic", "level"
"""What a problem is about, where that is finer than its type, and how hard it is."""
MARKS = ("\\boxed", "####")
LONGEST_ANSWER = 200
"""Characters of a mathematical answer that nothing marks as final."""
UNREADABLE = (SyntaxError, ValueError, MemoryError, RecursionError)
"""By which Python's parser refuses a text; the last two where it nests too deep."""
CONTRADICTED = frozenset(
    {
        "assert median([-10, 4, 6, 1000, 10, 20]) == 15.0",
        "assert sort_array([1, 5, 2, 3, 4]) == [1, 2, 3, 4, 5]",
        "assert sort_array([-2, -3, -4, -5, -6]) == [-6, -5, -4, -3, -2]",
        "assert tri(1) == 3",
        "assert tri(4) == 3",
        'assert bf("Earth", "Mercury") == ("Venus")',
    }
)
"""Examples of HumanEval's docstrings (47, 116, 130, 148) that its own solutions contradict."""


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
    if kind != "code" and entry_point:
        raise record.error(ENTRY_POINT, f"a {kind} problem has one", "only code does: remove it")
    if kind == "code":
        if not fields.get(TESTS):
            raise record.error(TESTS, "a code problem has no tests", "add assertions, one a text")
        check_tests(record, TESTS, fields[TESTS])
        check_tests(record, PUBLIC_TESTS, fields.get(PUBLIC_TESTS) or ())
    elif not truth.strip():
        fix = "add its right answer, or leave the row out"
        raise record.error("ground_truth", "the problem has no checkable answer", fix)
    if kind == "math" and len(truth) > LONGEST_ANSWER and not any(m in truth for m in MARKS):
        fix = r"mark it: \boxed{...}, or #### in front"
        raise record.error("ground_truth", "no checkable answer: nothing marks the final one", fix)
    own = record.maybe("id", str, int)
    return Row(
        id=str(content_id(record.value) if own is None else own),
        messages=(Message("user", fields[PROBLEM]),),
        gold=truth or None,
        origin=record.origin,
        extra={**fields, ENTRY_POINT: entry_point},
    )


def check_tests(record: Record, field: str, tests: Sequence[str]) -> None:
    """Raise DataError for a test of a code problem that is no Python or can only pass.

    A test raises by itself or asserts something else than a constant.
    """
    for n, test in enumerate(tests):
        place = f"{field}[{n}]"
        try:
            nodes = list(ast.walk(ast.parse(record.typed(place, test, str))))
        except UNREADABLE as error:
            why = str(error) or "it nests too deep"
            raise record.error(place, f"is no Python: {why}") from error
        said = [node for node in nodes if isinstance(node, ast.Assert | ast.Raise)]
        if not any(isinstance(x, ast.Raise) or not isinstance(x.test, ast.Constant) for x in said):
            raise record.error(place, "asserts nothing", "add an assertion, or take it out")


def is_test(text: str) -> bool:
    """Whether a text is Python that asserts something."""
    try:
        return any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(text)))
    except UNREADABLE:
        return False


def workflow_row(record: Record) -> Row:
    """A row of report 003: {problem, problem_type, ground_truth, entry_point?, source?, tests?}.

    The ground truth of code is a right solution where there are tests, else the tests.
    """
    kind = record.need(PROBLEM_TYPE, str)
    tests = record.maybe(TESTS, list) or [t for t in [record.maybe("test", str)] if t]
    truth = record.maybe("ground_truth", str, int, float)
    if kind == "code" and not tests and is_test(str(truth)):
        tests, truth = [str(truth)], None
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
    """A row of HumanEval; `check` of its test is called with the function.

    Functions that the prompt defines beside the one to write, such as an encoder whose inverse is
    asked for, belong to the test: code that brought its own could make them agree with anything.
    """
    prompt, name = record.need("prompt", str), record.need(ENTRY_POINT, str)
    solution = prompt + record.need("canonical_solution", str)
    try:
        body = ast.parse(prompt).body
    except SyntaxError:
        body = []
    # The imports and functions of the prompt, without the function that is to be written.
    own = (node for node in body if not (isinstance(node, ast.FunctionDef) and node.name == name))
    given = "\n".join(map(ast.unparse, own))
    shown = examples_in(prompt, name)
    fields = {
        PROBLEM: prompt,
        PROBLEM_TYPE: "code",
        ENTRY_POINT: name,
        GIVEN: given,
        TESTS: (f"{given}\n{record.need('test', str)}",),
        PUBLIC_TESTS: tuple(test for test in shown if test not in CONTRADICTED),
        SOLUTION: solution,
        "task_id": record.need("task_id", str),
    }
    return problem_row(record, fields, solution)


def mbpp_row(record: Record) -> Row:
    """A row of MBPP; its first assertion may be known, as in its paper's prompts."""
    imports = "".join(f"{line}\n" for line in record.maybe("test_imports", list) or ())
    listed = enumerate(record.need("test_list", list))
    tests = tuple(imports + record.typed(f"test_list[{n}]", test, str) for n, test in listed)
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
    fields = {PROBLEM: text, PROBLEM_TYPE: "qa", SCORING: "drop"}
    return problem_row(record, fields, record.need("ref_text", str))


PROBLEM_ROWS = {
    "workflow_problems": workflow_row,
    "workflow_math": math_row,
    "humaneval": humaneval_row,
    "mbpp": mbpp_row,
    "hotpotqa": hotpotqa_row,
    "drop": drop_row,
}
"""By the name of the format."""
