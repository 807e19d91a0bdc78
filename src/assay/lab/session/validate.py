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
from assay.experiment.price_table import TokenPrice
from assay.experiment.problems import Problem
from assay.experiment.read_file import ExperimentSource, read_experiment, refuse
from assay.experiment.reward_tables import Bounds, Reward, RewardPart, parts_of
from assay.experiment.selection_tables import SELECTIONS
from assay.experiment.stage_tables import OTHER_RUN, GrpoStage, SftStage, StageSpec
from assay.experiment.synthesise_table import SYNTHESISE
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
    RewardFunction,
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
    refuse(unknown_names(experiment, root), experiment.origin)


def unknown_names(experiment: Experiment, root: Path) -> list[Problem]:
    """Every name that is in no register, in the order of the tables."""
    return [problem for problem in _problems(experiment, root) if problem is not None]


def _problems(experiment: Experiment, root: Path) -> Iterator[Problem | None]:
    try:
        skill = task(experiment.task, root)
    except InputError as wrong:
        yield _problem_of(("task",), wrong)
        return
    try:
        skill = with_agent(skill, experiment.agent, root)
    except InputError as wrong:
        yield _problem_of(("agent",), wrong)
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
    yield _unknown(("model",), kind, model_kinds(kind, skill), "kind of model source")
    yield from _refused(("model",), arm_of, skill, experiment.model)
    for name, helper in experiment.helpers.items():
        place = ("model", name)
        kind = helper.source.partition(":")[0]
        yield _unknown((*place, "source"), kind, {**EXAMPLES, **KINDS}, "kind of model source")
        yield _unknown((*place, "rendering"), helper.rendering, WRITTEN_BY, "rendering")
    for name, data in experiment.data.items():
        place = ("data", name)
        kinds = ["path", "hf", "run", *skill.sources]
        maker = made_source(skill, data.source)
        if maker is None and data.source is not None:
            yield _unknown((*place, "source"), data.source.partition(":")[0], kinds, "source")
            if data.source.partition(":")[0] in skill.sources:
                options = BenchmarkOptions(data.options or {}, root)
                yield from _refused(place, skill.check_source, data.source, options)
        if data.format is not None:
            yield _unknown((*place, "format"), data.format, FORMATS, "format")
        for benchmark in data.disjoint_from:
            yield _unknown((*place, "disjoint_from"), benchmark, skill.benchmarks, "benchmark")
    tables = [scheme for scheme in (SELECTIONS, SYNTHESISE) if getattr(experiment, scheme)]
    made = dict(makers([skill])) if tables else {}
    for scheme in tables:
        yield from made[scheme].absent(experiment, root)
    for name, spec in experiment.synthesise.items():
        yield _unknown((SYNTHESISE, name, "rendering"), spec.rendering, WRITTEN_BY, "rendering")
    for name, stage in experiment.stage.items():
        place = ("stage", name)
        yield _unknown((*place, "rendering"), stage.rendering, WRITTEN_BY, "rendering")
        if not isinstance(stage, SftStage):
            yield from _rewards(
                (*place, "reward"), stage.reward, skill, experiment, root, stored=stage.stored
            )
        if isinstance(stage, GrpoStage):
            yield from _estimators(place, stage)
        yield from _refused((*place, "trainer"), need_trainer, name, stage)
    for name, evaluation in experiment.evaluate.items():
        place = ("evaluate", name)
        yield _unknown((*place, "rendering"), evaluation.rendering, WRITTEN_BY, "rendering")
        yield from _rewards((*place, "reward"), evaluation.reward, skill, experiment, root)
        if evaluation.benchmark is not None:
            known = skill.benchmarks
            yield _unknown((*place, "benchmark"), evaluation.benchmark, known, "benchmark")
    yield from _metrics(experiment, skill)
    if experiment.log is not None:
        for problem, fix in refusals(experiment.log):
            yield Problem(("log", "to"), problem, fix)


