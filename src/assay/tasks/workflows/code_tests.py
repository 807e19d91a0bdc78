"""Runs hidden tests on code that a model wrote, in a way that the code cannot forge.

An assertion `CALL == VALUE` is taken apart: the sandbox computes the call and prints its value as a
literal, and the comparison is made here, so that the tested code never meets the expected value and
nothing that it prints or raises can pass for a verdict. Other assertions run behind the code in one
process, whose verdict is a number drawn for this run that the code cannot read: the tests are
compiled from standard input after the code has run, and its source is nowhere in memory before.
"""

import ast
import secrets
from collections.abc import Callable, Sequence
from typing import Any

from assay.data.row import Row
from assay.sandbox.limits import Outcome
from assay.tasks.workflows.problems import ENTRY_POINT, TESTS

SECONDS = 10.0
TOLERANCE = 1e-9


def judge_code(
    row: Row, answer: str, code: Callable[[str, str, float], Outcome]
) -> tuple[float, str]:
    """1.0 where all tests pass, else 0.0, and the first failure."""
    tests: Sequence[str] = row.extra[TESTS]
    name = row.extra[ENTRY_POINT]
    for test in tests:
        why = failure_of(test, name, answer, code)
        if why:
            return 0.0, f"{test[:80]}: {why}"
    return 1.0, ""


def failure_of(
    test: str, name: str, answer: str, code: Callable[[str, str, float], Outcome]
) -> str:
    """Why a test fails; "" where it passes."""
    parts = taken_apart(test)
    if parts is None:
        return _whole(test, answer, code)
    call, expected = parts
    mark = secrets.token_hex(8)
    program = f"{answer}\nprint({mark!r} + repr({call}))\n"
    done = code(program, "", SECONDS)
    if done.failure is not None:
        return f"{done.failure}: {done.why}"
    if done.value["error"]:
        return str(done.value["error"])
    last = done.value["output"].rstrip("\n").rpartition("\n")[2]
    if not last.startswith(mark):
        return "printed something else"
    try:
        given = ast.literal_eval(last.removeprefix(mark))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return f"gave {last.removeprefix(mark)[:80]}"
    return "" if same(given, expected) else f"gave {given!r}"[:200]


def taken_apart(test: str) -> tuple[str, Any] | None:
    """Call and expected value of `assert CALL == LITERAL` and its kind; None for others."""
    try:
        (node,) = ast.parse(test.strip()).body
    except (SyntaxError, ValueError):
        return None
    if not isinstance(node, ast.Assert):
        return None
    match node.test:
        case ast.Compare(left=left, ops=[ast.Eq() | ast.Is()], comparators=[right]):
            try:
                return ast.unparse(left), ast.literal_eval(right)
            except ValueError:
                return None
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return f"bool({ast.unparse(inner)})", False
        case ast.Call():
            return f"bool({ast.unparse(node.test)})", True
    return None


def same(given: Any, expected: Any) -> bool:
    """Equality as Python's, of literals alone."""
    return type(given) is not object and bool(given == expected)


def _whole(test: str, answer: str, code: Callable[[str, str, float], Outcome]) -> str:
    """A test that cannot be taken apart, run behind the code."""
    mark = secrets.token_hex(8)
    program = f"{answer}\nexec(__import__('sys').stdin.read())\n"
    done = code(program, f"{test}\nprint({mark!r})\n", SECONDS)
    if done.failure is not None:
        return f"{done.failure}: {done.why}"
    if done.value["error"]:
        return str(done.value["error"])
    return "" if done.value["output"].rstrip().endswith(mark) else "the test did not end"
