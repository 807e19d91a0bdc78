"""Reads a sweep file: an experiment, the values of some of its keys, and the contents of a cell;
and expands its axes into runs: their settings, names and cells.

A problem in it or in an arm's experiment is one line with file and line; names of registers are
checked when a cell is filled. A run is named `SWEEP.ARM.key-value.key-value`. Axes of an evaluation
make no runs: each run is trained once and measured at all their values. Numbers of items that are
taken first need no evaluations of their own: they are parts of the record of the largest, so that
no item is asked twice.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator

from assay.data.files import canonical_json, sha256_text
from assay.data.toml_text import KeyPath
from assay.errors import InputError, nearest
from assay.experiment.base_table import Many, Name, Positive, SpecTable, refused
from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.experiment.experiment import Experiment, ExperimentOrigin, RunName
from assay.experiment.read_file import Problem, first_error, read_experiment, read_table
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
    def _has_points_and_baselines(self) -> Self:
        for field, names in (("on", self.on), ("select", self.select)):
            if len(set(names)) < len(names):
                raise refused(field, "names an evaluation twice", "leave one out")
        ratios, selecting = set(self.ratios_to), set(self.select)
        of_cells = len(self.on) > 1 or not ratios <= selecting
        of_dev = len(selecting) > 1 or bool(ratios & selecting)
        needed = {*(self.on if of_cells else ()), *(selecting if of_dev else ())}
        if lacking := sorted(needed - ratios):
            raise refused("ratios_to", f"no baseline score for {', '.join(lacking)}")
        unknown = ratios - set(self.on) - selecting
        if unknown:
            names = ", ".join(sorted(unknown))
            raise refused("ratios_to", f"{names} is not one of 'on' or 'select'")
        if not self.axes and not self.arms:
            raise refused("axes", "a sweep needs an axis or arms")
        return self


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


@dataclass(frozen=True, slots=True)
class SweepFile:
    """A sweep with the files it stands on."""

    file: Path
    sweep: Sweep
    axes: tuple[Axis, ...]
    """`arm` last, where there are arms."""

    @property
    def checkpoint_axis(self) -> Axis | None:
        """The axis of the checkpoints of each run, where there is one."""
        return next((axis for axis in self.axes if axis.key in CHECKPOINT_AXES), None)

    def arm(self, name: str | None) -> ArmSpec:
        """An arm by its name; what stands for the arms of a sweep without any is the base alone."""
        return self.sweep.arms.get(name or "", ArmSpec())

    def base_of(self, arm: ArmSpec) -> Path:
        """The experiment file of an arm."""
        return self.file.parent / (arm.base or self.sweep.base)

    def refuse(self, path: KeyPath, problem: str, fix: str = "") -> InputError:
        """The error for the value at `path` of the file."""
        return first_error([Problem(path, problem, fix)], ExperimentOrigin(self.file))


def read_sweep(file: Path) -> SweepFile:
    """The sweep of `file`. Raises InputError for the first problem in it or in an experiment."""
    sweep = read_table(Sweep, file)
    axes = [
        Axis(key, tuple(value) if isinstance(value, list) else (value,), ("axes", *at))
        for key, value, at in leaves(sweep.axes)
    ]
    if sweep.arms:
        axes.append(Axis(ARM, tuple(sweep.arms), ("arms",)))
    sweep_file = SweepFile(file, sweep, tuple(axes))
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


def _check_base(sweep_file: SweepFile, name: str | None) -> None:
    """The experiment of one arm reads, and measures what cells show."""
    arm = sweep_file.arm(name)
    base = sweep_file.base_of(arm)
    if not base.is_file():
        where: KeyPath = ("arms", name, "base") if name and arm.base else ("base",)
        raise sweep_file.refuse(where, f"{base}: no such file", "write it relative to this file")
    try:
        experiment = read_experiment(base, settings_of(arm.set))
    except InputError as error:
        if name is None or str(error).startswith(str(base)):
            raise
        raise sweep_file.refuse(("arms", name, "set"), str(error)) from None
    measured = {
        "on": ("report", sweep_file.sweep.on),
        "select": ("select", sweep_file.sweep.select),
    }
    for key, (role, names) in measured.items():
        known = [each for each, e in experiment.evaluate.items() if e.role == role]
        for each in names:
            if each not in known:
                fix = nearest(each, known) if known else f'none has role = "{role}"'
                raise sweep_file.refuse((key,), f"no evaluation {each!r} with role {role!r}", fix)
    axis = sweep_file.checkpoint_axis
    lengths = [each for each in sweep_file.axes if each.key.endswith(("steps", "epochs"))]
    # One checkpoint of an arm stands at every value.
    if axis is not None and arm.checkpoint is None and not lengths:
        for each in (*sweep_file.sweep.on, *sweep_file.sweep.select):
            if refusal := unmeasured(axis, experiment, each):
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


LONGEST = 24
"""Values written out in a name; longer ones are shortened to a hash."""
ROWS = ".take.rows"


def settings_of(values: Mapping[str, Any]) -> list[str]:
    """Values by dotted path, or in nested tables, as `--set` takes them."""
    return [f"{key}={inline(value)}" for key, value, _ in leaves(values)]


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """The last parts of each dotted path, as few as no other of the paths ends with."""
    parts = [key.split(".") for key in keys]
    short = {}
    for own in parts:
        ends = (own[-length:] for length in range(1, len(own)))
        alone = (end for end in ends if sum(each[-len(end) :] == end for each in parts) == 1)
        short[".".join(own)] = ".".join(next(alone, own))
    return short


def tags(values: Mapping[str, Any], keys: Sequence[str]) -> list[str]:
    """`KEY-VALUE` for each value, its key as short as no other of the `keys` ends."""
    short = short_names(keys)
    return [f"{short[key].replace('.', '-')}-{slug(value)}" for key, value in values.items()]


def slug(value: Any) -> str:
    """A value as part of a name: numbers as they are, signs as dashes, long values as a hash."""
    text = value if isinstance(value, str) else canonical_json(value)
    plain = re.sub(r"[^A-Za-z0-9.+_-]+", "-", text).strip("-.+").replace("+", "")
    if not plain or len(plain) > LONGEST or (not isinstance(value, str) and "{" in text):
        return sha256_text(canonical_json(value))[:8]
    return plain


@dataclass(frozen=True)
class PlannedMeasure:
    """One evaluation of a planned run, or the first items of one, which fill one cell."""

    place: Mapping[str, Any]
    """Value of every axis."""
    on: tuple[str, ...]
    """Names of the evaluations in the run."""
    first: int | None = None
    """The cell is the first so many items of the records; None: all of them."""
    checkpoint: str | None = None
    """The one checkpoint of its arm; None: those that the axes and the sweep name."""


@dataclass(frozen=True)
class PlannedRun:
    """One run of a sweep for each seed, and the cells that it fills."""

    name: str
    base: Path
    overrides: tuple[str, ...]
    cells: tuple[PlannedMeasure, ...]

    @cached_property
    def experiment(self) -> Experiment:
        """The resolved experiment. Raises InputError."""
        return read_experiment(self.base, self.overrides)


def plan(sweep_file: SweepFile) -> tuple[PlannedRun, ...]:
    """Every run of a sweep: all combinations, the last axis varying first.

    Raises InputError where an axis of an evaluation cannot be one, where two runs would have one
    name, and where a cell's experiment is refused.
    """
    sweep = sweep_file.sweep
    measuring = [axis for axis in sweep_file.axes if axis.key.startswith("evaluate.")]
    for axis in measuring:
        name = axis.key.split(".")[1]
        if sweep.on != (name,):
            problem = f"is a setting of {name!r}, and cells show {', '.join(sweep.on)}"
            raise sweep_file.refuse(axis.path, problem, f'write on = ["{name}"]')
    making = [axis for axis in sweep_file.axes if axis.makes_runs]
    keys = [axis.key for axis in making]
    runs = []
    for values in product(*(axis.values for axis in making)):
        place = dict(zip(keys, values, strict=True))
        arm, base = (
            sweep_file.arm(place.get(ARM)),
            sweep_file.base_of(sweep_file.arm(place.get(ARM))),
        )
        own = {key: value for key, value in place.items() if key != ARM}
        named = [place[ARM]] if ARM in place else []
        name = ".".join([sweep.name, *named, *tags(own, keys)])
        # An axis goes last: it is what the cell is about, whatever its arm sets.
        settings = [*settings_of(arm.set), *(f"{key}={inline(v)}" for key, v in own.items())]
        cells, more = cells_of(sweep_file, arm, settings, place, measuring)
        runs.append(
            PlannedRun(name, base, (f"name={inline(name)}", *settings, *more), tuple(cells))
        )
    names = [run.name for run in runs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise sweep_file.refuse(("axes",), f"two runs would be named {twice!r}", "rename a value")
    for run in runs:
        _ = run.experiment  # a refused one is named before anything runs
    return tuple(runs)


def cells_of(
    sweep_file: SweepFile,
    arm: ArmSpec,
    settings: Sequence[str],
    place: Mapping[str, Any],
    measuring: Sequence[Axis],
) -> tuple[list[PlannedMeasure], list[str]]:
    """The cells of one run, and the overrides that make its evaluations."""
    if not measuring:
        return [PlannedMeasure(place, sweep_file.sweep.on, checkpoint=arm.checkpoint)], []
    (name,) = sweep_file.sweep.on
    experiment = read_experiment(sweep_file.base_of(arm), settings)
    table = experiment.evaluate[name].model_dump(exclude_none=True)
    of_first = (table.get("take") or {}).get("how") == "first"
    prefix = next((axis.key for axis in measuring if of_first and axis.key.endswith(ROWS)), "")
    rows = {value for axis in measuring if axis.key == prefix for value in axis.values}
    fixed = {key for key, _, _ in leaves(arm.set)}
    # The file's own evaluation takes fewer items than the longest, and stays as it is.
    longer = bool(rows) and table["take"]["rows"] in rows - {max(rows)}
    made: dict[str, str] = {}
    cells, overrides = [], []
    for values in product(*(axis.values for axis in measuring)):
        chosen = {axis.key: value for axis, value in zip(measuring, values, strict=True)}
        own = {key: value for key, value in chosen.items() if key not in fixed}
        if prefix:
            own[prefix] = max(rows)
        if inline(own) not in made:
            told = {k: v for k, v in own.items() if longer or k != prefix}
            # The first keeps the name, so that the file's own evaluation is not one more.
            named = [name, *(tags(told, [*own]) if made or longer else [])]
            made[inline(own)] = "-".join(named).replace(".", "_")
            changed: Mapping[str, Any] = table
            for key, value in own.items():
                changed = _with(changed, key.split(".")[2:], value)
            overrides.append(f"evaluate.{made[inline(own)]}={inline(changed)}")
        on = (made[inline(own)],)
        cells.append(PlannedMeasure({**place, **chosen}, on, chosen.get(prefix), arm.checkpoint))
    return cells, overrides


def _with(table: Mapping[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    """The table with one value inside it replaced."""
    first, *rest = path
    inner = _with(table.get(first) or {}, rest, value) if rest else value
    return {**table, first: inner}