def _metrics(experiment: Experiment, skill: Task) -> Iterator[Problem | None]:
    """Watched metrics that no watched stage writes, and a task's that take another's name."""
    own = {*skill.metrics, *skill.group_metrics}
    for name in sorted(own):
        if any(name in known for known in METHODS.values()):
            problem = f"its metric {name!r} has the name of one that stages write"
            yield Problem(("task",), problem, "give it another name")
    every = [stage.method for stage in experiment.stage.values()]
    for name, guard in experiment.guard.items():
        stages = [experiment.stage[guard.stage]] if guard.stage else experiment.stage.values()
        yield _no_such_part(("guard", name, "metric"), guard.metric, stages)
    watched: list[tuple[KeyPath, str, list[str]]] = []
    for name, guard in experiment.guard.items():
        methods = [experiment.stage[guard.stage].method] if guard.stage else every
        watched.append((("guard", name, "metric"), guard.metric, methods))
    for name, milestone in experiment.milestone.items():
        if milestone.metric is not None:
            methods = [experiment.stage[milestone.stage].method]
            watched.append((("milestone", name, "metric"), milestone.metric, methods))
    watched += [(("budget", metric), metric, every) for metric in experiment.budget]
    for path, metric, methods in watched:
        if metric.startswith(METRIC):
            name, _, key = metric.removeprefix(METRIC).partition("/")
            yield _unknown(path, name, experiment.helpers, "helper model")
            known = spent(counted(Usage()), TokenPrice(0, 0))
            yield _unknown(path, key, known, "metric of helper models")
        elif metric in own and any(method not in ("sft", "dpo") for method in methods):
            continue
        elif not any(is_written(metric, method) for method in methods):
            known = frozenset(own).union(*(METHODS[method] for method in methods))
            what = f"metric of {' and '.join(dict.fromkeys(methods)) or 'a run without stages'}"
            yield _unknown(path, metric, known, what)


def _no_such_part(path: KeyPath, metric: str, stages: Iterable[StageSpec]) -> Problem | None:
    """A watched part that no table of the stages has; what else has parts is known at work."""
    rewards = [stage.reward for stage in stages if not isinstance(stage, SftStage)]
    tables = [reward for reward in rewards if isinstance(reward, dict)]
    if not metric.startswith(PART) or not tables or len(tables) < len(rewards):
        return None
    names = [name for table in tables for name in table]
    part = metric.removeprefix(PART)
    if any(f"{part}/".startswith(f"{name}/") for name in names):
        return None
    return _unknown(path, part, names, "part of the reward")


def _rewards(
    path: KeyPath,
    spec: Reward | None,
    skill: Task,
    experiment: Experiment,
    root: Path,
    *,
    stored: bool = False,
) -> Iterator[Problem | None]:
    made: dict[str, RewardFunction] = {}
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
        else:
            made[name] = reward
            if not stored:
                yield from _undeclared(place, part.kind, reward, experiment.helpers)
            elif why := not_in_facts(reward):
                yield Problem(place, f"{part.kind!r} is {why}", "name another, or leave it out")
    for name, part in parts_of(spec or {}).items():
        yield from _no_such_outcome((*path, name, "when"), part, made)


def _no_such_outcome(
    path: KeyPath, part: RewardPart, made: Mapping[str, RewardFunction]
) -> Iterator[Problem | None]:
    """Outcomes in a part's conditions that the kind of the other part never gives."""
    for other, wanted in part.when.items():
        known = known_outcomes(made[other]) if other in made else ()
        for outcome in (wanted.outcome or ()) if isinstance(wanted, Bounds) and known else ():
            yield _unknown((*path, other, "outcome"), outcome, known, f"outcome of {other!r}")


def _undeclared(
    place: KeyPath, kind: str, reward: RewardFunction, helpers: Collection[str]
) -> Iterator[Problem]:
    """Helper models that a judge asks and the experiment does not declare."""
    for name in reward.helpers if isinstance(reward, JudgeReward) else ():
        if name not in helpers:
            fix = nearest(name, helpers) if helpers else f"declare it as [model.{name}]"
            yield Problem(place, f"{kind!r} asks for the helper model {name!r}, not declared", fix)


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


