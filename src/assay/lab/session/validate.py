"""Reads an experiment file and reports all its problems at once.

Checks values, rules between tables, names of registers, and that files exist. Names are looked up
here and not on reading, because the registers import torch and the tasks' modules. Contents of
files, and whether the model can be trained, are checked in `lab.check`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.agents.task import with_agent
from assay.data.files import expanded
from assay.data.formats.formats import FORMATS
from assay.data.loaded import absent
from assay.data.renderings.rendering import RENDERINGS
from assay.data.toml_text import KeyPath
from assay.engines.environments import need_vllm
from assay.engines.ranks import check_ranks
from assay.engines.ray_pool import need_ray
from assay.errors import InputError, nearest
from assay.experiment.base_table import SpecTable
from assay.experiment.experiment import Experiment
from assay.experiment.helper_tables import HELPERS, MODEL
from assay.experiment.price_table import TokenPrice
from assay.experiment.read_file import ExperimentSource, Problem, read_experiment, refuse
from assay.experiment.reward_tables import Bounds, Reward, RewardPart, parts_of
from assay.experiment.selection_tables import SELECTIONS, SYNTHESISE
from assay.experiment.stage_tables import GrpoStage, SftStage, StageSpec
from assay.experiment.tables import EngineSpec
from assay.lab.models.helper_models import METRIC, counted, spent
from assay.lab.models.learner import arm_of, model_kinds
from assay.lab.monitor.sinks import refusals
from assay.lab.session.reward_parts import known_outcomes, table_part
from assay.models.source import EXAMPLES
from assay.rl.advantages import ADVANTAGES, may_drop
from assay.rl.aggregation import AGGREGATIONS
from assay.rl.kl import CORRECTED, KL_ESTIMATORS, SEQUENCE_KL, k1
from assay.rl.losses import LOSSES
from assay.rl.presets import PRESETS
from assay.runs.run_names import find_named
from assay.tasks.helper_model import KINDS, Usage
from assay.tasks.judge_reward import JudgeReward
from assay.tasks.reward_table import not_in_facts
from assay.tasks.task import (
    BenchmarkOptions,
    Task,
    made_source,
    makers,
    task,
)
from assay.tasks.user_code import forget_changed_files
from assay.train.metric_names import METHODS, PART, is_written
from assay.trainers.register import need_trainer

WRITTEN_BY = ["auto", *RENDERINGS]


def check_names(experiment: Experiment, root: Path = Path()) -> None:
    """Raise InputError for the names that are in no register, with the nearest that are. Users'
    files lie in `root`."""
    refuse([*unknown_names(experiment, root)], experiment.origin)


def unknown_names(experiment: Experiment, root: Path) -> Iterator[Problem]:
    """Every name that is in no register, in the order of the tables."""
    place = "task"
    try:
        skill = task(experiment.task, root)
        place = "agent"
        skill = with_agent(skill, experiment.agent, root)
    except InputError as wrong:
        yield _problem_of((place,), wrong)
        return
    if skill.name != experiment.task and not experiment.data:
        yield from _refused(("task",), skill.check_source, experiment.task, BenchmarkOptions())
    engine = experiment.engine or EngineSpec()
    if engine.sample == "vllm":
        yield from _refused(("engine", "sample"), need_vllm)
    if engine.evaluate != "own":
        yield from _refused(("engine", "evaluate"), need_ray, engine.evaluate, "engine.evaluate")
    yield from _refused(("engine", "ranks"), check_ranks, engine.ranks)
    kind = experiment.model.partition(":")[0]
    yield from _unknown(("model",), kind, model_kinds(kind, skill), "kind of model source")
    yield from _refused(("model",), arm_of, skill, experiment.model)
    for name, helper in experiment.helpers.items():
        path, kind = ("model", name, "source"), helper.source.partition(":")[0]
        yield from _unknown(path, kind, {**EXAMPLES, **KINDS}, "kind of model source")
    for table in (HELPERS, SYNTHESISE, "stage", "evaluate"):
        for name, spec in getattr(experiment, table).items():
            path = (MODEL if table == HELPERS else table, name, "rendering")
            yield from _unknown(path, spec.rendering, WRITTEN_BY, "rendering")
    for name, data in experiment.data.items():
        kind = (data.source or "").partition(":")[0]
        if data.source is not None and made_source(skill, data.source) is None:
            kinds = ["path", "hf", "run", *skill.sources]
            yield from _unknown(("data", name, "source"), kind, kinds, "source")
            if kind in skill.sources:
                options = BenchmarkOptions(data.options or {}, root)
                yield from _refused(("data", name), skill.check_source, data.source, options)
        yield from _unknown(("data", name, "format"), data.format, FORMATS, "format")
        for benchmark in data.disjoint_from:
            path = ("data", name, "disjoint_from")
            yield from _unknown(path, benchmark, skill.benchmarks, "benchmark")
    for scheme in (SELECTIONS, SYNTHESISE):
        if getattr(experiment, scheme):
            yield from dict(makers([skill]))[scheme].absent(experiment, root)
    for name, stage in experiment.stage.items():
        if not isinstance(stage, SftStage):
            yield from _rewards(("stage", name), stage, skill, experiment, root)
        if isinstance(stage, GrpoStage):
            yield from _estimators(("stage", name), stage)
        yield from _refused(("stage", name, "trainer"), need_trainer, name, stage)
    for name, evaluation in experiment.evaluate.items():
        yield from _rewards(("evaluate", name), evaluation, skill, experiment, root)
        path, benchmark = ("evaluate", name, "benchmark"), evaluation.benchmark
        yield from _unknown(path, benchmark, skill.benchmarks, "benchmark")
    yield from _metrics(experiment, skill)
    if experiment.log is not None:
        for problem, fix in refusals(experiment.log):
            yield Problem(("log", "to"), problem, fix)


def _metrics(experiment: Experiment, skill: Task) -> Iterator[Problem]:
    """Watched metrics that no watched stage writes, and a task's that take another's name."""
    own = {*skill.metrics, *skill.group_metrics}
    for name in sorted(own):
        if any(name in known for known in METHODS.values()):
            problem = f"its metric {name!r} has the name of one that stages write"
            yield Problem(("task",), problem, "give it another name")
    watched: list[tuple[KeyPath, str | None, str | None]] = [
        ((kind, name, "metric"), one.metric, one.stage)
        for kind in ("guard", "milestone")
        for name, one in getattr(experiment, kind).items()
    ]
    watched += [(("budget", metric), metric, None) for metric in experiment.budget]
    for path, metric, name in watched:
        stages = [experiment.stage[name]] if name else [*experiment.stage.values()]
        methods = [stage.method for stage in stages]
        if metric is None:
            continue
        yield from _no_such_part(path, metric, stages)
        if metric.startswith(METRIC):
            name, _, key = metric.removeprefix(METRIC).partition("/")
            yield from _unknown(path, name, experiment.helpers, "helper model")
            known = spent(counted(Usage()), TokenPrice(0, 0))
            yield from _unknown(path, key, known, "metric of helper models")
        elif metric in own and any(method not in ("sft", "dpo") for method in methods):
            continue
        elif not any(is_written(metric, method) for method in methods):
            known = frozenset(own).union(*(METHODS[method] for method in methods))
            what = f"metric of {' and '.join(dict.fromkeys(methods)) or 'a run without stages'}"
            yield from _unknown(path, metric, known, what)


def _no_such_part(path: KeyPath, metric: str, stages: Iterable[StageSpec]) -> Iterator[Problem]:
    """A watched part that no table of the stages has; what else has parts is known at work."""
    rewards = [stage.reward for stage in stages if not isinstance(stage, SftStage)]
    names = [name for reward in rewards if isinstance(reward, dict) for name in reward]
    part = f"{metric.removeprefix(PART)}/"
    whole = metric.startswith(PART) and all(isinstance(each, dict) for each in rewards)
    if whole and names and not any(part.startswith(f"{name}/") for name in names):
        yield from _unknown(path, part[:-1], names, "part of the reward")


def _rewards(
    at: KeyPath, table: Any, skill: Task, experiment: Experiment, root: Path
) -> Iterator[Problem]:
    """Kinds of rewards that there are not, and helper models and outcomes that they have not, in
    the table of a stage or of an evaluation."""
    path, outcomes = (*at, "reward"), dict[str, Collection[str]]()
    spec: Reward | None = table.reward
    stored, helpers = getattr(table, "stored", False), experiment.helpers
    for name, part in parts_of(spec or {}).items():
        place = path if isinstance(spec, str) else (*path, name)
        if isinstance(spec, dict) and isinstance(spec[name], RewardPart):
            place = (*place, "kind")
        try:
            reward = table_part(skill, part, root).reward
        except InputError as wrong:
            own = wrong.field and (wrong.field == "value" or wrong.field.startswith("options"))
            inside = (*place[:-1], *(wrong.field or "").split("."))
            yield _problem_of(inside if own else place, wrong)
            continue
        outcomes[name] = known_outcomes(reward)
        if stored and (why := not_in_facts(reward)):
            yield Problem(place, f"{part.kind!r} is {why}", "name another, or leave it out")
        for helper in reward.helpers if isinstance(reward, JudgeReward) and not stored else ():
            if helper not in helpers:
                fix = nearest(helper, helpers) if helpers else f"declare it as [model.{helper}]"
                problem = f"{part.kind!r} asks for the helper model {helper!r}, not declared"
                yield Problem(place, problem, fix)
    for name, part in parts_of(spec or {}).items():
        for other, wanted in part.when.items():
            known = outcomes.get(other, ())
            for outcome in (wanted.outcome or ()) if isinstance(wanted, Bounds) and known else ():
                place = (*path, name, "when", other, "outcome")
                yield from _unknown(place, outcome, known, f"outcome of {other!r}")


def _problem_of(path: KeyPath, error: InputError) -> Problem:
    """What a name leads to that cannot be used, with the place in the user's own file."""
    place = ":".join(str(part) for part in (error.file, error.line) if part is not None)
    inner = error.field if place else ""
    text = ": ".join(filter(None, (place, inner, error.problem)))
    if not place and (error.field or "").startswith("options."):
        path = (*path, *str(error.field).split("."))
    return Problem(path, text, error.fix or "")


