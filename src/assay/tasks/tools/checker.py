"""BFCL's own AST checker, imported from its wheel into this process without its dependencies.

The checker compares decoded calls with possible answers; it evaluates and imports nothing that a
model wrote, and so may run here. What `bfcl_eval`'s modules import beside each other is answered by
stand-ins that exist only while they load, and nothing of them stays in `sys.modules` or `sys.path`.
What is installed is not replaced, but for the table of hosted models, and for the parsers of Java
and JavaScript beside another tree-sitter than theirs.
"""

import functools
import importlib.metadata
import importlib.util
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

from assay.data.row import Row, ToolCall
from assay.data.wheels import WHEELS, wheel_directory
from assay.errors import RunFailure

TREE_SITTER = {
    "tree-sitter": "0.21.3",
    "tree-sitter-java": "0.21.0",
    "tree-sitter-javascript": "0.21.4",
}
"""What upstream's parsers of Java and JavaScript need, by distribution; later versions differ."""
ROOT = "BFCL_PROJECT_ROOT"
"""Names the folder in which upstream makes folders when it is imported."""
_PARSERS = "bfcl_eval.model_handler.parser"


class _AnyModel(dict[str, Any]):
    """Upstream's table of models: only this flag is read, and no function name is rewritten."""

    def __missing__(self, key: str) -> SimpleNamespace:
        return SimpleNamespace(underscore_to_dot=False)


def _unchanged(function: Any, *_: Any, **__: Any) -> Any:
    return function


def _fails(why: str, *_: Any) -> NoReturn:
    raise RunFailure(why)


_NAMES: dict[str, dict[str, Any]] = {
    "overrides": dict.fromkeys(("final", "override", "overrides"), _unchanged)
    | {"EnforceOverrides": object},
    "tenacity": dict.fromkeys(
        (
            "retry",
            "retry_if_exception_message",
            "retry_if_exception_type",
            "wait_random_exponential",
        )
    ),
    "dotenv": {"load_dotenv": None},
    "tqdm": {"tqdm": _unchanged},
    "pandas": {},
}
"""The names that upstream imports from packages by package."""
_PARSED = {
    f"{_PARSERS}.java_parser": "parse_java_function_call",
    f"{_PARSERS}.js_parser": "parse_javascript_function_call",
}


def absent(wanted: Mapping[str, str]) -> str:
    """Which of the distributions are not installed, and how to get them; "" where none is missing.

    `wanted` has their versions; "" stands for any.
    """
    found = [
        f"'{name}=={version}'" if version else name
        for name, version in wanted.items()
        if (present := _version(name)) is None or version not in ("", present)
    ]
    return f"not installed: {', '.join(found)} (pip install {' '.join(found)})" if found else ""


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def stand_ins() -> dict[str, ModuleType]:
    """The modules that have to be in `sys.modules` before upstream's are imported."""
    table = {"bfcl_eval.constants.model_config": {"MODEL_CONFIG_MAPPING": _AnyModel()}}
    table |= {name: _NAMES[name] for name in _NAMES if importlib.util.find_spec(name) is None}
    if why := absent(TREE_SITTER):
        table |= {name: {function: partial(_fails, why)} for name, function in _PARSED.items()}
    made = {name: ModuleType(name) for name in table}
    for name, names in table.items():
        vars(made[name]).update(names)
    return made


def prepare_worker() -> None:
    """Make upstream's modules importable in a worker process, which has the wheel on its path.

    Its settings make folders when they are imported; nothing that workers call reads them.
    """
    settings = ModuleType("bfcl_eval.constants.eval_config")
    vars(settings)["RESULT_PATH"] = None
    sys.modules.update({settings.__name__: settings, **stand_ins()})


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
