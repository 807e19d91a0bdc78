"""The runs that belong to each cell of a matrix: by name or pattern, or as a sweep plans them.

Reads what runs were made from, and no record: that is `units`' part.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from assay.errors import nearest
from assay.experiment.read_file import read_experiment
from assay.lab.sweep.matrix.coordinates import run_coordinates
from assay.lab.sweep.planned_runs import Planned
from assay.runs.run_directory import RunDirectory, all_runs
from assay.runs.run_names import RunNotFound, find_run, parse_run_name
from assay.runs.same_experiment import DamagedRun, apart, begun, made_so, newest_by_seed
from assay.runs.status import stored_status


@dataclass(frozen=True, slots=True)
class Slot:
    """Runs of one setting, one for each seed, before anything is read from their records."""

    name: str
    coordinates: Mapping[str, Any]
    runs: tuple[RunDirectory, ...]
    seeds: int
    """Seeds that there should be."""
    on: tuple[str, ...] = ()
    """Its own evaluations, where they are not those of the matrix."""


def slots_of_runs(root: Path, names: Sequence[str], *, by_seed: bool = False) -> list[Slot]:
    """The newest run of each seed of every name or pattern; NAME/ID and NAME#SEED mean one run.

    Runs that cannot be read are left out, unless they are the one run that is meant; `damaged_of`
    names them. Raises RunNotFound with the nearest names.
    """
    groups: dict[tuple[str, int | None], list[RunDirectory]] = {}
    for run in dict.fromkeys(run for name in names for run in _named(root, name)):
        seed = stored_status(run.path).seed if by_seed else None
        groups.setdefault((run.name, seed), []).append(run)
    return [_slot(runs, by_seed) for runs in groups.values()]


def damaged_of(root: Path, slots: Iterable[Slot], names: Sequence[str]) -> list[DamagedRun]:
    """The runs that bear the name of a slot's run, or fit a pattern, and cannot be read."""
    meant = {run.name for slot in slots for run in slot.runs} | {slot.name for slot in slots}
    known = dict.fromkeys(run.name for run in all_runs(root))
    fit = [n for n in known if n in meant or any(fnmatchcase(n, text) for text in names)]
    return [broken for name in fit for broken in apart(begun(root, name))[1]]


def _named(root: Path, text: str) -> list[RunDirectory]:
    if any(sign in text for sign in "*?["):
        every = list(dict.fromkeys(run.name for run in all_runs(root)))
        names = [name for name in every if fnmatchcase(name, text)]
        if not names:
            fix = nearest(text, every) if every else f"no runs in {root}"
            raise RunNotFound(f"no run fits {text!r}", fix=fix)
    else:
        reference = parse_run_name(text)
        found = find_run(root, reference)
        if reference.id is not None or reference.seed is not None:
            return [found]
        names = [reference.name]
    return [run for name in names for run in newest_by_seed(apart(begun(root, name))[0])]


def _slot(runs: Sequence[RunDirectory], by_seed: bool) -> Slot:
    run = runs[0]
    coordinates = run_coordinates(run, read_experiment(run.spec))
    if by_seed or len(runs) == 1:
        coordinates["seed"] = stored_status(run.path).seed
    return Slot(str(run) if len(runs) == 1 else run.name, coordinates, tuple(runs), len(runs))


def slots_of_sweep(root: Path, planned: Sequence[Planned]) -> tuple[list[Slot], list[str]]:
    """The cells of a sweep, and the runs that bear a cell's name and were made otherwise."""
    slots, others = [], []
    for plan in planned:
        runs = []
        for run in newest_by_seed(apart(begun(root, plan.name))[0]):
            if stored_status(run.path).seed in plan.experiment.seeds:
                runs.append(run)
        same = [run for run in runs if made_so(run, plan.experiment)]
        others += [str(run) for run in runs if run not in same]
        known = {**flat_of(plan), "name": plan.name}
        for cell in plan.cells:
            coordinates = {**known, **cell.place}
            seeds = len(plan.experiment.seeds)
            slots.append(Slot(plan.name, coordinates, tuple(same), seeds, cell.on))
    return slots, others


def flat_of(plan: Planned) -> dict[str, Any]:
    """The coordinates of a run that is planned."""
    return run_coordinates(RunDirectory(Path(), plan.name, ""), plan.experiment)
