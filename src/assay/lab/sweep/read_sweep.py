"""Reads a sweep file: an experiment, the values of some of its keys, and the contents of a cell.

A problem in it or in an arm's experiment is one line with file and line. `planned_runs` makes the
runs; names of registers are checked when a cell is filled.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from assay.data.toml_text import KeyPath
from assay.errors import InputError, nearest
from assay.experiment.base_table import Many, Name, Positive, SpecTable, refused
from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.experiment.experiment import Experiment, RunName
from assay.experiment.problems import Problem, problems_in
from assay.experiment.read_file import first_error, parse_toml, read_experiment, read_text
from assay.experiment.stage_tables import StageSpec
from assay.experiment.toml_write import inline
from assay.experiment.training_settings import EveryEpochs

OneOrMany = Annotated[Many[str], BeforeValidator(lambda v: (v,) if isinstance(v, str) else v)]


class ArmSpec(SpecTable):
    """One arm: a method, a model or a setting under a name of its own."""

    base: str | None = None
    """Its experiment file, relative to the sweep file; omitted means the sweep's."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Values that are its own, by dotted path. One of an axis under `evaluate.` is measured once,
    and stands at every value of that axis: a zero-shot arm at every number of shots."""
    checkpoint: str | None = None
    """The checkpoint that it is measured at and that stands at every value of an axis of
    checkpoints, such as `base` of a model that nothing trains; omitted: each value's own."""


class BaselineSpec(SpecTable):
    """What every cell is compared with: one of the three."""

    where: dict[str, Any] = Field(default_factory=dict)
    """Axis and value, as in `arm = "control"`: the cell that differs in nothing else."""
    run: str | None = None
    """A run or a checkpoint of one, measured on the same items: NAME[@CHECKPOINT]."""
    checkpoint: str | None = None
    """A checkpoint of the cell's own run, such as `base`."""

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        names = [n for n in ("where", "run", "checkpoint") if getattr(self, n)]
        if len(names) != 1:
            listing = " and ".join(names) or "none"
            raise refused("where", f"one of where, run and checkpoint is needed, not {listing}")
        return self


class Sweep(SpecTable):
    """A sweep: runs of one experiment that differ in the values of some keys."""

    name: RunName
    """Runs are named after it and their values: letters, digits, `.`, `_` and `-`."""
    about: str = ""
    """What the sweep is meant to find out, in a sentence."""
    base: str
    """The experiment file, relative to the sweep file."""
    on: Annotated[Many[str], Field(min_length=1)]
    """The reporting evaluation of the experiment that a cell shows; several with `ratios_to`."""
    ratios_to: dict[str, Positive] = Field(default_factory=dict)
    """Baseline score of each of several evaluations; a cell is the harmonic mean of the ratios."""
    select: OneOrMany = ()
    """The evaluation with role `select` that ranks cells, or several with `ratios_to`; omitted: the
    only one there is."""
    checkpoint: str | None = None
    """STAGE.last, STAGE.best, STAGE.step-N, or STAGE.all with the axis `step` or `epoch`; omitted:
    the last one measured."""
    rows: str | None = None
    """The axis down the table; omitted: the first."""
    columns: str | None = None
    """The axis across the table; omitted: the second."""
    baseline: BaselineSpec | None = None
    """What cells are compared with; omitted: nothing is compared."""
    controls: dict[Name, BaselineSpec] = Field(default_factory=dict)
    """Further cells, runs or checkpoints that every cell is compared with, by name; all of these
    comparisons and those with the baseline are one family."""
    axes: dict[str, Any] = Field(default_factory=dict)
    """Values by dotted path of the experiment, such as `stage.sft.batch = [8, 16]`: all of them."""
    arms: dict[Name, ArmSpec] = Field(default_factory=dict)
    """Arms by name: one more axis, called `arm`."""

    def ratios_of(self, names: tuple[str, ...]) -> dict[str, float]:
        """The baseline scores of these evaluations, in their order; empty where they have none."""
        known = set(names) <= set(self.ratios_to)
        return {name: self.ratios_to[name] for name in names} if known else {}

    @model_validator(mode="after")
    def _ratios_need_baselines(self) -> Self:
        for field, names in (("on", self.on), ("select", self.select)):
            if len(set(names)) < len(names):
                raise refused(field, "names an evaluation twice", "leave one out")
        ratios, selecting = set(self.ratios_to), set(self.select)
        of_cells = len(self.on) > 1 or not ratios <= selecting
        of_dev = len(selecting) > 1 or bool(ratios & selecting)
        needed = {*(self.on if of_cells else ()), *(selecting if of_dev else ())}
        if needed - ratios:
            raise refused("ratios_to", f"no baseline score for {_listed(needed - ratios)}")
        unknown = ratios - set(self.on) - selecting
        if unknown:
            raise refused("ratios_to", f"{_listed(unknown)} is not one of 'on' or 'select'")
        return self

    @model_validator(mode="after")
    def _names_points(self) -> Self:
        if not self.axes and not self.arms:
            raise refused("axes", "a sweep needs an axis or arms")
        return self


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))


