"""Runs tests on code that a model wrote: the tests in one process of the sandbox, the code in
another, so that the code never meets an expected value and cannot write its own verdict; and
programs without tests, which say what they print or return.

`run_tests` is a worker's function. It starts a Python that holds the code alone; the tests reach
its functions through a pipe (`shared_values`). What the other process prints, returns or overrides
is at most a wrong value of its own function. Where it says nothing, the test fails, whatever the
test catches. Functions that a test defines are the test's own: code cannot replace them. Every
assertion counts, also those after one that failed. The standard library alone is imported.

`run_program` and `call_function` are workers' functions too, never called in the lab's own process.
What comes back is what the program says: it may print anything, also what its caller would have
printed, so a verdict is for the lab to reach.
"""

import ast
import builtins
import contextlib
import importlib
import io
import json
import os
import subprocess
import symtable
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from assay.sandbox.call_process import PR_SET_DUMPABLE, process_control
from assay.sandbox.shared_values import LONGEST_MESSAGE, WHY, NoAnswer, Remote, Values

CALL_SECONDS = 10.0
"""For one call of the tested function; the code that takes longer is ended, and fails the rest."""


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
        why = f"AssertionError {text}"
        try:
            if asserted():
                self.held, self.asserted = self.held + 1, self.asserted + 1
                return
        except (Exception, NoAnswer) as error:
            why = f"{type(error).__name__}: {error}"
        self.failed(why)


def run_tests(answer: str, tests: Sequence[str], entry_point: str) -> dict[str, Any]:
    """{"passed", "failure", "held", "asserted"}: how many tests pass, why the first one fails, and
    how many of the assertions that were reached hold.

    A test is a statement, such as an assertion, that calls `entry_point`; or defines
    `check(candidate)` or `check()`, which is then called.
    """
    # Otherwise the tested process could read this one's memory. A pool's supervisor is so already,
    # and its calls are born of it; what runs this without a pool is not.
    process_control(PR_SET_DUMPABLE, 0)
    # A folder that is missing here could be made by the tested code, with modules for the tests.
    sys.path[:] = filter(os.path.exists, sys.path)
    tested = TestedProcess(answer)
    counts = [counted(test, entry_point, tested) for test in tests]
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


def counted(test: str, entry_point: str, tested: "TestedProcess") -> Count:
    """The assertions of a test, each looked at. An exception outside of them ends the test."""
    count = Count()
    waits = False
    before = len(tested.unanswered)
    try:
        tree = ast.parse(test)
        candidate = tested.fetch(entry_point)
        names: dict[str, Any] = {"__name__": "tests", "candidate": candidate, LOOK: count.check}
        names |= {name: tested.fetch(name) for name in (entry_point, *sorted(free_names(test)))}
        tree = ast.fix_missing_locations(EachAssertion().visit(tree))
        waits = any(map(waits_for_error, ast.walk(tree)))
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(tree, "tests.py", "exec"), names)
            check = names.get("check")
            if isinstance(check, FunctionType) and check.__code__.co_filename == "tests.py":
                check(*(candidate,) * check.__code__.co_argcount)
    except (Exception, NoAnswer) as error:
        count.failed(f"{type(error).__name__}: {error}".strip())
    # A bare `except:` of the test may have caught it.
    if len(tested.unanswered) > before and not count.failure:
        count.failed(tested.unanswered[before])
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
            return ast.Pass()
        text = ast.unparse(node.test)
        return ast.parse(f"{LOOK}(lambda: ({text}), {text!r})").body[0]

    def visit_Try(self, node: ast.Try) -> ast.Try:
        """As it is."""
        return node


def waits_for_error(node: ast.AST) -> bool:
    """Whether a statement is content where an exception is raised: `with pytest.raises(...)`."""
    return isinstance(node, ast.Try) or (
        isinstance(node, ast.With) and "raises" in ast.unparse(node.items[0]).lower()
    )


def free_names(test: str) -> set[str]:
    """Names that a test reads and neither binds nor finds in Python: other functions of the code,
    such as the encoder whose inverse is tested."""
    tables = [symtable.symtable(test, "tests.py", "exec")]
    for table in tables:
        tables += table.get_children()
    shared = [each for table in tables for each in table.get_symbols() if each.is_global()]
    bound = {each.get_name() for each in shared if each.is_assigned()}
    read = {each.get_name() for each in shared if each.is_referenced()}
    return read - bound - {"candidate", *dir(builtins)}


