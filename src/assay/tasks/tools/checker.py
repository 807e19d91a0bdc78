"""BFCL's own AST checker, imported from its wheel into this process without its dependencies.

The checker compares decoded calls with possible answers; it evaluates and imports nothing that a
model wrote, and so may run here. What `bfcl_eval`'s modules import beside each other is answered by
stand-ins (`stand_ins`) that exist only while they load, and nothing of them stays in `sys.modules`
or `sys.path`.
"""

import functools
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

from assay.data.row import Row, ToolCall
from assay.data.wheels import WHEELS, wheel_directory
from assay.tasks.tools.stand_ins import ROOT, stand_ins

WHEEL = "bfcl-eval"
CHECKER = f"{WHEEL}=={WHEELS[WHEEL].version} ast_checker"
MULTI_TURN_CHECKER = f"{WHEEL}=={WHEELS[WHEEL].version} multi_turn_checker"
"""They name the checkers in fingerprints."""

LANGUAGES = {"simple_java": "java", "simple_javascript": "javascript"}
"""The language of the arguments of a category's calls, which is Python in all others."""

_MODEL = "assay"
_LOADING = threading.Lock()


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Upstream's verdict; `error_type` and `message` are its own words, "" when valid."""

    valid: bool
    error_type: str = ""
    message: str = ""


def ast_check(row: Row, calls: Sequence[ToolCall]) -> CheckResult:
    """Compare `calls` with the possible answers `row.gold` as BFCL scores `extra["category"]`.

    The function docs as BFCL wrote them are `extra["functions"]`, else `row.tools`. Only for calls
    that no model wrote where the category is one of LANGUAGES: upstream reads their arguments with
    patterns that a text of a hundred characters keeps busy for years (`upstream_answers` judges
    such answers in a worker). An error inside upstream's code is raised as it is.
    """
    module = upstream_module("eval_checker.ast_eval.ast_checker")
    category, docs = row.extra["category"], row.extra.get("functions", row.tools)
    language = module.Language(LANGUAGES.get(category, "python"))
    output = [{call.name: dict(call.arguments)} for call in calls]
    verdict = module.ast_checker(list(docs), output, row.gold, language, category, _MODEL)
    if verdict["valid"]:
        return CheckResult(True)
    return CheckResult(False, verdict["error_type"], "; ".join(map(str, verdict["error"])))


@functools.cache
def upstream_module(name: str) -> ModuleType:
    """A module of `bfcl_eval` by its name below the package, such as "utils"."""
    with _LOADING, _importable(wheel_directory(WHEEL)):
        return import_module(f"bfcl_eval.{name}")


@functools.cache
def _scratch() -> "TemporaryDirectory[str]":
    """Where upstream's modules make the folders that they make when they are imported."""
    return TemporaryDirectory(prefix="assay-bfcl-")


@contextmanager
def _importable(directory: Path) -> Iterator[None]:
    """`bfcl_eval` can be imported from `directory` inside, and was never seen outside."""
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if _is_upstream(name)}
    stands = stand_ins()
    sys.modules.update(stands)
    sys.path.insert(0, str(directory))
    root = os.environ.get(ROOT)
    os.environ[ROOT] = _scratch().name
    try:
        yield
    finally:
        os.environ.pop(ROOT)
        if root is not None:
            os.environ[ROOT] = root
        sys.path.remove(str(directory))
        for name in [name for name in sys.modules if _is_upstream(name) or name in stands]:
            del sys.modules[name]
        sys.modules.update(before)


def _is_upstream(name: str) -> bool:
    return name == "bfcl_eval" or name.startswith("bfcl_eval.")
