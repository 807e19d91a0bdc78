"""The seam between a skill and the lab: what a task, a reward, a benchmark and a dialogue are.

Nothing here knows any skill, and importing it loads none; `task` imports the one that is asked for.
A dialogue is an episode of several turns. It knows messages and tools, never tokens: rendering and
sampling are the caller's, and rewards read the finished conversation (`Completion.messages`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeVar

from assay.data.episode import Completion, Ended, Reward
from assay.data.loaded import Loaded as Loaded
from assay.data.row import Message, Row, ToolCall
from assay.errors import InputError, nearest

Tools = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """What the model sees before it writes its next message."""

    messages: tuple[Message, ...]
    """The whole conversation so far, the task's own system text included."""
    tools: Tools = ()
    """The functions that it may call now."""


class Dialogue(Protocol):
    """One episode of several turns with one row."""

    def asks(self) -> Asked | None:
        """What the model is asked next; None when the episode is over. Calling it twice changes
        nothing."""
        ...

    def hears(self, text: str, ended: Ended) -> None:
        """Take what the model wrote, without its end token, and how that ended.

        An exception ends the episode as an abstention that says why.
        """
        ...

    @property
    def messages(self) -> tuple[Message, ...]:
        """Everything that came after the row's prompt: the model's messages as it wrote them (the
        raw text is the content), tool results, and the user's later messages."""
        ...


Value = TypeVar("Value")

RewardFunction = Callable[[Row, Completion], Reward]
"""Judges one completion of one row. Pure; one that is slow or runs what a model wrote carries the
attribute `unsafe = True` and is only ever called in a worker process with a deadline."""


def is_unsafe(reward: RewardFunction) -> bool:
    """Whether `reward` has to run in the worker."""
    return bool(getattr(reward, "unsafe", False))


def lowest(reward: RewardFunction) -> float:
    """The value of an answer on which `reward` fails: its attribute `lowest`, else 0."""
    return float(getattr(reward, "lowest", 0.0))


@dataclass(frozen=True, slots=True)
class BenchmarkOptions:
    """What an evaluation may choose about a benchmark; an option it does not know is an error."""

    values: Mapping[str, Any] = field(default_factory=dict)
    root: Path = Path()
    """Where the files lie that options name by relative paths: the lab's root."""

    def over(self, defaults: Mapping[str, Any]) -> dict[str, Any]:
        """`defaults` with these values in their place.

        Raises UnknownNameError for an option that has no default, InputError for a wrong type.
        """
        for name, value in self.values.items():
            default = lookup(defaults, name, "benchmark option")
            if type(value) is not type(default):
                wanted = type(default).__name__
                raise InputError(f"must be {wanted}, not {value!r}", field=f"options.{name}")
        return {**defaults, **self.values}


def no_error(row: Row, completion: Completion) -> str:
    """The classifier of a benchmark whose failures have no types."""
    return ""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A fixed list of questions and the checker that scores the answers."""

    name: str
    items: tuple[Row, ...]
    """In the source's order; worked examples, if any, are already among the messages."""
    score: RewardFunction
    """Value in 0 to `max_score`; parts are numbers."""
    checker: str
    """Name and version of the checker, for fingerprints."""
    max_score: float = 1.0
    classify: Callable[[Row, Completion], str] = no_error
    """The type of a wrong answer's error; "" for a right one. Not called where the reward has an
    outcome."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The options in force, defaults included, for fingerprints."""
    dialogue: Callable[[Row], Dialogue] | None = None
    """The dialogue of an item of several turns; None for a benchmark of single answers."""


def error_type(
    classify: Callable[[Row, Completion], str], row: Row, completion: Completion, reward: Reward
) -> str:
    """The type of an answer's error for records; "" for a right answer and for an abstention.

    A checker that failed on an answer is not called again.
    """
    if reward.value is None or reward.outcome == "right":
        return ""
    return reward.outcome or classify(row, completion)


BenchmarkMaker = Callable[[BenchmarkOptions], Benchmark]


class Task(Protocol):
    """One skill. Its gold answers score the full reward; empty and shuffled answers do not."""

    @property
    def name(self) -> str:
        """The name that experiment files use."""
        ...

    @property
    def rewards(self) -> Mapping[str, RewardFunction]:
        """Reward functions by name."""
        ...

    @property
    def benchmarks(self) -> Mapping[str, BenchmarkMaker]:
        """Makers of benchmarks by full name ("bfcl/simple_python")."""
        ...

    @property
    def reward_maximum(self) -> Mapping[str, float]:
        """The full reward of each reward function whose full reward is not 1.0."""
        ...

    @property
    def sources(self) -> Mapping[str, Callable[[str], Loaded]]:
        """Readers of the task's own data by scheme: "bfcl" reads `source = "bfcl:live_simple"`."""
        ...

    def prompt(self, row: Row) -> tuple[Message, ...]:
        """The messages to render for generation, the task's own system text included."""
        ...

    def target(self, row: Row) -> Message:
        """The gold answer as an assistant message: what SFT trains on.

        Raises InputError for a row that has none.
        """
        ...

    def dialogue(self, row: Row) -> Dialogue | None:
        """The dialogue of a training row of several turns; None for a row with one answer."""
        ...


TASKS: Mapping[str, str] = {
    "tools": "assay.tasks.tools.task",
    "math": "assay.tasks.math.task",
}
"""Task name -> module whose `TASK` is the task."""


class UnknownNameError(InputError):
    """A task, reward or benchmark that does not exist; offers the nearest names."""


CALLS: Mapping[str, str] = {"hermes": "assay.tasks.tools.parsing"}
"""How calls may stand in what a model writes -> module whose `OPEN`, `CLOSE` and `parse_strict`
read them."""


@dataclass(frozen=True, slots=True)
class CallSyntax:
    """How the calls in a text begin and end, and what reads them."""

    opening: str
    closing: str
    parse: Callable[[str], tuple[ToolCall, ...]]
    """The calls of a whole text in order; none where one of them is wrong."""


def call_syntax(name: str = "hermes") -> CallSyntax:
    """The syntax called `name`, importing its parser. Raises UnknownNameError."""
    module = import_module(lookup(CALLS, name, "syntax of calls"))
    return CallSyntax(module.OPEN, module.CLOSE, lambda text: module.parse_strict(text).calls)


def task(name: str) -> Task:
    """The task called `name`, importing its module. Raises UnknownNameError."""
    return import_module(lookup(TASKS, name, "task")).TASK


def reward(task_: Task, name: str) -> RewardFunction:
    """The reward that an experiment file calls `name` or `task.name`. Raises UnknownNameError."""
    return lookup(task_.rewards, name.removeprefix(task_.name + "."), "reward")


def maximum(task_: Task, name: str) -> float:
    """The full reward of the reward called `name` or `task.name`."""
    return task_.reward_maximum.get(name.removeprefix(task_.name + "."), 1.0)


def benchmark(task_: Task, name: str, options: BenchmarkOptions) -> Benchmark:
    """The benchmark called `name`, built. Raises UnknownNameError."""
    return lookup(task_.benchmarks, name, "benchmark")(options)


def lookup(known: Mapping[str, Value], name: str, kind: str) -> Value:
    """`known[name]`. Raises UnknownNameError with the nearest names."""
    if name not in known:
        raise UnknownNameError(f"unknown {kind} {name!r}", fix=nearest(name, known))
    return known[name]
