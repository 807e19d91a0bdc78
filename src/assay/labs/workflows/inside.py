"""The world of a workflow program: what it is run in, inside the sandbox.

`run_workflow` is the function of a `sandbox.pool.WorkerPool`. The program finds AFlow's interface
(github.com/FoundationAgents/AFlow: `class Workflow(name, llm_config, dataset)`, operators built
from an LLM, `create_llm_instance`, `get_usage_summary`), and every operator's call is a question to
the lab. Modules of AFlow's repository that published programs import are stand-ins.

Little more than the standard library is imported, before any program runs. Nothing here protects
anything: a program can change all of it, for itself alone. What it says is a claim that the lab
checks; a cost that it returns is thrown away.
"""

import asyncio
import inspect
import json
import re
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any, Literal

from assay.labs.workflows.programs.operators import AFLOW, USAGE, OperatorError
from assay.sandbox.tested_code import load_program

Ask = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]
"""(operator, arguments) -> the lab's reply: {"result", "usage"} or {"error", "why", "usage"}, where
`usage` is the program's totals under AFlow's names."""

FILE = "workflow.py"
DATASETS = Literal["HumanEval", "MBPP", "GSM8K", "MATH", "HotpotQA", "DROP"]
MOST_CHARACTERS = 500
"""Of why a program failed."""
KINDS = re.compile(r"(raised|operator) [A-Za-z_ ]{1,40}|no_workflow|no_answer")
PYTHONS = ("builtins", "asyncio.exceptions", "json.decoder")


