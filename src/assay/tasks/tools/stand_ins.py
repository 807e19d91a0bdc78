"""Modules that answer what bfcl-eval imports and Assay does not call, where they are absent.

Upstream's loader, prompts, parsers and simulators lie in modules whose first lines import
decorators, retries and progress bars. What is installed is not replaced, but for the table of
hosted models, and for the parsers of Java and JavaScript beside another tree-sitter than theirs.
Used by the lab (`checker`) and by worker processes.
"""

import importlib.metadata
import importlib.util
import sys
from collections.abc import Mapping
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

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
