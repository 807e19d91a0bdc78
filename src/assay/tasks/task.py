"""The seam between a skill and the lab: what a task, a reward, a benchmark and a dialogue are.

Nothing here knows any skill, and importing it loads none; `task` imports the one that is asked for,
from the package or a user's file. A task of a user extends `BaseTask`.
A dialogue is an episode of several turns. It knows messages and tools, never tokens: rendering and
sampling are the caller's, and rewards read the finished conversation (`Completion.messages`).
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from inspect import signature
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Protocol, TypeVar

from assay.data.episode import Completion, Ended, Reward
from assay.data.loaded import Loaded as Loaded
from assay.data.row import Message, Row, ToolCall
from assay.errors import InputError, look_up, nearest
from assay.tasks.user_code import SCHEME, as_reward, function_in, load_file, named

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


Declared = TypeVar("Declared", bound=Callable[..., Any])


def unsafe(reward: Declared) -> Declared:
    """Declare that a reward is slow, or runs what a model wrote: it is called in a worker only."""
    reward.unsafe = True  # type: ignore[attr-defined]
    return reward


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

        Raises InputError for an option that has no default and for a wrong type.
        """
        for name, value in self.values.items():
            if name not in defaults:
                problem = f"unknown benchmark option {name!r}"
                raise InputError(problem, field=f"options.{name}", fix=nearest(name, defaults))
            default = defaults[name]
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


BenchmarkMaker = Callable[[BenchmarkOptions], Benchmark]


@dataclass(frozen=True, slots=True)
class FixedArm:
    """A model that is a function from items to answers: measured, never trained or opened."""

    answers: Callable[[Mapping[str, Any], Sequence[Row]], list[tuple[Completion, int]]]
    """The completion of each item and how much was read for it, given the helper models."""
    needs: str
    """What an item must have in `extra`."""
    fix: str
    """What to do about items without."""
    check: Callable[[Row], None] = lambda row: None
    """Raises InputError for an item that has it and that the arm still cannot answer."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """What the manifest says of the arm beside its source."""
    helper: str = ""
    """The helper model that it asks; "" for none."""
    chunk: int = 64
    """Items recorded together."""


class MadeSource(Protocol):
    """A data source whose rows are those of another data set with what is made for them first:
    `source = "SCHEME:TABLE"`, where `[SCHEME.TABLE]` names the other as `data`."""

    def rows(self, experiment: Any, table: str, rows: Sequence[Row], root: Path) -> Loaded:
        """The rows of the other data set with what was made. Raises InputError before it is."""
        ...

    def record(self, experiment: Any, table: str, root: Path) -> Mapping[str, Any]:
        """What the manifest says of a table."""
        ...

    def absent(self, experiment: Any, root: Path) -> Iterator[Any]:
        """Problems of files that tables name and that are not there."""
        ...

    def unmade(self, session: Any) -> Iterator[Any]:
        """Findings of `assay check` about what a run would make first."""
        ...

    def make(self, session: Any) -> None:
        """Make what data sets take and nobody made."""
        ...

    def generate(self, session: Any, table: str | None) -> list[Any]:
        """`assay synthesise`: make one table, or all."""
        ...


class BaseTask:
    """A task with everything but its rewards: rows are conversations that end with the answer. Its
    gold answers score the full reward; empty and shuffled answers do not.

    A task of your own extends it, and overrides what is different. The hooks `learner`, `checks`,
    `arms` and `made` plug a lab of its own into the house, which asks `labs` for
    them and knows no lab. A lab's folder stands above `lab` and `pages` in the order of imports, so
    a hook may use all of them; a property that imports on demand keeps torch out of pages.
    """

    name = "task"
    """The name that experiment files use."""
    rewards: Mapping[str, Callable[..., Any]] = MappingProxyType({})
    """Reward functions by name."""
    moved_rewards: Mapping[str, str] = MappingProxyType({})
    """What to write for rewards that are no longer built in."""
    reward_maximum: Mapping[str, float] = MappingProxyType({})
    """The full reward of each reward function whose full reward is not 1.0."""
    reward_versions: Mapping[str, int] = MappingProxyType({})
    """Versions of the built-in rewards that have changed a value since their first, which is 1."""
    benchmarks: Mapping[str, BenchmarkMaker] = MappingProxyType({})
    """Makers of benchmarks by full name ("bfcl/simple_python")."""
    sources: Mapping[str, Callable[..., Loaded]] = MappingProxyType({})
    """Readers of the task's own data by scheme: "bfcl" reads `source = "bfcl:live_simple"`. One
    with a second parameter gets the options of the data set's table, and the lab's root."""
    metrics: Mapping[str, Callable[[Sequence[Reward]], float | None]] = MappingProxyType({})
    group_metrics: Mapping[str, Any] = MappingProxyType({})
    fact_reading: Any = None

    programs: Mapping[str, Callable[[], tuple[str, ...]]] = MappingProxyType({})
    """Commands of agents that the task brings, by the word that stands for them."""

    kinds: tuple[str, ...] = ()
    """The kinds of model source that the task brings, such as "selector" of "selector:oracle"."""

    @property
    def made(self) -> Mapping[str, MadeSource]:
        """Data sources whose rows are made, by scheme."""
        return {}

    @property
    def arms(self) -> Mapping[str, FixedArm]:
        """Models without a learner by their source, such as "selector:oracle"."""
        return {}

    @property
    def checks(self) -> Mapping[str, Callable[[Any], Iterator[Any]]]:
        """Further checks of `assay check` by name: a `lab.check.subject.Subject` to `Seen`."""
        return {}

    def brings(self, source: str) -> bool:
        """Whether a model source is of this task."""
        return source.partition(":")[0] in self.kinds

    def learner(self, source: str) -> Callable[[Any], Any] | None:
        """The maker of the learner of a model source, which takes a `LearnerInput`; None where the
        source is none of this task's."""
        return None

    def prompt(self, row: Row) -> tuple[Message, ...]:
        """The messages before the final answer."""
        return row.prompt

    def target(self, row: Row) -> Message:
        """The message of the assistant that the row ends with, else its gold text.

        Raises InputError.
        """
        if row.messages and row.messages[-1].role == "assistant":
            return row.messages[-1]
        text = answer_text(row)
        if text is None:
            fix = "end the messages with one of the assistant, or add a column answer"
            raise InputError(f"row {row.id} has no answer", file=row.origin or None, fix=fix)
        return Message("assistant", text)

    def dialogue(self, row: Row) -> Dialogue | None:
        """The dialogue of a row of several turns; None where it is one question with one answer."""
        return None

    def check_source(self, source: str, options: BenchmarkOptions) -> None:
        """Raise InputError for a source of the task, or options of it, that there are not; asked
        before a model is read."""

    def explained(self, name: str) -> list[str]:
        """What `assay explain TASK:NAME` says of a source of rows, or `assay explain TASK` of
        all."""
        return []


