"""Reads a sweep file: an experiment, the values of some of its keys, and the contents of a cell.

A problem in it or in an arm's experiment is one line with file and line. `planned_runs` makes the
runs; names of registers are checked when a cell is filled.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, model_validator

from assay.data.toml_text import KeyPath
from assay.errors import InputError, nearest
from assay.experiment.base_table import Many, Name, Positive, Table, refused
from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.experiment.experiment import Experiment, RunName
from assay.experiment.overrides import annotations_at
from assay.experiment.problems import Problem, problems_in
from assay.experiment.read_file import (
    SpecError,
    first_error,
    parse_toml,
    read_experiment,
    read_text,
)
from assay.experiment.toml_write import inline

ARM = "arm"
"""The axis of the sweep's arms; any other axis is a dotted path or a key of a checkpoint."""


class ArmSpec(Table):
    """One arm: a method, a model or a setting under a name of its own."""

    base: str | None = None
    """Its experiment file, relative to the sweep file; omitted means the sweep's."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Values that are its own, by dotted path."""


class BaselineSpec(Table):
    """What every cell is compared with: one of the three."""

    where: dict[str, Any] = Field(default_factory=dict)
    """Axis and value, as in `arm = "control"`: the cell that differs in nothing else."""
    run: str | None = None
    """A run or a checkpoint of one, measured on the same items: NAME[@CHECKPOINT]."""
    checkpoint: str | None = None
    """A checkpoint of the cell's own run, such as `base`."""

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        given = [n for n in ("where", "run", "checkpoint") if getattr(self, n)]
        if len(given) != 1:
            found = " and ".join(given) or "none"
            raise refused("where", f"one of where, run and checkpoint is needed, not {found}")
        return self


class Sweep(Table):
    """A sweep: runs of one experiment that differ in the values of the axes."""

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
    select: str | None = None
    """The evaluation with role `select` that recommends a cell; omitted: the only one there is."""
    checkpoint: str | None = None
    """STAGE.last, STAGE.best, STAGE.step-N, or STAGE.all with the axis `step` or `epoch`; omitted:
    the last one measured."""
    rows: str | None = None
    """The axis down the table; omitted: the first."""
    columns: str | None = None
    """The axis across the table; omitted: the second."""
    baseline: BaselineSpec | None = None
    """What cells are compared with; omitted: nothing is compared."""
    axes: dict[str, Any] = Field(default_factory=dict)
    """Values by dotted path of the experiment, such as `stage.sft.batch = [8, 16]`."""
    arms: dict[Name, ArmSpec] = Field(default_factory=dict)
    """Arms by name: one more axis, called `arm`."""

    @model_validator(mode="after")
    def _ratios_need_baselines(self) -> Self:
        if len(self.on) > 1 or self.ratios_to:
            missing = sorted(set(self.on) - set(self.ratios_to))
            if missing:
                raise refused("ratios_to", f"no baseline score for {', '.join(missing)}")
            unknown = sorted(set(self.ratios_to) - set(self.on))
            if unknown:
                raise refused("ratios_to", f"{', '.join(unknown)} is not one of 'on'")
        if not self.axes and not self.arms:
            raise refused("axes", "a sweep needs an axis or arms")
        return self


