"""Runs a program that a model wrote; for functions that workers run in the process of a call.

Never called in the lab's own process. What comes back is what the program says: it may print
anything, also what its caller would have printed, so a verdict is for the lab to reach.
"""

import contextlib
import io
import sys
import traceback
from collections.abc import Mapping
from types import ModuleType
from typing import Any


def run_program(program: str, text: str) -> dict[str, Any]:
    """{"output", "error"}: what a Python program prints when it reads `text`, and what it raised.

    `error` is "" where it ends by itself or with `sys.exit()`, else the exception in a line.
    """
    printed, error = io.StringIO(), ""
    sys.stdin, sys.argv = io.StringIO(text), ["program.py"]
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        try:
            exec(compile(program, "program.py", "exec"), {"__name__": "__main__"})
        except SystemExit as ended:
            if ended.code not in (None, 0):
                error = f"SystemExit: {ended.code}"
        except MemoryError:
            raise
        except BaseException as raised:
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
            found = vars(load_program(program, "<string>", {})).get(name)
            if not callable(found):
                return {"output": "", "error": f"Function {name!r} not found"}
            return {"output": str(found()), "error": ""}
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
