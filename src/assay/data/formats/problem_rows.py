r"""Rows of problems: mathematical ones, and those for workflow programs.

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

  format              problem                     type   ground truth         tests
  workflow_problems   problem                     given  ground_truth         tests, else test
  workflow_math       question, else problem      math   answer, else solution
  humaneval           prompt                      code   canonical_solution   test
  mbpp                prompt                      code   code                 test_list
  hotpotqa            context and question        qa     answer
  drop                context                     qa     ref_text

The prompt of a row is the problem alone: neither truth nor hidden tests are in it. `public_tests`
are those that a program may know: MBPP's first, and the examples in a docstring of HumanEval, said
as doctests (`>>> f(2)` above `4`) or in a line: `f(2) == 4`, `f(2) -> 4`, `f(2) should return 4`.
Kept is what has literals on both sides; nothing is run.
"""

import ast
import doctest
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from assay.data.formats.kept import build_row, row_id
from assay.data.loaded import Record
from assay.data.row import Message, Row

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
    return Row(
        id=row_id(record),
        messages=(Message("user", question), Message("assistant", answer)),
        gold=answer,
        origin=record.origin,
        extra=record.others("id"),
    )


def math_problem_row(record: Record, columns: tuple[str, ...]) -> Row:
    """A row with its question in the first of these columns, a solution, an answer, or both.

    Raises DataError, also where neither holds a final answer.
    """
    column = next((name for name in columns if record.value.get(name) is not None), columns[0])
    question = record.need(column, str)
    solution = record.maybe("solution", str) or ""
    number = record.maybe("answer", str, int, float)
    if isinstance(number, float) and number.is_integer():
        number = int(number)  # 27 of the number 27.0
    answer = "" if number is None else str(number).strip()
    if not answer and BOX not in solution:
        problem = f"missing, and no solution holds {BOX}{{...}}"
        raise record.error("answer", problem, "give the row an answer, or leave it out")
    messages = Message("user", question), Message("assistant", solution or answer)
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
    first = record.typed("solution[0]", solutions[0], str)
    parts = (record.maybe("context", str), record.need("question", str))
    question = Message("user", "\n".join(filter(None, parts)))
    own = ("context", "question", "solution", "final_answer")
    return replace(build_row(record, (question, Message("assistant", first)), (), *own), gold=gold)


MATH_ROWS: Mapping[str, Callable[[Record], Row]] = {
    "gsm8k": gsm8k_row,
    "math": partial(math_problem_row, columns=("problem", "question")),
    "math_cot": partial(math_problem_row, columns=("prompt",)),
    "limr": partial(math_problem_row, columns=("context",)),
    "olympiadbench": olympiad_row,
}
"""The formats of one kind of row each."""


COLUMNS = (
    ("olympiadbench", {"final_answer", "question"}),
    ("math", {"problem"}),
    ("math_cot", {"prompt"}),
    ("limr", {"context", "answer"}),
    ("gsm8k", {"question", "answer"}),
)
"""The columns by which a row of several benchmarks is known, the first that fits."""


def union_row(record: Record) -> Row:
    """A row of a file that holds several benchmarks; its id begins with its `source`, since
    benchmarks number their items alike. Raises DataError.
    """
    source = record.need("source", str)
    format = next((name for name, columns in COLUMNS if columns <= set(record.value)), None)
    format = "math" if format == "gsm8k" and MARK not in str(record.value["answer"]) else format
    if format is None:
        fix = "columns are those of gsm8k, math, math_cot, limr or olympiadbench"
        raise record.error(", ".join(record.value), "no format has these columns", fix)
    row = MATH_ROWS[format](record)
    return replace(row, id=f"{source}/{row.id}")


_SAYS = re.compile(
    r"\s*(?:==>|==|=>|=|->|-->|➞|→|➡|returns?\b|should return\b|#\s*(?:=>|returns?)?)\s*"
)
_LINE_END = re.compile(r"[\s.;,]*(?:#.*)?$")
LONGEST_LINE = 1000
"""Characters of a line that is looked at."""


def examples_in(text: str, entry_point: str) -> tuple[str, ...]:
    """`assert f(2) == 4` for each example of `entry_point` in a text, in order, none twice."""
    examples = [*_doctests(text, entry_point), *_lines(text, entry_point)]
    return tuple(dict.fromkeys(examples))


def _doctests(text: str, entry_point: str) -> list[str]:
    try:
        examples = doctest.DocTestParser().get_examples(text)
    except ValueError:
        return []  # a text with odd indentation has no doctests
    # A docstring may end right below the value of its last example.
    pairs = ((each.source.strip(), each.want.strip().rstrip('"').strip()) for each in examples)
    made = (_assertion(call, want, entry_point) for call, want in pairs)
    return [each for each in made if each]


def _lines(text: str, entry_point: str) -> list[str]:
    call = re.compile(rf"\b{re.escape(entry_point)}\s*\(")
    made = []
    for line in text.splitlines():
        start = call.search(line[:LONGEST_LINE])
        if start is None or line.lstrip().startswith("def "):
            continue
        # The call ends at the first bracket at which it is one expression.
        ends = (n + 1 for n in range(start.end(), len(line)) if line[n] == ")")
        end = next((n for n in ends if _parsed(f"f{line[start.end() - 1 : n]}")), 0)
        says = _SAYS.match(line, end) if end else None
        if says:
            want = _LINE_END.sub("", line[says.end() :])
            made.append(_assertion(line[start.start() : end], want, entry_point))
    return [each for each in made if each]


def _parsed(text: str) -> ast.expr | None:
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        return None


def _assertion(call: str, want: str, entry_point: str) -> str:
    """The assertion; "" where the call is of something else, or a side is no literal."""
    called = _parsed(call)
    if not (isinstance(called, ast.Call) and isinstance(called.func, ast.Name)):
        return ""
    try:
        ast.literal_eval(want)
        for each in (*called.args, *(keyword.value for keyword in called.keywords)):
            ast.literal_eval(each)
    except (SyntaxError, ValueError):
        return ""
    return f"assert {call} == {want}" if called.func.id == entry_point else ""


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
    return Row(
        id=row_id(record),
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
        nodes = [node for node in nodes if isinstance(node, ast.Assert | ast.Raise)]
        if not any(isinstance(x, ast.Raise) or not isinstance(x.test, ast.Constant) for x in nodes):
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
    prelude = "\n".join(map(ast.unparse, own))
    shown = examples_in(prompt, name)
    fields = {
        PROBLEM: prompt,
        PROBLEM_TYPE: "code",
        ENTRY_POINT: name,
        GIVEN: prelude,
        TESTS: (f"{prelude}\n{record.need('test', str)}",),
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


PROBLEM_ROWS: Mapping[str, Callable[[Record], Row]] = {
    **MATH_ROWS,
    "math_union": union_row,
    "workflow_problems": workflow_row,
    "workflow_math": math_row,
    "humaneval": humaneval_row,
    "mbpp": mbpp_row,
    "hotpotqa": hotpotqa_row,
    "drop": drop_row,
}
"""By the name of the format."""
