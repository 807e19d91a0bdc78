"""Expands the axes of a sweep into its runs: their settings, names and cells.

A run is named `SWEEP.ARM.key-value.key-value`. Axes of an evaluation make no runs: each run is
trained once and measured at all their values. Numbers of items that are taken first need no
evaluations of their own: they are parts of the record of the largest, so that no item is asked
twice.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from assay.data.files import canonical_json, sha256_text
from assay.experiment.experiment import Experiment
from assay.experiment.read_file import read_experiment
from assay.experiment.toml_write import inline
from assay.lab.sweep.read_sweep import ARM, Axis, SweepFile, leaves

LONGEST = 24
"""Values written out in a name; longer ones are shortened to a hash."""


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """The last parts of each dotted path, as few as no other of the paths ends with."""
    parts = [key.split(".") for key in keys]
    short = {}
    for own in parts:
        ends = (own[-length:] for length in range(1, len(own)))
        alone = (end for end in ends if sum(each[-len(end) :] == end for each in parts) == 1)
        short[".".join(own)] = ".".join(next(alone, own))
    return short


def slug(value: Any) -> str:
    """A value as part of a name: numbers as they are, signs as dashes, long values as a hash."""
    text = value if isinstance(value, str) else canonical_json(value)
    plain = re.sub(r"[^A-Za-z0-9.+_-]+", "-", text).strip("-.+").replace("+", "")
    if not plain or len(plain) > LONGEST or (not isinstance(value, str) and "{" in text):
        return sha256_text(canonical_json(value))[:8]
    return plain


ROWS = ".take.rows"


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
    measuring = tuple(axis for axis in sweep_file.axes if axis.key.startswith("evaluate."))
    for axis in measuring:
        name = axis.key.split(".")[1]
        if sweep_file.sweep.on != (name,):
            problem = f"is a setting of {name!r}, and cells show {', '.join(sweep_file.sweep.on)}"
            raise sweep_file.refuse(axis.path, problem, f'write on = ["{name}"]')
    short = short_names([axis.key for axis in sweep_file.axes if axis.makes_runs])
    runs = [_planned(sweep_file, point, measuring, short) for point in sweep_file.points]
    names = [run.name for run in runs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise sweep_file.refuse(("axes",), f"two runs would be named {twice!r}", "rename a value")
    for run in runs:
        _ = run.experiment  # a refused one is named before anything runs
    return tuple(runs)


def _planned(
    sweep_file: SweepFile,
    place: Mapping[str, Any],
    measuring: Sequence[Axis],
    short: Mapping[str, str],
) -> PlannedRun:
    arm = place.get(ARM)
    base = sweep_file.base_of(arm)
    own = {key: value for key, value in place.items() if key != ARM}
    parts = [sweep_file.sweep.name, *([str(arm)] if arm is not None else [])]
    parts += [f"{short[key].replace('.', '-')}-{slug(value)}" for key, value in own.items()]
    name = ".".join(parts)
    # An axis goes last: it is what the cell is about, whatever its arm sets.
    settings = [*sweep_file.overrides_of(arm), *(f"{key}={inline(v)}" for key, v in own.items())]
    cells, more = cells_of(sweep_file, base, settings, place, measuring)
    return PlannedRun(name, base, (f"name={inline(name)}", *settings, *more), tuple(cells))


def cells_of(
    sweep_file: SweepFile,
    base: Path,
    settings: Sequence[str],
    place: Mapping[str, Any],
    measuring: Sequence[Axis],
) -> tuple[list[PlannedMeasure], list[str]]:
    """The cells of one run, and the overrides that make its evaluations."""
    arm = sweep_file.sweep.arms.get(place.get(ARM, ""))
    checkpoint = arm.checkpoint if arm else None
    if not measuring:
        return [PlannedMeasure(place, sweep_file.sweep.on, checkpoint=checkpoint)], []
    (name,) = sweep_file.sweep.on
    table = read_experiment(base, settings).evaluate[name].model_dump(exclude_none=True)
    of_first = (table.get("take") or {}).get("how") == "first"
    prefix = next((axis for axis in measuring if of_first and axis.key.endswith(ROWS)), None)
    fixed = {key for key, _, _ in leaves(arm.set)} if arm else set()
    rows = {*prefix.values} if prefix is not None else set()
    # The file's own evaluation takes fewer items than the longest, and stays as it is.
    longer = bool(rows) and table["take"]["rows"] in rows - {max(rows)}
    made: dict[str, tuple[str, dict[str, Any]]] = {}
    cells = []
    for values in itertools.product(*(axis.values for axis in measuring)):
        chosen = {axis.key: value for axis, value in zip(measuring, values, strict=True)}
        cell_values = {k: v for k, v in chosen.items() if k not in fixed}
        if prefix is not None:
            cell_values[prefix.key] = max(rows)
        short, untold = short_names(list(cell_values)), "" if longer or not prefix else prefix.key
        told = {k: v for k, v in cell_values.items() if k != untold}
        tags = [f"{short[key].replace('.', '-')}-{slug(value)}" for key, value in told.items()]
        # The first keeps the name, so that the file's own evaluation is not one more.
        named = "-".join([name, *tags]).replace(".", "_") if made or longer else name
        own, _ = made.setdefault(inline(cell_values), (named, cell_values))
        first = chosen[prefix.key] if prefix is not None else None
        cells.append(PlannedMeasure({**place, **chosen}, (own,), first, checkpoint))
    overrides = []
    for own, cell_values in made.values():
        changed: Mapping[str, Any] = table
        for key, value in cell_values.items():
            changed = _with(changed, key.split(".")[2:], value)
        overrides.append(f"evaluate.{own}={inline(changed)}")
    return cells, overrides


def _with(table: Mapping[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    """The table with one value inside it replaced."""
    first, *rest = path
    inner = _with(table.get(first) or {}, rest, value) if rest else value
    return {**table, first: inner}
