"""Builds the reward of a stage or an evaluation from its table, and names its kinds and parts, and
what its judgements depend on.

Scores nothing.
"""

import inspect
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from assay.data.files import canonical_json, sha256_text
from assay.errors import InputError, look_up, nearest
from assay.experiment.read_file import read_table
from assay.experiment.reward_tables import Bounds, RewardPart, parts_of
from assay.experiment.reward_tables import Reward as RewardSpec
from assay.experiment.rubric_file import RubricFile
from assay.experiment.stage_tables import plain
from assay.runs.judgement_journal import JudgementJournal
from assay.tasks.helper_model import DECLARE, HelperModel
from assay.tasks.judge_reward import JudgeReward
from assay.tasks.no_verdict import OUTCOMES
from assay.tasks.reward_table import Condition, RewardTable, TablePart
from assay.tasks.rubric import RUBRIC, Rubric, rubric_reward
from assay.tasks.running import WorkerReward
from assay.tasks.task import RewardFunction, Task, maximum, reward
from assay.tasks.text_rewards import TEXT, TEXT_MAXIMUM, TEXT_REWARDS, always
from assay.tasks.user_code import TextReward, file_of


@dataclass(frozen=True)
class OpenedRubric:
    """A rubric and its file."""

    file: Path
    spec: RubricFile
    rubric: Rubric

    @property
    def labels(self) -> Path | None:
        """The rubric's own file of labels, which lies beside it; None where it names none."""
        named = self.spec.labels
        return None if named is None else self.file.parent / named

    @property
    def reward(self) -> JudgeReward:
        """The reward of the rubric."""
        return rubric_reward(self.rubric)


def open_rubric(kind: str, root: Path) -> OpenedRubric:
    """The rubric of `rubric:FILE`, FILE counting from `root`. Raises InputError."""
    file = root / kind.removeprefix(RUBRIC)
    spec = read_table(RubricFile, file)
    return OpenedRubric(file, spec, spec.rubric())


def reward_of(task: Task, spec: RewardSpec, root: Path) -> RewardFunction | RewardTable:
    """The reward that a spec names, or the table of several; users' files lie in `root`."""
    if isinstance(spec, str):
        return kind_of(task, spec, root)
    return RewardTable(table_parts(task, spec, root))


def kind_of(task: Task, kind: str, root: Path) -> RewardFunction:
    """The reward that a kind names: one for every task, a rubric, the task's own, or of a user's
    file. Raises InputError, and what loading a file raises."""
    if kind.startswith(RUBRIC):
        return open_rubric(kind, root).reward
    if kind.startswith(TEXT):
        return look_up(TEXT_REWARDS, kind.removeprefix(TEXT), "reward of texts")
    return reward(task, kind, root)


def table_parts(task: Task, spec: RewardSpec, root: Path) -> dict[str, TablePart]:
    """The parts of a reward by name. Raises what `table_part` does."""
    return {name: table_part(task, part, root) for name, part in parts_of(spec).items()}


def table_part(task: Task, part: RewardPart, root: Path) -> TablePart:
    """A part with its kind and options. Raises InputError."""
    made = with_options(part.kind, kind_of(task, part.kind, root), part.options)
    full = full_of(task, part.kind, made)
    scale = part.weight
    if part.value is not None:
        if full == 0 or not math.isfinite(full):
            what = "0" if full == 0 else "unknown"
            problem = f"the full reward of {part.kind!r} is {what}, and nothing makes it "
            problem += f"{part.value:g}"
            raise InputError(problem, field="value", fix="write a weight")
        scale = part.weight * (part.value / full)
    when = tuple(condition(name, wanted) for name, wanted in part.when.items())
    same = canonical_json([part.kind, part.options]) if part.options else part.kind
    return TablePart(made, scale, when, full, same)


def known_outcomes(reward: RewardFunction) -> frozenset[str]:
    """What a reward may say of an answer; empty where it does not declare that."""
    declared = reward.outcomes if isinstance(reward, WorkerReward) else frozenset()
    return declared and declared | frozenset(OUTCOMES.values())


def full_of(task: Task, kind: str, made: RewardFunction) -> float:
    """The full reward of a kind; a reward whose options change it says so: `maximum`."""
    if kind.startswith(TEXT):
        named = TEXT_MAXIMUM.get(kind.removeprefix(TEXT), 1.0)
    else:
        named = maximum(task, kind)
    own = getattr(made, "maximum", None)
    return float(named if own is None else own)


def condition(part: str, wanted: float | Bounds) -> Condition:
    """The condition that a part has a value, or one within bounds, or an outcome."""
    if not isinstance(wanted, Bounds):
        return Condition(part, equal=wanted)
    bounds = {k: v for k, v in (("above", wanted.above), ("below", wanted.below)) if v is not None}
    return Condition(part, **bounds, outcomes=wanted.outcome or ())


def full_reward(task: Task, spec: RewardSpec, root: Path) -> float:
    """The most that a reward can come to."""
    if isinstance(spec, str):
        return full_of(task, spec, kind_of(task, spec, root))
    return RewardTable(table_parts(task, spec, root)).maximum


def rubric_of(score: RewardFunction | RewardTable) -> JudgeReward | None:
    """The judge whose verdict is the whole score; None where a score is anything else."""
    if isinstance(score, RewardTable):
        only = [*score.parts.values()]
        whole = len(only) == 1 and only[0].scale == 1 and not only[0].when
        score = only[0].reward if whole else always
    return score if isinstance(score, JudgeReward) and score.settings else None


