"""Expands the axes of a sweep into its runs: their settings and names.

A run is named `SWEEP.ARM.key-value.key-value`. Axes of an evaluation make no runs: each run is
trained once and measured at all their values.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from assay.experiment.experiment import Experiment
from assay.experiment.read_file import read_experiment
from assay.experiment.toml_write import inline
from assay.lab.sweep.evaluation_axes import Measured, cells_of, check_measuring
from assay.lab.sweep.read_sweep import ARM, Axis, SweepFile
from assay.lab.sweep.value_names import short_names, slug


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
        """The resolved experiment. Raises SpecError and InputError."""
        return read_experiment(self.base, self.overrides)


def plan(found: SweepFile) -> tuple[Planned, ...]:
    """Every run of a sweep: its listed or drawn points, or all combinations, the last axis varying
    first.

    Raises SpecError where an axis of an evaluation cannot be one, where two runs would have one
    name, and where a cell's experiment is refused.
    """
    measuring = tuple(axis for axis in found.axes if axis.key.startswith("evaluate."))
    check_measuring(found, measuring)
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


def plan_alone(file: Path) -> Planned:
    """The run of an experiment that a sweep stands on."""
    return Planned(read_experiment(file).name, file, (), (), "")


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
    cells, more = cells_of(found, base, settings, place, measuring)
    return Planned(name, base, (f"name={inline(name)}", *settings, *more), tuple(cells), point)
