"""BFCL's own AST checker, imported from its wheel into this process without its dependencies.

The checker compares decoded calls with possible answers; it evaluates and imports nothing that a
model wrote, and so may run here. Its table of hosted models, which imports their packages, is
answered by a stand-in, and nothing of it stays in `sys.modules` or `sys.path`.
"""

import functools
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from assay.data.row import Row, ToolCall
from assay.data.wheels import WHEELS, wheel_directory

WHEEL = "bfcl-eval"
CHECKER = f"{WHEEL}=={WHEELS[WHEEL].version} ast_checker"
MULTI_TURN_CHECKER = f"{WHEEL}=={WHEELS[WHEEL].version} multi_turn_checker"
"""They name the checkers in fingerprints."""
_LOADING = threading.Lock()
_MODELS = "bfcl_eval.constants.model_config"


class _AnyModel(dict[str, Any]):
    """Upstream's table of models: only this flag is read, and no function name is rewritten."""

    def __missing__(self, key: str) -> SimpleNamespace:
        return SimpleNamespace(underscore_to_dot=False)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Upstream's verdict; `error_type` and `message` are its own words, "" when valid."""

    valid: bool
    error_type: str = ""
    message: str = ""


def ast_check(row: Row, calls: Sequence[ToolCall]) -> CheckResult:
    """Compare `calls` with the possible answers `row.gold` as BFCL scores `extra["category"]`.

    An error inside upstream's code is raised as it is.
    """
    module = _checker()
    output = [{call.name: dict(call.arguments)} for call in calls]
    known = list(row.tools), output, row.gold, module.Language.PYTHON, row.extra["category"]
    verdict = module.ast_checker(*known, "assay")
    if verdict["valid"]:
        return CheckResult(True)
    return CheckResult(False, verdict["error_type"], "; ".join(map(str, verdict["error"])))


@functools.cache
def _checker() -> ModuleType:
    with _LOADING, _importable(wheel_directory(WHEEL)):
        return import_module("bfcl_eval.eval_checker.ast_eval.ast_checker")


@contextmanager
def _importable(directory: Path) -> Iterator[None]:
    """`bfcl_eval` can be imported from `directory` inside, and was never seen outside."""
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if _is_upstream(name)}
    sys.modules[_MODELS] = ModuleType(_MODELS)
    vars(sys.modules[_MODELS])["MODEL_CONFIG_MAPPING"] = _AnyModel()
    sys.path.insert(0, str(directory))
    try:
        yield
    finally:
        sys.path.remove(str(directory))
        for name in [name for name in sys.modules if _is_upstream(name)]:
            del sys.modules[name]
        sys.modules.update(before)


def _is_upstream(name: str) -> bool:
    return name == "bfcl_eval" or name.startswith("bfcl_eval.")
