"""Expands the axes of a sweep into its runs: their settings and names.

A run is named `SWEEP.ARM.key-value.key-value`. Axes of an evaluation make no runs: each run is
trained once and measured at all their values.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from assay.data.hashing import canonical_json, sha256_text
from assay.experiment.experiment import Experiment
from assay.experiment.read_file import read_experiment
from assay.experiment.toml_write import inline
from assay.lab.sweep.read_sweep import ARM, Axis, SweepFile

LONGEST = 24
"""Values written out in a name; longer ones are shortened to a hash."""


@dataclass(frozen=True)
class Measured:
    """One evaluation of a planned run, which fills one cell."""

    place: Mapping[str, Any]
    """Value of every axis."""
    on: tuple[str, ...]
    """Names of the evaluations in the run."""


@dataclass(frozen=True)
class Planned:
    """One run of a sweep for each seed, and the cells that it fills."""

    name: str
    base: Path
    overrides: tuple[str, ...]
    cells: tuple[Measured, ...]
    point: str
    """Its values as they are in its name."""

    @cached_property
    def experiment(self) -> Experiment:
        """The resolved experiment. Raises SpecError and OverrideError."""
        return read_experiment(self.base, self.overrides)


def plan(found: SweepFile) -> tuple[Planned, ...]:
    """Every run of a sweep: its listed or drawn points, or all combinations, the last axis varying
    first.

    Raises SpecError where an axis of an evaluation cannot be one, where two runs would have one
    name, and where a cell's experiment is refused.
    """
    measuring = tuple(axis for axis in found.axes if axis.key.startswith("evaluate."))
    for axis in measuring:
        _check_measuring(found, axis)
    short = short_names([axis.key for axis in found.axes if axis.makes_runs])
    runs = [_planned(found, point, measuring, short) for point in found.points]
    names = [run.name for run in runs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        place = ("points",) if found.sweep.points else ("axes",)
        raise found.refuse(place, f"two runs would be named {twice!r}", "rename a value")
    for run in runs:
        _ = run.experiment
    return tuple(runs)


def _check_measuring(found: SweepFile, axis: Axis) -> None:
    name = axis.key.split(".")[1]
    if found.sweep.on != (name,):
        problem = f"is a setting of {name!r}, and cells show {', '.join(found.sweep.on)}"
        raise found.refuse(axis.path, problem, f'write on = ["{name}"]')


def _planned(
    found: SweepFile, place: Mapping[str, Any], measuring: Sequence[Axis], short: Mapping[str, str]
) -> Planned:
    arm = place.get(ARM)
    base = found.base_of(arm)
    own = {key: value for key, value in place.items() if key != ARM}
    parts = [found.sweep.name, *([str(arm)] if arm is not None else [])]
    parts += [f"{short[key]}-{slug(value)}" for key, value in own.items()]
    name, point = ".".join(parts), ".".join(parts[1:])
    # An axis goes last: it is what the cell is about, whatever its arm sets.
    settings = [*found.overrides_of(arm), *(f"{key}={inline(v)}" for key, v in own.items())]
    cells, more = _measured(found, base, settings, place, measuring)
    return Planned(name, base, (f"name={inline(name)}", *settings, *more), tuple(cells), point)


def _measured(
    found: SweepFile,
    base: Path,
    settings: Sequence[str],
    place: Mapping[str, Any],
    measuring: Sequence[Axis],
) -> tuple[list[Measured], list[str]]:
    """The cells of one run, and the overrides that make its evaluations."""
    if not measuring:
        return [Measured(place, found.sweep.on)], []
    (name,) = found.sweep.on
    table = read_experiment(base, settings).evaluate[name].model_dump(exclude_none=True)
    short = short_names([axis.key for axis in measuring])
    cells, overrides = [], []
    for values in itertools.product(*(axis.values for axis in measuring)):
        chosen = {axis.key: value for axis, value in zip(measuring, values, strict=True)}
        tags = [f"{short[key]}-{slug(value)}" for key, value in chosen.items()]
        # The first keeps the name, so that the file's own evaluation is not one more.
        own = name if not cells else "-".join([name, *tags]).replace(".", "_")
        cells.append(Measured({**place, **chosen}, (own,)))
        changed = table
        for key, value in chosen.items():
            changed = _with(changed, key.split(".")[2:], value)
        overrides.append(f"evaluate.{own}={inline(changed)}")
    return cells, overrides


def _with(table: Mapping[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    """The table with one value inside it replaced."""
    first, *rest = path
    inner = _with(table.get(first) or {}, rest, value) if rest else value
    return {**table, first: inner}


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """The shortest unique end of each dotted path, as a part of a run's name."""
    return {key: "-".join(end) for key, end in shortest_ends(keys).items()}


def shortest_ends(keys: Sequence[str]) -> dict[str, Sequence[str]]:
    """The last parts of each dotted path, as few as no other of the paths ends with."""
    parts = [key.split(".") for key in keys]
    return {".".join(own): _shortest_end(own, parts) for own in parts}


def _shortest_end(own: Sequence[str], all_parts: Sequence[Sequence[str]]) -> Sequence[str]:
    for length in range(1, len(own)):
        if sum(other[-length:] == own[-length:] for other in all_parts) == 1:
            return own[-length:]
    return own


def slug(value: Any) -> str:
    """A value as part of a name: numbers as they are, signs as dashes, long values as a hash."""
    text = value if isinstance(value, str) else canonical_json(value)
    plain = re.sub(r"[^A-Za-z0-9.+_-]+", "-", text).strip("-.+").replace("+", "")
    if not plain or len(plain) > LONGEST or (not isinstance(value, str) and "{" in text):
        return sha256_text(canonical_json(value))[:8]
    return plain