Task = BaseTask


def answer_text(row: Row) -> str | None:
    """The answer of a row: `gold` as text, the last assistant message, another `gold` as JSON, or
    the column `answer`; None without any."""
    last = row.messages[-1] if row.messages else None
    target = last.content if last is not None and last.role == "assistant" else None
    gold = row.gold if row.gold is None else json.dumps(row.gold, ensure_ascii=False)
    text = row.gold if isinstance(row.gold, str) else None
    known = (each for each in (text, target, gold, row.extra.get("answer")) if each is not None)
    return next(map(str, known), None)


TASKS: Mapping[str, str] = {
    "tools": "assay.labs.tools.task",
    "math": "assay.labs.math.task",
    "chat": "assay.labs.chat.task",
    "demos": "assay.labs.demos.task",
    "workflows": "assay.labs.workflows.task",
    "reasoning_gym": "assay.labs.worlds.gym",
    "verifiers": "assay.labs.worlds.verifiers",
}
"""Task name -> module whose `TASK` is the task."""


CALLS: Mapping[str, str] = {"hermes": "assay.labs.tools.parsing"}
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
    """The syntax called `name`, importing its parser. Raises InputError."""
    module = import_module(look_up(CALLS, name, "syntax of calls"))
    return CallSyntax(module.OPEN, module.CLOSE, lambda text: module.parse_strict(text).calls)


def task(name: str, root: Path = Path()) -> Task:
    """The task that an experiment file calls `name`, importing its module.

    `path:FILE` is the task of a user's file, relative to `root`; others are built in, and `:NAME`
    behind one is a source of its rows. Raises InputError.
    """
    if name.startswith(SCHEME):
        loaded = load_file(name, root)
        return only_task(loaded.module, loaded.path)
    return import_module(look_up(TASKS, name.partition(":")[0], "task")).TASK


def labs(task_: Task, source: str) -> tuple[BaseTask, ...]:
    """The tasks whose hooks an experiment of `task_` with the model `source` uses: its own, and the
    built-in one that brings the model."""
    kind, _, name = source.partition(":")
    everybody_has = kind in ("hf", "pypi", "run", "openai") or (kind == "path" and "." not in name)
    if everybody_has or task_.brings(source):
        return (task_,)
    return (task_, *islice((each for each in built_in() if each.brings(source)), 1))


MADE: Mapping[str, str] = {"synthesise": "assay.lab.synthesise.source"}
"""Scheme -> module whose `MADE` makes rows for every task."""


def makers(tasks: Iterable[BaseTask] = ()) -> Iterator[tuple[str, MadeSource]]:
    """What makes rows by scheme: that of these tasks, of the built-in ones, of all."""
    for each in chain(tasks, built_in()):
        yield from each.made.items()
    yield from ((scheme, import_module(module).MADE) for scheme, module in MADE.items())