def rewards_in(score: RewardFunction | RewardTable) -> Mapping[str, RewardFunction]:
    """The rewards that are scored, by the names of the parts; "" for one that is no table."""
    if isinstance(score, RewardTable):
        return {name: part.reward for name, part in score.parts.items()}
    return {"": score}


_MODULE = re.compile(r"(?P<module>[A-Za-z_][\w.]*):[A-Za-z_]\w*")
"""How a worker's function is written: "package.module:function"."""


BUILT_IN = frozenset({"assay"}) | sys.stdlib_module_names
"""Packages whose functions are known by the version of a reward: closures hold partials too."""


def source_sha256(function: Callable[..., Any]) -> str:
    """The sha256 of the source of the modules that `function` is made of.

    The module that defines it, or its class, and those of the functions it holds: in a closure, in
    a partial, in the fields of a dataclass, where "package.module:name" names one too.
    """
    sources = dict(sorted(sources_of(function).items()))
    if len(sources) == 1:
        return sha256_text(*sources.values())
    return sha256_text(canonical_json(sources))


def sources_of(value: Any) -> dict[str, str]:
    """Source by module of everything that a function, or an object in its place, calls."""
    plain = inspect.unwrap(value)
    module = inspect.getmodule(plain) or inspect.getmodule(type(plain))
    assert module is not None, f"{value} has no module"
    loaded = file_of(module)
    sources = {module.__name__: inspect.getsource(module)} if loaded is None else {**loaded.sources}
    for held in _held(plain):
        if callable(held) and not isinstance(held, type):
            sources |= sources_of(held)
        elif isinstance(held, str) and (named := _MODULE.fullmatch(held)):
            spec = find_spec(named["module"])
            if spec is not None and spec.origin is not None:
                sources[named["module"]] = Path(spec.origin).read_text(encoding="utf-8")
    return sources


def _held(plain: Any) -> list[Any]:
    """What a function closes over, a partial was given, or an instance of a dataclass holds."""
    if isinstance(plain, partial):
        return [plain.func, *plain.args, *plain.keywords.values()]
    if is_dataclass(plain):
        return [getattr(plain, field.name) for field in fields(plain)]
    return [cell.cell_contents for cell in getattr(plain, "__closure__", None) or ()]


def judge_journal(
    file: Path,
    helpers: Mapping[str, HelperModel],
    spec: RewardSpec | None,
    score: RewardFunction | RewardTable,
) -> JudgementJournal:
    """Keeps in a file what a reward, or a benchmark's checker, says, under the sha256 of what that
    depends on."""
    rewards = rewards_in(score).values()
    sources = [source_sha256(each) for each in rewards]
    asked = asked_helpers(helpers, rewards)
    settings = [s for each in rewards if (s := settings_of(each))]
    also = [settings] if settings else []  # others have the name that they had before
    told = plain(spec or {})
    judge = sha256_text(canonical_json([sources, told, asked, *also]))
    return JudgementJournal(file, judge)


def settings_of(reward: RewardFunction) -> Mapping[str, Any]:
    """What the judgements of a reward depend on beside its code and its options."""
    return reward.settings if isinstance(reward, JudgeReward) else {}


def asked_helpers(
    helpers: Mapping[str, HelperModel], rewards: Iterable[RewardFunction]
) -> dict[str, str]:
    """The fingerprints of the helper models that rewards ask, by name."""
    names = {name for each in rewards if isinstance(each, JudgeReward) for name in each.helpers}
    declared = {n: look_up(helpers, n, "helper model", DECLARE) for n in sorted(names)}
    return {name: helper.fingerprint for name, helper in declared.items()}


SETTINGS = (bool, int, float, str, tuple)
"""Types of parameters that a file can set."""


def with_options(kind: str, reward: RewardFunction, options: Mapping[str, Any]) -> RewardFunction:
    """The reward called `kind` with these options. Raises InputError."""
    if not options:
        return reward
    maker = getattr(reward, "maker", None)
    inner = reward.function if isinstance(reward, TextReward) else reward
    known = parameters(maker or inner)
    values = {name: checked(kind, name, value, known) for name, value in options.items()}
    if maker is None:
        bound = partial(inner, **values)
        # What a reward says of itself: `unsafe`, `lowest`.
        bound.__dict__.update(vars(inner))
        return replace(reward, function=bound) if isinstance(reward, TextReward) else bound
    try:
        return maker(**values)
    except (ValueError, TypeError) as error:
        raise InputError(f"{kind!r} cannot be made: {error}", field="options") from error


def parameters(function: Callable[..., Any]) -> dict[str, Any]:
    """The parameters that a file can set, with their defaults."""
    every = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in every if isinstance(p.default, SETTINGS)}


def checked(kind: str, name: str, value: Any, known: Mapping[str, Any]) -> Any:
    """A value of the type of the option's default. Raises InputError."""
    field = f"options.{name}"
    if name not in known:
        fix = nearest(name, known) if known else "remove it"
        problem = f"{kind!r} has no option {name!r}" if known else f"{kind!r} has no options"
        raise InputError(problem, field=field, fix=fix)
    wanted = type(known[name])
    if wanted is tuple and isinstance(value, list):
        return tuple(value)
    if wanted is float and type(value) is int:
        return float(value)
    if type(value) is not wanted:
        words = {bool: "true or false", int: "an integer", float: "a number", str: "a string"}
        problem = f"expected {words.get(wanted, 'an array')}, got {value!r}"
        raise InputError(problem, field=field)
    return value