ARM = "arm"
"""The axis of the sweep's arms; any other axis is a dotted path or a key of a checkpoint."""
CHECKPOINT_AXES = ("checkpoint", "step", "epoch")
"""Axes of the checkpoints of one run."""
EVERY = "write base, STAGE.best, STAGE.last, STAGE.step-N or STAGE.all"


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a sweep."""

    key: str
    """Dotted path in the experiment, `arm`, or a key of checkpoints."""
    values: tuple[Any, ...]
    path: KeyPath
    """Where the sweep file has it."""

    @property
    def makes_runs(self) -> bool:
        """Whether each value is another run; else each run is measured at all values."""
        return self.key not in CHECKPOINT_AXES and not self.key.startswith("evaluate.")


Point = Mapping[str, Any]
"""The values of the axes that make runs, by key."""


@dataclass(frozen=True, slots=True)
class SweepFile:
    """A sweep with the files it stands on."""

    file: Path
    text: str
    sweep: Sweep
    axes: tuple[Axis, ...]
    """`arm` last, where there are arms."""

    @property
    def points(self) -> tuple[Point, ...]:
        """What is run, once for each seed: all combinations of values."""
        making = [axis for axis in self.axes if axis.makes_runs]
        values = product(*(axis.values for axis in making))
        keys = [axis.key for axis in making]
        return tuple(dict(zip(keys, each, strict=True)) for each in values)

    @property
    def checkpoint_axis(self) -> Axis | None:
        """The axis of the checkpoints of each run, where there is one."""
        return next((axis for axis in self.axes if axis.key in CHECKPOINT_AXES), None)

    def base_of(self, arm: str | None) -> Path:
        """The experiment file of an arm."""
        own = self.sweep.arms[arm].base if arm is not None else None
        return self.file.parent / (own or self.sweep.base)

    def overrides_of(self, arm: str | None) -> list[str]:
        """What an arm sets, as `--set` takes it."""
        if arm is None:
            return []
        return [f"{key}={inline(v)}" for key, v, _ in leaves(self.sweep.arms[arm].set)]

    def refuse(self, path: KeyPath, problem: str, fix: str = "") -> InputError:
        """The error for the value at `path` of the file."""
        return first_error([Problem(path, problem, fix)], self.file, self.text, [])


def read_sweep(file: Path) -> SweepFile:
    """The sweep of `file`. Raises InputError for the first problem in it or in an experiment."""
    text = read_text(file)
    raw = parse_toml(text, file)
    try:
        sweep = Sweep.model_validate(raw)
    except ValidationError as invalid:
        problems = problems_in(invalid.errors(include_url=False), raw, Sweep)
        raise first_error(problems, file, text, []) from None
    axes = [
        Axis(key, tuple(value) if isinstance(value, list) else (value,), ("axes", *at))
        for key, value, at in leaves(sweep.axes)
    ]
    if sweep.arms:
        axes.append(Axis(ARM, tuple(sweep.arms), ("arms",)))
    sweep_file = SweepFile(file, text, sweep, tuple(axes))
    for axis in axes:
        if not axis.values:
            raise sweep_file.refuse(axis.path, "has no values")
        texts = [inline(value) for value in axis.values]
        for index, text in enumerate(texts):
            if text in texts[:index]:
                raise sweep_file.refuse(axis.path, f"has the value {text} twice", "leave one out")
        first = axis.key.partition(".")[0]
        if first in ("name", "seeds", "control", "vary", "about", "note"):
            seeds = "seeds of the base file are pooled in each cell"
            fix = seeds if first == "seeds" else "runs are named after the sweep; arms carry names"
            raise sweep_file.refuse(axis.path, f"{axis.key!r} is no axis", fix)
        if axis.key in CHECKPOINT_AXES:
            _check_checkpoint_axis(sweep_file, axis)
    for arm in sweep.arms or [None]:
        _check_base(sweep_file, arm)
    sweep, known = sweep_file.sweep, [axis.key for axis in sweep_file.axes]
    for field in ("rows", "columns"):
        key = getattr(sweep, field)
        if key is not None and key not in known:
            raise sweep_file.refuse((field,), f"{key!r} is no axis", nearest(key, known))
    many = sweep_file.checkpoint_axis is not None
    _check_name(sweep_file, sweep.checkpoint, ("checkpoint",), many)
    _check_baselines(sweep_file)
    return sweep_file


def leaves(table: Mapping[str, Any], at: KeyPath = ()) -> Iterator[tuple[str, Any, KeyPath]]:
    """Dotted path, value and written place of everything in nested tables.

    A key with a dot in it (in quotes) is a whole path, and its value is taken as it is.
    """
    for key, value in table.items():
        if isinstance(value, Mapping) and "." not in key:
            for inner, leaf, place in leaves(value, (*at, key)):
                yield f"{key}.{inner}", leaf, place
        else:
            yield key, value, (*at, key)


def _check_checkpoint_axis(sweep_file: SweepFile, axis: Axis) -> None:
    others = [each.key for each in sweep_file.axes if each.key in CHECKPOINT_AXES]
    if others[0] != axis.key:
        problem = f"{others[0]} names the checkpoints already"
        raise sweep_file.refuse(axis.path, problem, "leave one out")
    checkpoint = sweep_file.sweep.checkpoint
    reference = parse_checkpoint(checkpoint or "")
    if checkpoint and (reference is None or reference.which != "all"):
        problem = f"{checkpoint!r} is one checkpoint, and {axis.key} is an axis"
        raise sweep_file.refuse(("checkpoint",), problem, "leave it out")
    for value in axis.values:
        if axis.key == "checkpoint":
            _check_name(sweep_file, str(value), axis.path)
        elif type(value) not in ((int,) if axis.key == "step" else (int, float)) or value <= 0:
            problem = f"{value!r} is no {axis.key} after training"
            raise sweep_file.refuse(axis.path, problem, f"write {axis.key} = [3, 6]")


def _check_name(sweep_file: SweepFile, text: str | None, at: KeyPath, many: bool = False) -> None:
    """A text, where there is one, names a checkpoint; with `many`, or all of a stage."""
    reference = parse_checkpoint(text or "base")
    if reference is None or (reference.which == "all" and not many):
        raise sweep_file.refuse(at, f"{text!r} is no single checkpoint", EVERY)


def _check_baselines(sweep_file: SweepFile) -> None:
    """What cells are compared with are cells of the sweep, or checkpoints that there may be."""
    sweep, axes = sweep_file.sweep, {axis.key: axis for axis in sweep_file.axes}
    places: dict[KeyPath, BaselineSpec | ArmSpec | None] = {("baseline",): sweep.baseline}
    places |= {("controls", name): each for name, each in sweep.controls.items()}
    places |= {("arms", name): each for name, each in sweep.arms.items()}
    for at, each in places.items():
        if at == ("controls", "baseline"):
            raise sweep_file.refuse(at, "is the name of the baseline", "rename it")
        for key, value, path in leaves(each.where) if isinstance(each, BaselineSpec) else ():
            place = (*at, "where", *path)
            if key not in axes:
                raise sweep_file.refuse(place, f"{key!r} is no axis", nearest(key, axes))
            if value not in axes[key].values:
                fix = nearest(str(value), axes[key].values)
                raise sweep_file.refuse(place, f"{key} is never {inline(value)}", fix)
        _check_name(sweep_file, each and each.checkpoint, (*at, "checkpoint"))


def _check_base(sweep_file: SweepFile, arm: str | None) -> None:
    """The experiment of one arm reads, and measures what cells show."""
    base = sweep_file.base_of(arm)
    where: KeyPath = ("arms", arm, "base") if arm and sweep_file.sweep.arms[arm].base else ("base",)
    if not base.is_file():
        raise sweep_file.refuse(where, f"{base}: no such file", "write it relative to this file")
    try:
        experiment = read_experiment(base, sweep_file.overrides_of(arm))
    except InputError as error:
        if arm is None or str(error).startswith(str(base)):
            raise
        raise sweep_file.refuse(("arms", arm, "set"), str(error)) from None
    for role, names, key in (
        ("report", sweep_file.sweep.on, "on"),
        ("select", sweep_file.sweep.select, "select"),
    ):
        known = [name for name, e in experiment.evaluate.items() if e.role == role]
        for name in names:
            if name not in known:
                fix = nearest(name, known) if known else f'none has role = "{role}"'
                raise sweep_file.refuse((key,), f"no evaluation {name!r} with role {role!r}", fix)
    axis = sweep_file.checkpoint_axis
    if arm is not None and sweep_file.sweep.arms[arm].checkpoint is not None:
        axis = None  # its one checkpoint stands at every value
    if axis is not None and not any(
        each.key.endswith(("steps", "epochs")) for each in sweep_file.axes
    ):
        for name in (*sweep_file.sweep.on, *sweep_file.sweep.select):
            if refusal := unmeasured(axis, experiment, name):
                raise sweep_file.refuse(axis.path, *refusal)


def unmeasured(axis: Axis, experiment: Experiment, name: str) -> tuple[str, str] | None:
    """Which value will have no record, as no evaluation of it or no checkpoint is there, and what
    to write; None where all will."""
    key, texts = axis.key, experiment.evaluate[name].checkpoints
    stages = [text.removesuffix(".all") for text in texts if text.endswith(".all")]
    if key == "checkpoint":
        lacking = [v for v in axis.values if v not in texts and str(v).split(".")[0] not in stages]
    else:
        spec = experiment.stage[stages[0]] if stages else None
        lacking = [value for value in axis.values if spec is None or not _has(spec, key, value)]
    if not lacking:
        return None
    stage = stages[0] if stages else next(iter(experiment.stage), "STAGE")
    fix = f'write evaluate.{name}.checkpoints = ["{stage}.all"]'
    if stages and key != "checkpoint":
        every = f"{{ epochs = {lacking[0]} }}" if key == "epoch" else f"{lacking[0]}"
        fix = f"write stage.{stage}.checkpoint_every = {every}"
    return f"{name} has no checkpoint to measure at {key} {lacking[0]}", fix


def _has(spec: StageSpec, key: str, value: float) -> bool:
    """Whether a stage has a checkpoint at a step or an epoch, as far as its table says."""
    last = spec.steps if key == "step" else spec.epochs
    every = spec.checkpoint_every
    if value == last or (last is not None and value > last):
        return value == last
    period = every.epochs if isinstance(every, EveryEpochs) else every
    comparable = isinstance(every, EveryEpochs) == (key == "epoch")
    return period is not None and not (comparable and value % period)