def made_source(task_: Task, source: str | None) -> MadeSource | None:
    """What makes the rows of `source = "SCHEME:TABLE"`; None for any other source."""
    scheme = (source or "").partition(":")[0]
    if scheme in ("", "path", "hf", "run", *task_.sources):
        return None
    return next((maker for known, maker in makers((task_,)) if known == scheme), None)


def built_in() -> Iterator[BaseTask]:
    """The tasks of the package, each imported when it is reached."""
    return (import_module(module).TASK for module in TASKS.values())


def task_fingerprint(name: str, root: Path) -> dict[str, str]:
    """The sha256 of the files of a user's task; empty for a built-in, whose code the package's
    fingerprint has."""
    return load_file(name, root).fingerprint if name.startswith(SCHEME) else {}


def only_task(module: ModuleType, place: Path) -> Task:
    """The task that a module defines: `TASK`, else its only subclass of BaseTask.

    Raises InputError for none or several.
    """
    if hasattr(module, "TASK"):
        return checked(module.TASK, place)
    own = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    ]
    made = [value for value in own if issubclass(value, BaseTask)]
    if len(made) == 1:
        return checked(made[0], place)
    names = ", ".join(each.__name__ for each in made)
    problem = f"defines {len(made)} tasks: {names}" if made else "defines no task"
    fix = "write TASK = ... for the one that is meant"
    raise InputError(problem, file=place, fix=fix if made else f"{fix} (docs/add-a-task.md)")


def instance(kind: type[BaseTask], place: Path) -> BaseTask:
    """An object of a task's class. Raises InputError where making one raises."""
    try:
        return kind()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        what = f"{type(error).__name__}: {' '.join(str(error).split())}"
        problem = f"making {kind.__name__}() raises {what}"
        raise InputError(problem, file=place, fix="make it in the file: TASK = ...") from error


def checked(value: Any, place: Path) -> Task:
    """A task, made where a class is given. Raises InputError."""
    if isinstance(value, type) and issubclass(value, BaseTask):
        value = instance(value, place)
    if not isinstance(value, BaseTask):
        problem = f"TASK is {value!r:.80}, no task"
        raise InputError(problem, file=place, fix="extend assay.tasks.task.BaseTask")
    if not isinstance(value.name, str) or not re.fullmatch(r"[A-Za-z0-9][\w.-]*", value.name):
        problem = f"the task's name is {value.name!r}"
        raise InputError(problem, file=place, fix="use letters, digits, '_', '-' and '.'")
    for name, function in value.rewards.items():
        try:
            as_reward(function, f"reward {name!r}")
        except InputError as wrong:
            raise InputError(wrong.problem, file=place, fix=wrong.fix) from None
    return value


def reward(task_: Task, name: str, root: Path = Path()) -> RewardFunction:
    """The reward that an experiment file calls `name`, `task.name` or `path:FILE.py:FUNCTION`,
    where FILE is relative to `root`.

    Raises InputError.
    """
    if name.startswith(SCHEME):
        function, loaded = function_in(name, root)
        try:
            return as_reward(function, f"reward {named(function)!r}")
        except InputError as wrong:
            line = getattr(getattr(function, "__code__", None), "co_firstlineno", None)
            raise InputError(wrong.problem, file=loaded.path, line=line, fix=wrong.fix) from None
    short = name.removeprefix(task_.name + ".")
    if instead := getattr(task_, "moved_rewards", {}).get(short):
        raise InputError(f"{name!r} is no longer built in", field="reward", fix=f"write {instead}")
    return as_reward(look_up(task_.rewards, short, "reward"), f"reward {short!r}")


def maximum(task_: Task, name: str) -> float:
    """The full reward of the reward called `name` or `task.name`; 1 for one in a file."""
    return task_.reward_maximum.get(name.removeprefix(task_.name + "."), 1.0)


def reward_version(task_: Task, name: str) -> int:
    """The version of the built-in reward called `name` or `task.name`."""
    return task_.reward_versions.get(name.removeprefix(task_.name + "."), 1)


def moved(file: str) -> Callable[..., Any]:
    """A source or benchmark that the task of a file among the shipped experiments brings now."""

    def refuse(name: Any, options: Any = None) -> Any:
        problem = f"is no longer built in: {file} brings it"
        raise InputError(problem, field="task", fix=f'task = "path:{file}"')

    return refuse


def benchmark(task_: Task, name: str, options: BenchmarkOptions) -> Benchmark:
    """The benchmark called `name`, built. Raises InputError."""
    return look_up(task_.benchmarks, name, "benchmark")(options)


def read_source(task_: Task, scheme: str, name: str, options: BenchmarkOptions) -> Loaded:
    """The rows of `source = "SCHEME:NAME"`.

    Raises InputError for options of a source that has none, and what reading
    raises.
    """
    read = look_up(task_.sources, scheme, "data source")
    if len(signature(read).parameters) > 1:
        return read(name, options)
    if options.values:
        problem = f"the source {scheme}: has no options"
        raise InputError(problem, field=f"options.{next(iter(options.values))}", fix="remove it")
    return read(name)