LATE = ("checkpoint", "stage", "step", "epoch", "seed", "name")
"""Axes that a table of the sweep may have besides its own."""
CHECKPOINTS = "write base, STAGE.best, STAGE.last, STAGE.step-N or STAGE.all"


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a sweep."""

    key: str
    """Dotted path in the experiment, or `arm`."""
    values: tuple[Any, ...]
    path: KeyPath
    """Where the sweep file has it."""


@dataclass(frozen=True, slots=True)
class SweepFile:
    """A sweep with the files it stands on."""

    file: Path
    text: str
    sweep: Sweep
    axes: tuple[Axis, ...]
    """`arm` last, where there are arms."""

    def base_of(self, arm: str | None) -> Path:
        """The experiment file of an arm."""
        own = self.sweep.arms[arm].base if arm is not None else None
        return self.file.parent / (own or self.sweep.base)

    def overrides_of(self, arm: str | None) -> list[str]:
        """What an arm sets, as `--set` takes it."""
        if arm is None:
            return []
        return [f"{key}={inline(v)}" for key, v, _ in leaves(self.sweep.arms[arm].set)]

    def refuse(self, path: KeyPath, problem: str, fix: str = "") -> SpecError:
        """The error for the value at `path` of the file."""
        return first_error([Problem(path, problem, fix)], self.file, self.text, [])


def read_sweep(file: Path) -> SweepFile:
    """The sweep of `file`. Raises SpecError for the first problem in it or in an experiment."""
    text = read_text(file)
    raw = parse_toml(text, file)
    try:
        sweep = Sweep.model_validate(raw)
    except ValidationError as invalid:
        problems = problems_in(invalid.errors(include_url=False), raw, Sweep)
        raise first_error(problems, file, text, []) from None
    axes = [Axis(key, _values(value), ("axes", *at)) for key, value, at in leaves(sweep.axes)]
    if sweep.arms:
        axes.append(Axis(ARM, tuple(sweep.arms), ("arms",)))
    found = SweepFile(file, text, sweep, tuple(axes))
    for axis in axes:
        _check_axis(found, axis)
    _check_layout(found)
    _check_baseline(found)
    for arm in sweep.arms or [None]:
        _check_base(found, arm)
    return found


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


def _values(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list) else (value,)


def _check_axis(found: SweepFile, axis: Axis) -> None:
    if not axis.values:
        raise found.refuse(axis.path, "has no values")
    texts = [inline(value) for value in axis.values]
    for index, text in enumerate(texts):
        if text in texts[:index]:
            raise found.refuse(axis.path, f"has the value {text} twice", "leave one out")
    first = axis.key.partition(".")[0]
    if first in ("name", "seeds", "control", "vary", "about", "note"):
        raise found.refuse(axis.path, f"{axis.key!r} is no axis", _why_no_axis(first))


def _check_layout(found: SweepFile) -> None:
    """Rows and columns are axes or keys of what was measured; the checkpoint is one."""
    sweep, known = found.sweep, [axis.key for axis in found.axes]
    for field in ("rows", "columns"):
        key = getattr(sweep, field)
        if key is not None and key not in (*known, *LATE) and not key.startswith("evaluation."):
            raise found.refuse((field,), f"{key!r} is no axis", nearest(key, [*known, *LATE]))
    if sweep.checkpoint is not None and parse_checkpoint(sweep.checkpoint) is None:
        raise found.refuse(
            ("checkpoint",), f"{sweep.checkpoint!r} is not a checkpoint", CHECKPOINTS
        )


def _check_baseline(found: SweepFile) -> None:
    """The baseline's cell is one of the sweep's, and its checkpoint one that there may be."""
    baseline = found.sweep.baseline
    if baseline is None:
        return
    axes = {axis.key: axis for axis in found.axes}
    for key, value, path in leaves(baseline.where):
        place = ("baseline", "where", *path)
        if key not in axes and key not in LATE:
            raise found.refuse(place, f"{key!r} is no axis", nearest(key, [*axes, *LATE]))
        if key in axes and value not in axes[key].values:
            raise found.refuse(
                place, f"{key} is never {inline(value)}", nearest(str(value), axes[key].values)
            )
    if baseline.checkpoint is not None and parse_checkpoint(baseline.checkpoint) is None:
        problem = f"{baseline.checkpoint!r} is not a checkpoint"
        raise found.refuse(("baseline", "checkpoint"), problem, CHECKPOINTS)


def _why_no_axis(key: str) -> str:
    if key == "seeds":
        return "seeds of the base file are pooled in each cell"
    return "runs are named after the sweep; arms carry names"


def _check_base(found: SweepFile, arm: str | None) -> None:
    """The experiment of one arm reads, and every axis is a key of it."""
    base = found.base_of(arm)
    where: KeyPath = ("arms", arm, "base") if arm and found.sweep.arms[arm].base else ("base",)
    if not base.is_file():
        raise found.refuse(where, f"{base}: no such file", "write it relative to this file")
    try:
        experiment = read_experiment(base, found.overrides_of(arm))
    except InputError as error:
        if arm is None or str(error).startswith(str(base)):
            raise
        raise found.refuse(("arms", arm, "set"), str(error)) from None
    values = experiment.model_dump(mode="json")
    for axis in found.axes:
        if axis.key != ARM and not _is_key(axis.key, values):
            raise found.refuse(axis.path, f"{base.name} has no such key", _offer(axis.key, values))
    _check_evaluations(found, experiment)


def _is_key(key: str, values: Mapping[str, Any]) -> bool:
    path = tuple(key.split("."))
    if path[0] == "model" and path[1:2] and path[1] not in ("policy", *values["helpers"]):
        return False
    if path[0] in ("data", "stage", "evaluate") and path[1:2]:
        if path[1] not in values[path[0]]:
            return False
        # The options of a benchmark are its own and free in the models.
        if path[0] == "evaluate" and path[2:3] == ("options",):
            return len(path) == 4
    return bool(annotations_at(path, values))


def _offer(key: str, values: Mapping[str, Any]) -> str:
    known = [inner for inner, _, _ in leaves({k: v for k, v in values.items() if v is not None})]
    return nearest(key, known)


def _check_evaluations(found: SweepFile, experiment: Experiment) -> None:
    """`on` reports and `select` selects, in every arm."""
    for role, names, key in (
        ("report", found.sweep.on, "on"),
        ("select", [found.sweep.select] if found.sweep.select else [], "select"),
    ):
        known = [name for name, e in experiment.evaluate.items() if e.role == role]
        for name in names:
            if name not in known:
                fix = nearest(name, known) if known else f'none has role = "{role}"'
                raise found.refuse((key,), f"no evaluation {name!r} with role {role!r}", fix)
