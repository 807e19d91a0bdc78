"""The world of a workflow program inside the sandbox: AFlow's interface over calls to the host.

Runs in the process of a call alone, and imports the standard library alone. A program can replace
anything here: it can only spoil its own answer, since the host checks calls and judges answers.
"""

import asyncio
import sys
import traceback
import types
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

FILE = "workflow.py"
AFLOW = ("workspace", "scripts", "prompt", "operator", "template")
"""First parts of AFlow's modules, which are stood in for."""
USAGE = {
    "total_input_tokens": 0,
    "total_output_tokens": 0,
    "total_tokens": 0,
    "total_cost": 0.0,
    "call_count": 0,
}
LONGEST_ANSWER = 200_000

Ask = Callable[[str, dict[str, Any]], Awaitable[Any]]


class OperatorError(Exception):
    """An operator's call failed; a program may catch it."""

    def __init__(self, kind: str, why: str):
        super().__init__(f"{kind}: {why}")
        self.kind, self.why = kind, why


class Model:
    """What `create_llm_instance` gives: only its usage is of use."""

    def __init__(self, *_: Any, **__: Any):
        self.usage = dict(USAGE)
        MODELS.append(self)

    def get_usage_summary(self) -> dict[str, Any]:
        """The totals so far, as the host tells them."""
        return {**self.usage, "history": []}


MODELS: list[Model] = []
"""All of one program: it is alone in its process."""


def operator_class(ask: Ask, described: Mapping[str, Any]) -> type:
    """A class whose objects call one operator of the host."""
    names = [each["name"] for each in described["parameters"]]

    class Operator:
        def __init__(self, llm: Any = None, name: str = described["name"]):
            self.llm, self.name = llm, name

        async def __call__(self, *args: Any, **arguments: Any) -> dict[str, Any]:
            if len(args) > len(names):
                raise OperatorError("arguments", f"{described['name']} takes {len(names)}")
            reply = await ask(
                described["name"], {**dict(zip(names, args, strict=False)), **arguments}
            )
            for model in MODELS:
                model.usage.update(reply.get("usage", {}))
            if "error" in reply:
                raise OperatorError(reply["error"], reply["why"])
            return reply["result"]

    Operator.__name__ = Operator.__qualname__ = described["name"]
    return Operator


class StandIns:
    """An import hook that gives empty modules for AFlow's own."""

    def __init__(self, operators: types.ModuleType, names: Mapping[str, Any]):
        self.operators, self.names = operators, names

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """See `importlib.abc.MetaPathFinder`."""
        if name.partition(".")[0] not in AFLOW:
            return None
        from importlib.machinery import ModuleSpec

        return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> types.ModuleType:
        """The operators' module, or an empty one that has every name."""
        if spec.name.rpartition(".")[2] == "operator":
            return self.operators
        module = types.ModuleType(spec.name)
        vars(module).update(self.names)
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing is to be run."""


def world(ask: Ask, operators: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The names that a program has without an import."""
    module = types.ModuleType("operator")
    classes = {each["name"]: operator_class(ask, each) for each in operators}
    vars(module).update(classes)
    names = {
        "create_llm_instance": Model,
        "AsyncLLM": Model,
        "DatasetType": str,
        "OperatorError": OperatorError,
    }
    # The standard library's `operator` is another module; programs mean AFlow's.
    sys.modules["operator"] = module
    sys.meta_path.insert(0, StandIns(module, names))  # type: ignore[arg-type]
    return {"__name__": "workflow", "operator": module, **names, **classes}


def run_workflow(
    ask: Ask,
    program: str,
    problem: str,
    entry_point: str,
    operators: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """{"answer"}, or {"error", "why", "line"} of a program that failed."""
    # What the interpreter needs later must be loaded before programs can get in its way.
    import json  # noqa: F401

    try:
        names = world(ask, operators)
        exec(compile(program, FILE, "exec"), names)
        made = names["Workflow"](name="workflow", llm_config={}, dataset="")
        arguments = (problem, entry_point) if entry_point else (problem,)
        returned = asyncio.run(made(*arguments))
    except OperatorError as failed:
        return {"error": f"operator {failed.kind}", "why": failed.why, "line": line_of(failed)}
    except MemoryError:
        raise
    except BaseException as error:
        why = f"{type(error).__name__}: {error}"[:500]
        return {"error": f"raised {type(error).__name__}", "why": why, "line": line_of(error)}
    return answer_of(returned)


def line_of(error: BaseException) -> int:
    """The program's line that an exception left last; 0 for none."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == FILE]
    return (lines[-1] or 0) if lines else 0


def answer_of(returned: Any) -> dict[str, Any]:
    """The answer of what a program returned: the first of a pair, whose second is its cost."""
    if isinstance(returned, tuple) and len(returned) == 2:
        returned = returned[0]
    if returned is None:
        return {"error": "no answer", "why": "the program returned None", "line": 0}
    text = returned if isinstance(returned, str) else str(returned)
    return {"answer": text[:LONGEST_ANSWER]}
