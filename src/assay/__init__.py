"""Assay: a post-training lab for small language models.

`import assay` loads nothing; the functions and types of docs/library.md are loaded when they are
first asked for.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.errors import AssayError as AssayError
    from assay.errors import InputError as InputError
    from assay.errors import RunFailure as RunFailure
    from assay.experiment.experiment import Experiment as Experiment
    from assay.lab.check.all_checks import CheckResult as CheckResult
    from assay.lab.monitor.observer import Callback as Callback
    from assay.library.actions import check as check
    from assay.library.actions import compare as compare
    from assay.library.actions import evaluate as evaluate
    from assay.library.actions import open_run as open_run
    from assay.library.actions import resume as resume
    from assay.library.actions import run as run
    from assay.library.actions import run_seeds as run_seeds
    from assay.library.actions import samples as samples
    from assay.library.actions import scores as scores
    from assay.library.typed_results import EvaluationResult as EvaluationResult
    from assay.library.typed_results import Run as Run
    from assay.library.typed_results import RunComparison as RunComparison

__version__ = "0.1.0"

_ACTIONS = ("check", "compare", "evaluate", "open_run")
_ACTIONS += ("resume", "run", "run_seeds", "samples", "scores")
_PUBLIC = {
    "AssayError": "assay.errors",
    "InputError": "assay.errors",
    "RunFailure": "assay.errors",
    "Experiment": "assay.experiment.experiment",
    "CheckResult": "assay.lab.check.all_checks",
    "Callback": "assay.lab.monitor.observer",
    "RunComparison": "assay.library.typed_results",
    "EvaluationResult": "assay.library.typed_results",
    "Run": "assay.library.typed_results",
    **dict.fromkeys(_ACTIONS, "assay.library.actions"),
}
"""What the package offers, and the module that has it."""


class _Package(ModuleType):
    """Keeps `assay.compare` the function, which importing the package of that name would hide."""

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _PUBLIC:
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> object:
        if name in _PUBLIC:
            return getattr(import_module(_PUBLIC[name]), name)
        raise AttributeError(f"module 'assay' has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return sorted({*_PUBLIC, "__version__"})


sys.modules[__name__].__class__ = _Package