def _refused(path: KeyPath, check: Callable[..., object], *arguments: object) -> Iterator[Problem]:
    """What a check of the value at `path` raises."""
    try:
        check(*arguments)
    except InputError as wrong:
        yield _problem_of(path, wrong)


def _estimators(place: KeyPath, stage: GrpoStage) -> Iterator[Problem]:
    """Names of estimators and losses that there are not, options that these do not read, and what
    else does not go with them."""
    preset, options = PRESETS.get(stage.algorithm), stage.advantage_options
    advantage = stage.advantage or (preset.advantage if preset else "")
    loss = stage.loss or (preset.loss if preset else "")
    penalties = [*KL_ESTIMATORS]
    if stage.kl.where == "loss":
        plain = (name for name, function in KL_ESTIMATORS.items() if function is not k1)
        penalties = [*plain, CORRECTED, *SEQUENCE_KL]
    registers: Sequence[tuple[str, str | None, Collection[str], str]] = (
        ("algorithm", stage.algorithm, PRESETS, "preset"),
        ("advantage", stage.advantage, ADVANTAGES, "advantage estimator"),
        ("loss", stage.loss, LOSSES, "loss"),
        ("aggregation", stage.aggregation, AGGREGATIONS, "aggregation"),
        ("kl.estimator", stage.kl.estimator, penalties, f"KL estimator in the {stage.kl.where}"),
    )
    for key, name, known, what in registers:
        yield from _unknown((*place, *key.split(".")), name, known, what)
    lone = options is not None and options.lone == "reward"
    # Dropping by force beside KL and entropy terms is refused on reading.
    if stage.drop_without_signal is True and preset and (lone or not may_drop(advantage=advantage)):
        problem = f"{advantage} whitens over the batch, groups without signal included"
        if lone:
            problem = "the raw reward of a completion alone in its group would be left out"
        yield Problem((*place, "drop_without_signal"), problem, 'use "auto"')
    if advantage in ADVANTAGES:
        yield from _unread((*place, "advantage_options"), advantage, options, ADVANTAGES)
        yield from _needs(place, stage, advantage, lone)
    if loss in LOSSES:
        yield from _unread((*place, "clip"), loss, stage.clip, LOSSES)