def _estimators(place: KeyPath, stage: GrpoStage) -> Iterator[Problem | None]:
    registers: Mapping[str, tuple[str | None, Collection[str], str]] = {
        "algorithm": (stage.algorithm, PRESETS, "preset"),
        "advantage": (stage.advantage, ADVANTAGES, "advantage estimator"),
        "loss": (stage.loss, LOSSES, "loss"),
        "aggregation": (stage.aggregation, AGGREGATIONS, "aggregation"),
    }
    for key, (name, known, what) in registers.items():
        if name is not None:
            yield _unknown((*place, key), name, known, what)
    yield _kl(place, stage)
    yield _dropping(place, stage)
    preset = PRESETS.get(stage.algorithm)
    advantage = stage.advantage or (preset.advantage if preset else "")
    loss = stage.loss or (preset.loss if preset else "")
    if advantage in ADVANTAGES:
        known = {name: each.reads for name, each in ADVANTAGES.items()}
        yield from _unread((*place, "advantage_options"), advantage, stage.advantage_options, known)
        yield from _needs(place, stage, advantage)
    if loss in LOSSES:
        known = {name: each.reads for name, each in LOSSES.items()}
        yield from _unread((*place, "clip"), loss, stage.clip, known)


def _unread(
    place: KeyPath, name: str, table: SpecTable | None, reads: Mapping[str, frozenset[str]]
) -> Iterator[Problem]:
    """Options that are given and not read by the function of this name."""
    for option in table.model_dump(exclude_none=True) if table else ():
        if option not in reads[name]:
            able = [other for other, options in reads.items() if option in options]
            yield Problem(
                (*place, option),
                f"{name!r} does not read it",
                f"remove it; it is read by {', '.join(able)}",
            )


def _needs(place: KeyPath, stage: GrpoStage, advantage: str) -> Iterator[Problem]:
    """Estimators that need a group, or the parts of a reward."""
    lone = stage.advantage_options is not None and stage.advantage_options.lone == "reward"
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


def _kl(place: KeyPath, stage: GrpoStage) -> Problem | None:
    path = (*place, "kl", "estimator")
    in_reward = stage.kl.where == "reward"
    able = [name for name, function in KL_ESTIMATORS.items() if in_reward or function is not k1]
    known = able if in_reward else [*able, CORRECTED, *SEQUENCE_KL]
    return _unknown(path, stage.kl.estimator, known, f"KL estimator in the {stage.kl.where}")


def _dropping(place: KeyPath, stage: GrpoStage) -> Problem | None:
    """Dropping by force where whitening over the batch makes dropped groups count."""
    preset = PRESETS.get(stage.algorithm)
    if stage.drop_without_signal is not True or preset is None:
        return None
    advantage = stage.advantage or preset.advantage
    lone = stage.advantage_options.lone if stage.advantage_options else None
    if lone == "reward":
        problem = "the raw reward of a completion alone in its group would be left out"
        return Problem((*place, "drop_without_signal"), problem, 'use "auto"')
    # Dropping by force beside KL and entropy terms is refused on reading.
    if may_drop(advantage=advantage):
        return None
    problem = f"{advantage} whitens over the batch, groups without signal included"
    return Problem((*place, "drop_without_signal"), problem, 'use "auto"')


def _unknown(path: KeyPath, name: str, known: Any, what: str) -> Problem | None:
    if name in known:
        return None
    return Problem(path, f"unknown {what} {name!r}", nearest(name, known))


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
    sources = {("model", name, "source"): each.source for name, each in experiment.helpers.items()}
    for path, source in {("model",): experiment.model, **sources}.items():
        kind, _, name = source.partition(":")
        if kind == "run":
            yield from _refused(path, find_named, root, name)
        if kind != "path":
            continue
        try:
            place = root / expanded(name)
        except InputError as wrong:
            yield _problem_of(path, wrong)
            continue
        if not place.exists():
            yield Problem(path, f"{place}: no such folder", f"it counts from {root}")
    for name, stage in experiment.stage.items():
        if stage.start.startswith(OTHER_RUN):
            other = stage.start.removeprefix(OTHER_RUN)
            yield from _refused(("stage", name, "start"), find_named, root, other)
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