class AsyncLLM:
    """AFlow's handle of a language model: it tells what all calls of the program used.

    Called with a prompt, it is the operator Custom without an instruction.
    """

    def __init__(self, config: Any = None, ask: Ask | None = None):
        """`config` is kept and otherwise ignored: the lab chooses the model."""
        self.config = config
        self._ask = ask or _current[-1]
        self._usage = dict(USAGE)

    async def __call__(self, prompt: str) -> str:
        """The model's answer as text. Raises OperatorError."""
        result = await self._operate("Custom", {"input": text_of(prompt), "instruction": ""})
        return text_of(result.get("response", ""))

    async def _operate(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        reply = await self._ask(name, arguments)
        for total, value in reply.get("usage", {}).items():
            # Calls that are open at once are answered in any order.
            self._usage[total] = max(self._usage.get(total, 0), value or 0)
        if "error" in reply:
            raise OperatorError(reply["error"], reply["why"])
        return reply["result"]

    def get_usage_summary(self) -> dict[str, Any]:
        """AFlow's totals; a cost that the lab does not know counts as none."""
        return {**self._usage, "history": []}


_current: list[Ask] = []
"""What a handle that the program makes itself asks."""


class Operator:
    """AFlow's base of all operators; the others differ in `signature`, `operator` and `kinds`."""

    operator = ""
    signature = inspect.Signature()
    kinds: Mapping[str, str] = {}

    def __init__(self, llm: Any, name: str = ""):
        """`llm` is a handle of `create_llm_instance`."""
        self.llm, self.name = llm, name or self.operator

    async def __call__(self, *values: Any, **named: Any) -> dict[str, Any]:
        """The operator's result. Raises TypeError for wrong arguments, OperatorError."""
        bound = self.signature.bind(*values, **named).arguments
        arguments = {name: plain(value, self.kinds[name]) for name, value in bound.items()}
        llm = self.llm if isinstance(self.llm, AsyncLLM) else AsyncLLM()
        return await llm._operate(self.operator, arguments)


def operator_class(described: Mapping[str, Any]) -> type[Operator]:
    """The class of one operator of `operators.described()`."""
    parameters = [
        inspect.Parameter(
            each["name"],
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=inspect.Parameter.empty if each["default"] is None else each["default"],
        )
        for each in described["parameters"]
    ]
    members = {
        "operator": described["name"],
        "signature": inspect.Signature(parameters),
        "kinds": {each["name"]: each["kind"] for each in described["parameters"]},
    }
    return type(described["name"], (Operator,), members)


def plain(value: Any, kind: str) -> Any:
    """An argument as JSON: what AFlow would put into its prompt as text is text."""
    if kind == "texts" and isinstance(value, list | tuple):
        return [text_of(each) for each in value]
    if kind == "count" and type(value) is int:
        return value
    return text_of(value)


def text_of(value: Any) -> str:
    """A value as text that UTF-8 can hold: lists and objects as JSON where they are."""
    if isinstance(value, list | dict):
        try:
            value = json.dumps(value, ensure_ascii=False)
        except (TypeError, ValueError):
            value = str(value)
    return str(value).encode("utf-8", "replace").decode("utf-8")


def run_workflow(
    ask: Ask, program: str, problem: str, entry_point: str, operators: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """{"answer": text} or {"error": kind, "why": text, "line": number}.

    `operators` are those of `operators.described()`; with an `entry_point` the workflow is called
    with both, as AFlow does for code. Kinds: "raised NAME", "operator KIND", "no_workflow",
    "no_answer"; the line is the program's, 0 where it is none. Raises MemoryError, which the
    sandbox reports.
    """
    _current.append(ask)
    try:
        names = stand_ins({each["name"]: operator_class(each) for each in operators}, AsyncLLM)
        sys.meta_path.insert(0, Finder({**vars(names["operator"]), **names}))
        workflow_class = vars(load_program(program, FILE, names)).get("Workflow")
        if not isinstance(workflow_class, type):
            return failed("no_workflow", "the program defines no class Workflow", 0)
        # Not `asyncio.run`, which waits for what the workflow left behind; the sandbox ends that.
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        outcome = loop.run_until_complete(awaited(workflow_class, problem, entry_point))
        answer = outcome[0] if isinstance(outcome, tuple) and outcome else outcome
        if answer is None or inspect.isawaitable(answer):
            what = "None" if answer is None else "what it did not await"
            return failed("no_answer", f"the workflow returned {what}", 0)
        return {"answer": text_of(answer)}
    except MemoryError:
        raise
    except OperatorError as error:
        return failed(f"operator {error.kind}", error.why, line_of(error))
    except BaseException as error:  # SystemExit and the like end a program, not the sandbox
        why = f"{type(error).__name__}: {message_of(error)}"
        return failed(f"raised {builtin_name(error)}", why, line_of(error))


async def awaited(workflow_class: Callable[..., Any], problem: str, entry_point: str) -> Any:
    """Builds and calls the workflow as AFlow does."""
    dataset = "code" if entry_point else "text"
    workflow = workflow_class("workflow", {"model": "executor"}, dataset)
    arguments = (problem, entry_point) if entry_point else (problem,)
    return await workflow(*arguments)


def builtin_name(error: BaseException) -> str:
    """The name of an exception's class, or of its nearest base that is Python's own: a program may
    call its exceptions what it likes."""
    own = (each for each in type(error).__mro__ if each.__module__ in PYTHONS)
    return next(own).__name__


def message_of(error: BaseException) -> str:
    """An exception's text; "" where that cannot be had, for it is the program's own code."""
    try:
        return str(error)
    except Exception as failure:
        return f"(its text cannot be had: {type(failure).__name__})"


def checked_result(value: Any) -> dict[str, Any] | None:
    """`value` where it is what `run_workflow` returns, else None; for the lab, to which a program
    may say anything."""
    match value:
        case {"answer": str(), **rest} if not rest:
            return value
        case {"error": str(kind), "why": str(why), "line": int(), **rest} if not rest:
            return value if KINDS.fullmatch(kind) and len(why) <= MOST_CHARACTERS else None
    return None


def failed(kind: str, why: str, line: int) -> dict[str, Any]:
    """The result of a program without an answer."""
    return {"error": text_of(kind), "why": text_of(why)[:MOST_CHARACTERS], "line": line}


def line_of(error: BaseException) -> int:
    """The program's line that raised, the innermost; 0 where there is none."""
    if isinstance(error, SyntaxError) and error.filename == FILE:
        return error.lineno or 0
    frames = traceback.walk_tb(error.__traceback__)
    lines = [line for frame, line in frames if frame.f_code.co_filename == FILE]
    return lines[-1] if lines else 0


def stand_ins(operators: Mapping[str, type], llm: type) -> dict[str, Any]:
    """The names that AFlow's template gives a program, besides those it imports."""
    module = ModuleType("operator")
    module.__dict__.update(operators)
    # What a program logs is seen by nobody.
    quiet = dict.fromkeys(("debug", "info", "warning", "error"), lambda *_, **__: None)
    return {
        "operator": module,
        "create_llm_instance": llm,
        "AsyncLLM": llm,
        "DatasetType": DATASETS,
        "prompt_custom": Prompts("prompt_custom"),
        "logger": SimpleNamespace(**quiet),
    }


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
        if fullname.split(".")[0] not in AFLOW:
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