def _unread(
    place: KeyPath, name: str, table: SpecTable | None, register: Mapping[str, Any]
) -> Iterator[Problem]:
    """Options that are given and not read by the function of this name."""
    for option in table.model_dump(exclude_none=True) if table else ():
        able = [other for other, each in register.items() if option in each.reads]
        if name not in able:
            fix = f"remove it; it is read by {', '.join(able)}"
            yield Problem((*place, option), f"{name!r} does not read it", fix)


def _needs(place: KeyPath, stage: GrpoStage, advantage: str, lone: bool) -> Iterator[Problem]:
    """Estimators that need a group, or the parts of a reward."""
    estimator = ADVANTAGES[advantage]
    if stage.group == 1 and not lone and not estimator.groupless:
        able = ", ".join(sorted(name for name, each in ADVANTAGES.items() if each.groupless))
        problem = f"{advantage!r} compares the completions of a group and needs at least 2"
        fix = f'sample more, take {able}, or set advantage_options = {{ lone = "reward" }}'
        yield Problem((*place, "group"), problem, fix if "lone" in estimator.reads else "")
    if estimator.parts and isinstance(stage.reward, str):
        problem = f"{advantage!r} standardises each part of a reward, and this one has no parts"
        yield Problem((*place, "reward"), problem, "write a table of rewards and weights")
    if estimator.parts and stage.kl.coef and stage.kl.where == "reward":
        problem = f"{advantage!r} reads the parts of the reward alone, not a penalty at its tokens"
        yield Problem((*place, "kl", "where"), problem, 'use where = "loss"')


