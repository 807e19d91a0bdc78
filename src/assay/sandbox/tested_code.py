"""Runs tests on code that a model wrote: the tests in one process of the sandbox, the code in
another, so that the code never meets an expected value and cannot write its own verdict.

`run_tests` is a worker's function. It starts a Python that holds the code alone; the tests call the
function through a pipe with plain values both ways. What the other process prints, raises, returns
or overrides is at most a wrong value of its own function. The standard library alone is imported.
"""

import ast
import builtins
import contextlib
import ctypes
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

PR_SET_DUMPABLE = 4
LONGEST_VALUE = 1 << 20
WHY = 300
"""Characters of a reason."""


class CodeRaised(Exception):
    """The tested function raised, or its value is no plain one."""


def run_tests(answer: str, tests: Sequence[str], entry_point: str) -> dict[str, Any]:
    """{"passed", "failure"}: how many tests pass, and why the first one fails.

    A test is a statement, such as an assertion, that calls `entry_point`; or defines
    `check(candidate)` or `check()`, which is then called.
    """
    # Otherwise the tested process could read this one's memory.
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    tested = TestedProcess(answer)
    passed, failure = 0, ""
    for test in tests:
        why = failure_of(test, entry_point, tested.call)
        passed += not why
        failure = failure or (f"{' '.join(test.split())[:WHY]}: {why}" if why else "")
    tested.close()
    return {"passed": passed, "failure": failure}


def failure_of(test: str, entry_point: str, call: Callable[..., Any]) -> str:
    """Why a test fails; "" where it passes."""

    def of(name: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: call(name, args, kwargs)

    candidate = of(entry_point)
    names: dict[str, Any] = {"__name__": "tests", "candidate": candidate}
    names |= {name: of(name) for name in (entry_point, *free_names(test))}
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(test, "tests.py", "exec"), names)
            check = names.get("check")
            if callable(check):
                check(*(candidate,) * check.__code__.co_argcount)
    except AssertionError as error:
        return f"AssertionError {error}".strip()[:WHY]
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:WHY]
    return ""


def free_names(test: str) -> set[str]:
    """Names that a test reads and neither binds nor finds in Python: other functions of the code,
    such as the encoder whose inverse is tested."""
    names = [node for node in ast.walk(ast.parse(test)) if isinstance(node, ast.Name)]
    bound = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    for node in ast.walk(ast.parse(test)):
        match node:
            case ast.FunctionDef(name=name) | ast.arg(arg=name):
                bound.add(name)
            case ast.alias():
                bound.add(node.asname or node.name.partition(".")[0])
    read = {node.id for node in names if isinstance(node.ctx, ast.Load)}
    return read - bound - {"candidate", *dir(builtins)}


class TestedProcess:
    """A Python process that holds the tested code."""

    def __init__(self, answer: str):
        code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import serve; serve()"
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-X", "utf8", "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._send({"answer": answer})

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value of a call. Raises CodeRaised."""
        given = encode(list(args)), encode(kwargs)
        try:
            self._send({"name": name, "args": given[0], "kwargs": given[1]})
        except BrokenPipeError:
            raise CodeRaised("its process ended") from None
        assert self.process.stdout
        line = self.process.stdout.readline(LONGEST_VALUE)
        if not line.endswith(b"\n"):
            raise CodeRaised("its process ended, or its value is too long")
        reply = json.loads(line)
        if "raised" in reply:
            raise CodeRaised(str(reply["raised"])[:WHY])
        return decode(reply["value"])

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


def serve() -> None:
    """The tested process: runs the code, then calls its functions as asked."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nothing, stream)
    names: dict[str, Any] = {"__name__": "answer"}
    problem = ""
    try:
        exec(compile(json.loads(requests.readline())["answer"], "answer.py", "exec"), names)
    except BaseException as error:
        problem = f"{type(error).__name__}: {error}"
    for line in requests:
        asked = json.loads(line)
        try:
            if problem:
                raise CodeRaised(problem)
            value = names[asked["name"]](*decode(asked["args"]), **decode(asked["kwargs"]))
            reply = {"value": encode(value)}
        except BaseException as error:
            reply = {"raised": f"{type(error).__name__}: {error}"}
        replies.write(json.dumps(reply).encode() + b"\n")
        replies.flush()


SEQUENCES: dict[str, type] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}


def encode(value: Any) -> Any:
    """A plain value with its types, as JSON. Raises CodeRaised for another one."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return {"int": str(int(value))}
    if isinstance(value, float | complex):
        return {type(value).__name__: repr(value)}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, dict):
        return {"dict": [[encode(k), encode(v)] for k, v in value.items()]}
    for name, kind in SEQUENCES.items():
        if isinstance(value, kind):
            return {name: [encode(each) for each in value]}
    raise CodeRaised(f"a value of {type(value).__name__} is no plain one")


def decode(value: Any) -> Any:
    """The plain value that `encode` wrote."""
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind in SEQUENCES:
        return SEQUENCES[kind](decode(each) for each in inner)
    if kind == "dict":
        return {decode(k): decode(v) for k, v in inner}
    if kind == "bytes":
        return bytes.fromhex(inner)
    return {"int": int, "float": float, "complex": complex}[kind](inner)
