"""Runs tests on code that a model wrote: the tests in one process of the sandbox, the code in
another, so that the code never meets an expected value and cannot write its own verdict.

`run_tests` is a worker's function. It starts a Python that holds the code alone; the tests call the
function through a pipe with plain values both ways. What the other process prints, returns or
overrides is at most a wrong value of its own function; what it raises is raised in the test by the
name of a builtin exception. Where it says nothing, the test fails, whatever the test catches.
Functions that a test defines are the test's own: code cannot replace them. Every assertion counts,
also those after one that failed. The standard library alone is imported.
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
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

PR_SET_DUMPABLE = 4
CALL_SECONDS = 10.0
"""For one call of the tested function; the code that takes longer is ended, and fails the rest."""
LONGEST_VALUE = 1 << 20
WHY = 300
"""Characters of a reason."""


EXCEPTIONS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in vars(builtins).values()
    if isinstance(kind, type)
    and issubclass(kind, Exception)
    # One of these, raised inside `all(map(...))`, would end the test's loop as if all had held.
    and not issubclass(kind, StopIteration | StopAsyncIteration)
}
"""What the code may raise in a test, by name."""


class CodeRaised(Exception):
    """The tested function raised what cannot be made here."""


class NoAnswer(BaseException):
    """The tested function neither returned a plain value nor raised an exception: its process
    ended, its code does not run, it raised SystemExit. No `except Exception` of a test catches it.
    """


@dataclass
class Count:
    """What became of the assertions of one test."""

    held: int = 0
    asserted: int = 0
    failure: str = ""
    """Why the first one failed, or what the test raised; "" where it passes."""

    def failed(self, why: str) -> None:
        """Count an assertion that does not hold."""
        self.asserted += 1
        self.failure = self.failure or why[:WHY]

    def check(self, asserted: Callable[[], Any], text: str) -> None:
        """Look at one assertion; what the tested function raises in it is its failure."""
        try:
            holds = bool(asserted())
        except (Exception, NoAnswer) as error:
            self.failed(f"{type(error).__name__}: {error}")
            return
        if holds:
            self.held, self.asserted = self.held + 1, self.asserted + 1
        else:
            self.failed(f"AssertionError {text}")


def run_tests(answer: str, tests: Sequence[str], entry_point: str) -> dict[str, Any]:
    """{"passed", "failure", "held", "asserted"}: how many tests pass, why the first one fails, and
    how many of the assertions that were reached hold.

    A test is a statement, such as an assertion, that calls `entry_point`; or defines
    `check(candidate)` or `check()`, which is then called.
    """
    # Otherwise the tested process could read this one's memory. A pool's supervisor is so already,
    # and its calls are born of it; what runs this without a pool is not.
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    # A folder that is missing here could be made by the tested code, with modules for the tests.
    sys.path[:] = filter(os.path.exists, sys.path)
    tested = TestedProcess(answer)
    counts = [counted(test, entry_point, tested.call) for test in tests]
    tested.close()
    failures = (
        f"{' '.join(test.split())[:WHY]}: {count.failure}"
        for test, count in zip(tests, counts, strict=True)
        if count.failure
    )
    return {
        "passed": sum(not count.failure for count in counts),
        "failure": next(failures, ""),
        "held": sum(count.held for count in counts),
        "asserted": sum(count.asserted for count in counts),
    }


def counted(test: str, entry_point: str, call: Callable[..., Any]) -> Count:
    """The assertions of a test, each looked at. An exception outside of them ends the test."""
    count = Count()
    waits = False
    unanswered: list[str] = []

    def of(name: str) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            try:
                return call(name, args, kwargs)
            except NoAnswer as error:
                unanswered.append(f"NoAnswer: {error}")
                raise

        return called

    candidate = of(entry_point)
    names: dict[str, Any] = {"__name__": "tests", "candidate": candidate, LOOK: count.check}
    try:
        names |= {name: of(name) for name in (entry_point, *free_names(test))}
        tree = ast.fix_missing_locations(EachAssertion().visit(ast.parse(test)))
        waits = any(isinstance(node, ast.Try) for node in ast.walk(tree))
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(tree, "tests.py", "exec"), names)
            check = names.get("check")
            if isinstance(check, FunctionType) and check.__code__.co_filename == "tests.py":
                check(*(candidate,) * check.__code__.co_argcount)
    except (Exception, NoAnswer) as error:
        count.failed(f"{type(error).__name__}: {error}".strip())
    # A bare `except:` of the test may have caught it.
    if unanswered and not count.failure:
        count.failed(unanswered[0])
    if count.asserted == 0 and waits:
        count.check(lambda: True, "")
    if count.asserted == 0:
        count.failed("no assertion was reached")
    return count


LOOK = "__look_at__"


class EachAssertion(ast.NodeTransformer):
    """Makes each assertion a call of LOOK, so that one that fails does not hide the others. Those
    of a `try` stay, since it may wait for their failure; `assert True` says nothing and goes."""

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        """The call; its message, which may call the function once more, is left out."""
        if isinstance(node.test, ast.Constant) and node.test.value:
            return ast.copy_location(ast.Pass(), node)
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        text = ast.Constant(ast.unparse(node.test))
        look = ast.Name(LOOK, ast.Load())
        called = ast.Call(look, [ast.Lambda(nothing, node.test), text], [])
        return ast.copy_location(ast.Expr(called), node)

    def visit_Try(self, node: ast.Try) -> ast.Try:
        """As it is."""
        return node


def free_names(test: str) -> set[str]:
    """Names that a test reads and neither binds nor finds in Python: other functions of the code,
    such as the encoder whose inverse is tested."""
    names = [node for node in ast.walk(ast.parse(test)) if isinstance(node, ast.Name)]
    bound = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    for node in ast.walk(ast.parse(test)):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
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
        self.lost = False
        with contextlib.suppress(OSError):
            self._send({"answer": answer})

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value of a call. Raises what the code raised, by EXCEPTIONS; CodeRaised; NoAnswer."""
        asked = {"name": name, "args": encode(list(args)), "kwargs": encode(kwargs)}
        try:
            # What comes after a line that is no reply would be taken for that of another call.
            if self.lost:
                raise EOFError
            self._send(asked)
            kind, value = read_reply(self._reply())
        except Exception:
            self.lost = True
            self.process.kill()
            why = "its process ended, took too long, or its value is too long or no reply"
            raise NoAnswer(why) from None
        if kind == "raised":
            raise value
        if kind == "none":
            raise NoAnswer(value)
        return value

    def _reply(self) -> bytes:
        assert self.process.stdout
        ends = threading.Timer(CALL_SECONDS, self.process.kill)
        ends.start()
        try:
            return self.process.stdout.readline(LONGEST_VALUE)
        finally:
            ends.cancel()

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
            if problem or asked["name"] not in names:
                raise NoAnswer(problem or f"the code has no {asked['name']}")
            value = names[asked["name"]](*decode(asked["args"]), **decode(asked["kwargs"]))
            reply = {"value": encode(value)}
        except Exception as error:
            reply = raised(error)
        except BaseException as error:
            reply = {"none": described(error)}
        replies.write(json.dumps(reply).encode() + b"\n")
        replies.flush()