def _unknown(
    path: KeyPath, name: str | None, known: Collection[str], what: str
) -> Iterator[Problem]:
    """A name that is written and none of those known."""
    if name is not None and name not in known:
        yield Problem(path, f"unknown {what} {name!r}", nearest(name, known))


def read_whole(source: ExperimentSource, overrides: Sequence[str], root: Path) -> Experiment:
    """The resolved experiment of `source` in the lab at `root`. Raises InputError with all problems
    of its tables; where these are sound, what `check_whole` raises."""
    experiment = read_experiment(source, overrides)
    check_whole(experiment, root)
    return experiment


def check_whole(experiment: Experiment, root: Path) -> None:
    """Raise InputError with all names and files of an experiment that are not there."""
    forget_changed_files()
    problems = [*unknown_names(experiment, root), *absent_files(experiment, root)]
    refuse(problems, experiment.origin)


def absent_files(experiment: Experiment, root: Path) -> Iterator[Problem]:
    """Data files, model folders and checkpoints of other runs that are not there; relative paths
    count from `root`."""

    def find_folder(root: Path, name: str) -> None:
        if not (place := root / expanded(name)).exists():
            raise InputError(f"{place}: no such folder", fix=f"it counts from {root}")

    opened = {("model",): experiment.model}
    opened |= {("model", name, "source"): each.source for name, each in experiment.helpers.items()}
    opened |= {("stage", name, "start"): stage.start for name, stage in experiment.stage.items()}
    for path, source in opened.items():
        kind, _, name = source.partition(":")
        if kind in ("run", "path"):
            yield from _refused(path, find_named if kind == "run" else find_folder, root, name)
    for name, data in experiment.data.items():
        kind, _, rest = (data.source or "").partition(":")
        if kind == "path" and (problem := absent(root / rest)):
            problem = f"{root / rest}: {problem}"
            yield Problem(("data", name, "source"), problem, f"it counts from {root}")
        chosen = data.take and data.take.selection
        if chosen and not (root / chosen).is_file():
            problem = f"{root / chosen}: no such file"
            fix = f"it counts from {root}, and 'assay select' writes it"
            yield Problem(("data", name, "take", "selection"), problem, fix)