class TestedProcess:
    """A Python process that holds the tested code, and the tests' end of the pipe to it."""

    def __init__(self, answer: str):
        served = f"from {Values.__module__} import serve_code; serve_code()"
        code = f"import sys; sys.path[:] = {sys.path!r}; {served}"
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-X", "utf8", "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.conversation = threading.Lock()
        self.lost = False
        """What comes after a line that is no message would be taken for the reply to another."""
        self.unanswered: list[str] = []
        """Why there was no answer, each time: a test may catch what is raised."""
        self.made: dict[int, Remote] = {}
        with contextlib.suppress(OSError):
            self.send({"answer": answer, "seconds": CALL_SECONDS})

    def ask(self, operation: str, *args: Any, **kwargs: Any) -> Any:
        """The value of an operation of the code. Raises what it raised, and NoAnswer."""
        try:
            with self.conversation:
                value, raised = self._answer(operation, args, kwargs)
        except NoAnswer as error:
            self.unanswered.append(f"NoAnswer: {error}")
            raise
        if raised is not None:
            raise raised
        return value

    def _answer(
        self, operation: str, args: Any, kwargs: dict[str, Any]
    ) -> tuple[Any, Exception | None]:
        values = Values(None, lambda number: self.made.setdefault(number, Remote(self, number)))
        message = {
            "do": operation,
            "args": [values.write(each) for each in args],
            "kwargs": {name: values.write(each) for name, each in kwargs.items()},
        }
        why = "its process ended, took too long, or its value is too long or no reply"
        try:
            if self.lost:
                raise EOFError
            self.send(message)
            assert self.process.stdout
            reply = json.loads(self.process.stdout.readline(LONGEST_MESSAGE))
            if "end" in reply and operation == "next":
                return None, StopIteration()
            if "none" not in reply:
                told = reply.get("raised")
                raised = values.exception(**told) if told else None
                value = None if told else values.read(reply["value"])
                values.take_contents(reply["held"])
                return value, raised
            why = str(reply["none"])[:WHY]
        except Exception:
            self.lost = True
            self.close()
        raise NoAnswer(why)

    def send(self, message: dict[str, Any]) -> None:
        """Write one line. Raises OSError."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def fetch(self, name: str) -> Any:
        """A global of the code. What it has not says so where it is called, not where it is read:
        a test may bind or not need it."""
        try:
            return self.ask("name", name)
        except NoAnswer as error:
            self.unanswered.pop()
            why = str(error)
        # A test may count on what the code imports, as in `math.isclose`.
        if name in sys.stdlib_module_names or name == "np":
            with contextlib.suppress(ImportError):
                return importlib.import_module("numpy" if name == "np" else name)

        def missing(*_: Any, **__: Any) -> Any:
            self.unanswered.append(f"NoAnswer: {why}")
            raise NoAnswer(why)

        return missing

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


def run_program(program: str, text: str) -> dict[str, Any]:
    """{"output", "error"}: what a Python program prints when it reads `text`, and what it raised.

    `error` is "" where it ends by itself or with `sys.exit()`, else the exception in a line.
    """
    printed, error = io.StringIO(), ""
    sys.stdin, sys.argv = io.StringIO(text), ["program.py"]
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        try:
            exec(compile(program, "program.py", "exec"), {"__name__": "__main__"})
        except MemoryError:
            raise
        except BaseException as raised:
            if not isinstance(raised, SystemExit) or raised.code not in (None, 0):
                error = f"{type(raised).__name__}: {raised}"
    return {"output": printed.getvalue(), "error": error}


def call_function(program: str, name: str) -> dict[str, Any]:
    """{"output", "error"}: what a Python program's function returns as text, and what was raised.

    The program is a module, not `__main__`, and what it prints is dropped. `error` is "" where the
    function returns, else the exception and where in the program it was raised.
    """
    sys.stdin = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            function = vars(load_program(program, "<string>", {})).get(name)
            if not callable(function):
                return {"output": "", "error": f"Function {name!r} not found"}
            return {"output": str(function()), "error": ""}
        except MemoryError:
            raise
        except BaseException as raised:
            return {"output": "", "error": f"Execution error: {raised}\n{where(raised)}"}


def where(raised: BaseException) -> str:
    """An exception's traceback without the frames of this file."""
    at = raised.__traceback__
    while at is not None and at.tb_frame.f_code.co_filename == __file__:
        at = at.tb_next
    return "".join(traceback.format_exception(type(raised), raised, at)).strip()


def load_program(program: str, file: str, names: Mapping[str, Any]) -> ModuleType:
    """The module that a program's text makes, over `names` that it finds there; tracebacks name
    `file`. Raises what the program raises."""
    module = ModuleType(file.removesuffix(".py"))
    # Dataclasses and pickle look for a class's module by its name.
    sys.modules[module.__name__] = module
    module.__dict__.update(names)
    exec(compile(program, file, "exec"), module.__dict__)
    return module