def described(error: BaseException) -> str:
    """Its class and its text; what NoAnswer says is its text alone."""
    return str(error) if isinstance(error, NoAnswer) else f"{type(error).__name__}: {error}"


def raised(error: Exception) -> dict[str, Any]:
    """The reply for an exception: the builtin one that it is or derives from, and its arguments."""
    kinds = [kind.__name__ for kind in type(error).__mro__ if kind in EXCEPTIONS.values()]
    try:
        args = encode(list(error.args))
    except NoAnswer:
        args = encode([str(error)])
    return {"raised": {"kind": kinds[0], "args": args, "text": described(error)}}


def read_reply(line: bytes) -> tuple[str, Any]:
    """ "value" and the value; "raised" and the exception; "none" and why there is neither.

    Raises any Exception for a line that is no whole reply; its writer may be hostile.
    """
    if not line.endswith(b"\n"):
        raise EOFError
    ((kind, found),) = json.loads(line).items()
    if kind == "value":
        return kind, decode(found)
    if kind == "none":
        return kind, str(found)[:WHY]
    args = decode(found["args"])
    try:
        return "raised", EXCEPTIONS[found["kind"]](*args)
    except Exception:
        return "raised", CodeRaised(str(found["text"])[:WHY])


SEQUENCES: dict[str, type] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}


def encode(value: Any) -> Any:
    """A plain value with its types, as JSON. Raises NoAnswer for another one."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return {"int": str(int(value))}
    if isinstance(value, float):
        return {"float": float.__repr__(value)}
    if isinstance(value, complex):
        return {"complex": complex.__repr__(value)}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, dict):
        return {"dict": [[encode(k), encode(v)] for k, v in value.items()]}
    for name, kind in SEQUENCES.items():
        if isinstance(value, kind):
            return {name: [encode(each) for each in value]}
    raise NoAnswer(f"a value of {type(value).__name__} is no plain one")


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
