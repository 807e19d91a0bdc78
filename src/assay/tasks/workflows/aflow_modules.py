"""Stand-ins for the modules of AFlow's repository that published workflow programs import.

`workspace.*.operator`, `workspace.*.prompt` and `scripts.*` resolve to modules that hold the
operators and the handle of the model, whatever they are called; a prompt that is asked of a prompt
module is an empty text, because the file it was in is not part of a program. Used inside the
sandbox only; nothing of AFlow is needed.
"""

import sys
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any, Literal

ROOTS = ("workspace", "scripts", "prompt", "prompt_custom")
DATASETS = Literal["HumanEval", "MBPP", "GSM8K", "MATH", "HotpotQA", "DROP"]


def stand_ins(operators: Mapping[str, type], llm: type) -> dict[str, Any]:
    """The names that AFlow's template gives a program, besides those it imports."""
    module = ModuleType("operator")
    module.__dict__.update(operators)
    quiet = SimpleNamespace(**dict.fromkeys(("debug", "info", "warning", "error"), _ignore))
    return {
        "operator": module,
        "create_llm_instance": llm,
        "AsyncLLM": llm,
        "DatasetType": DATASETS,
        "prompt_custom": Prompts("prompt_custom"),
        "logger": quiet,
    }


def install(names: Mapping[str, Any]) -> None:
    """Makes AFlow's modules importable, each with all of `names` and the operators."""
    sys.meta_path.insert(0, Finder({**vars(names["operator"]), **names}))


def _ignore(*_: object, **__: object) -> None:
    """What a program logs is seen by nobody."""


class Prompts(ModuleType):
    """A module of prompts whose texts are all empty."""

    def __getattr__(self, name: str) -> str:
        """The prompt NAME. Raises AttributeError for what is no constant's name."""
        if not name.isupper() or name.startswith("_"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return ""


class Finder(MetaPathFinder, Loader):
    """Finds every module below AFlow's own packages."""

    def __init__(self, names: Mapping[str, Any]):
        """`names` are what the modules hold."""
        self.names = dict(names)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A package, so that there can be modules below it; None for others' modules."""
        if fullname.split(".")[0] not in ROOTS:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """An empty module."""
        last = spec.name.split(".")[-1]
        return (Prompts if last.startswith("prompt") else ModuleType)(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Puts the names into it; a prompt module has none."""
        last = module.__name__.split(".")[-1]
        if not isinstance(module, Prompts) and last not in ("workspace", "template"):
            module.__dict__.update({k: v for k, v in self.names.items() if not k.startswith("_")})
