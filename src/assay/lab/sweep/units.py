"""Finds the units of a matrix: the runs of each setting, with their records and checkpoints.

Runs are found by name or pattern, or from a sweep's plan; only finished runs give figures. A unit
without a measurement has a reason. `build` places and compares the units.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from assay.compare.arm import Arm, Provenance, load_arm, with_seeds
from assay.errors import Finding, finding, nearest
from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.experiment.experiment import Experiment
from assay.judge.scores import ItemScores
from assay.lab.sweep.model import (
    CHECKPOINT_KEYS,
    RECORD,
    Baseline,
    Question,
    State,
    Unit,
    Value,
    checkpoint_coordinates,
    origins_of,
    record_coordinates,
    run_coordinates,
    step_of_epoch,
)
from assay.lab.sweep.planned_runs import Planned
from assay.lab.sweep.read_sweep import POINT
from assay.runs.checkpoints import read_selection, step_name
from assay.runs.history import evaluation_records, known_checkpoints, measured_checkpoints
from assay.runs.records import EvaluationRecord, read_scores
from assay.runs.run_directory import RunDirectory, all_runs
from assay.runs.run_files import DamagedFile
from assay.runs.run_names import RunNotFound, experiment_of, find_run, read_run_name
from assay.runs.same_experiment import apart, begun, made_so, newest_by_seed
from assay.runs.status import read_status, stored_status

Records = tuple[EvaluationRecord, ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """Runs of one setting, one for each seed, before anything is read from their records."""

    name: str
    coordinates: Mapping[str, Any]
    runs: tuple[RunDirectory, ...]
    seeds: int
    """The expected seeds."""
    on: tuple[str, ...] = ()
    """Its own evaluations, where they are not those of the matrix."""
    first: int | None = None
    """The first so many items of each record are its value; None: all."""
    checkpoint: str | None = None
    """The one checkpoint that stands at every value of an axis of checkpoints; None: its own."""


def slots_of_runs(root: Path, names: Sequence[str], *, by_seed: bool = False) -> list[Slot]:
    """The newest run of each seed of every name or pattern; NAME/ID and NAME#SEED mean one run.

    Runs that cannot be read are left out, unless they are the one run that is meant; `damaged_of`
    names them. Raises RunNotFound with the nearest names.
    """
    groups: dict[tuple[str, int | None], list[RunDirectory]] = {}
    for run in dict.fromkeys(run for name in names for run in _named(root, name)):
        seed = stored_status(run.path).seed if by_seed else None
        groups.setdefault((run.name, seed), []).append(run)
    slots = []
    for run, *further in groups.values():
        coordinates = run_coordinates(run.name, experiment_of(run))
        if by_seed or not further:
            coordinates["seed"] = stored_status(run.path).seed
        name = run.name if further else str(run)
        slots.append(Slot(name, coordinates, (run, *further), 1 + len(further)))
    return slots


def damaged_of(root: Path, slots: Iterable[Slot], names: Sequence[str]) -> tuple[Finding, ...]:
    """The runs that bear the name of a slot's run, or fit a pattern, and cannot be read."""
    meant = {run.name for slot in slots for run in slot.runs} | {slot.name for slot in slots}
    known = dict.fromkeys(run.name for run in all_runs(root))
    fit = [n for n in known if n in meant or any(fnmatchcase(n, text) for text in names)]
    damaged = [broken for name in fit for broken in apart(begun(root, name))[1]]
    return tuple(
        finding("damaged_run", "warning", name=f"{each.run} ({each.why})") for each in damaged
    )


def _named(root: Path, text: str) -> list[RunDirectory]:
    if any(sign in text for sign in "*?["):
        every = list(dict.fromkeys(run.name for run in all_runs(root)))
        names = [name for name in every if fnmatchcase(name, text)]
        if not names:
            fix = nearest(text, every) if every else f"no runs in {root}"
            raise RunNotFound(f"no run fits {text!r}", fix=fix)
    else:
        reference = read_run_name(root, text)
        run = find_run(root, reference)
        if reference.id is not None or reference.seed is not None:
            return [run]
        names = [reference.name]
    return [run for name in names for run in newest_by_seed(apart(begun(root, name))[0])]


def slots_of_sweep(root: Path, planned: Sequence[Planned]) -> tuple[list[Slot], list[str]]:
    """The cells of a sweep, and the runs that bear a cell's name and were made otherwise."""
    slots, others = [], []
    for plan in planned:
        seeds = plan.experiment.seeds
        runs = newest_by_seed(apart(begun(root, plan.name))[0])
        runs = [run for run in runs if stored_status(run.path).seed in seeds]
        same = tuple(run for run in runs if made_so(run, plan.experiment))
        others += [str(run) for run in runs if run not in same]
        known = {**run_coordinates(plan.name, plan.experiment), POINT: plan.point}
        for cell in plan.cells:
            place = {**known, **cell.place}
            if cell.checkpoint is not None:
                place |= dict.fromkeys(CHECKPOINT_KEYS)
            own = (cell.on, cell.first, cell.checkpoint)
            slots.append(Slot(plan.name, place, same, len(seeds), *own))
    return slots, others


def units_of(slot: Slot, ask: Question) -> list[Unit]:
    """The units of a slot: one for each record and checkpoint, or one that says why there is
    none."""
    every = any(key in CHECKPOINT_KEYS for key in ask.layout.keys)
    if slot.checkpoint is not None:
        ask, every = replace(ask, checkpoint=slot.checkpoint, listed=None), False
    states = {run: read_status(run.path).status for run in slot.runs}
    finished = [run for run, state in states.items() if state == "finished"]
    if not finished:
        state: State = "not run"
        for status in ("failed", "interrupted", "running"):
            state = status if status in states.values() else state
        return [Unit(slot.name, slot.coordinates, state, slot.runs)]
    seeds: dict[tuple[tuple[str, ...], str], list[tuple[Provenance, ...]]] = {}
    places: dict[str, Mapping[str, Any]] = {}
    looks = 1
    for run in finished:
        experiment = experiment_of(run)
        for records in _record_groups(run, experiment, slot, ask):
            for label, checkpoint, place in _checkpoints(run, experiment, records, ask, every):
                origins = tuple(Provenance(run, checkpoint, record) for record in records)
                seeds.setdefault((tuple(r.name for r in records), label), []).append(origins)
                places[label] = place
                looks = max(looks, _looks(run, label))
    if not seeds and ask.listed is None:
        return [Unit(slot.name, slot.coordinates, "not measured", slot.runs)]
    made = [_unit(slot, origins, looks, places[label]) for (_, label), origins in seeds.items()]
    return [*made, *_without_record(slot, finished[-1], ask, list(places.values()))]


def _without_record(
    slot: Slot, run: RunDirectory, ask: Question, measured: Sequence[Mapping[str, Any]]
) -> Iterator[Unit]:
    """A unit for each wanted checkpoint that the run has and its evaluation has no record of."""
    key, values = ask.listed or ("", ())
    known = known_checkpoints(run)
    stage = next((name.partition(".")[0] for name in reversed(known) if name != "base"), "")
    for value in values:
        there = key == "checkpoint" or (
            _checkpoint_at(run, experiment_of(run), stage, key, value) in known
        )
        if {key: value} not in measured and there:
            yield Unit(slot.name, {**slot.coordinates, key: value}, "not measured", slot.runs)


def _checkpoint_at(
    run: RunDirectory, experiment: Experiment, stage: str, key: str, value: Value
) -> str:
    """The name of a stage's checkpoint at a step or an epoch; "" where rows are unknown."""
    assert isinstance(value, int | float)
    step = value if key == "step" else step_of_epoch(run, experiment, stage, value)
    return "" if step is None else f"{stage}.{step_name(int(step))}"


def _record_groups(
    run: RunDirectory, experiment: Experiment, slot: Slot, ask: Question
) -> list[Records]:
    """The records that make one value each."""
    records, on = evaluation_records(run), slot.on or ask.on
    if not on and any(key.startswith(RECORD) for key in ask.layout.keys):
        return [(record,) for record in records]
    if not on:
        first = [n for n, e in experiment.evaluate.items() if e.role == "report"][:1]
        return [(r,) for r in records if r.role == "report" and r.name in first]
    if ask.ratios_to or slot.on:
        by_name = {r.name: r for r in records}
        whole = tuple(by_name[name] for name in on if name in by_name)
        return [whole] if len(whole) == len(on) else []
    return [
        (r,)
        for r in records
        if any(text in (r.name, r.benchmark, r.key) or fnmatchcase(r.name, text) for text in on)
    ]


def _checkpoints(
    run: RunDirectory, experiment: Experiment, records: Records, ask: Question, all_wanted: bool
) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """The wanted checkpoints: a label that is the same for all seeds, the checkpoint as records
    name it, and its place on a listed axis.
    """
    if ask.listed is None:
        for label, checkpoint in _wanted(run, records, ask.checkpoint, all_wanted).items():
            yield label, checkpoint, {}
        return
    key, values = ask.listed
    every = _wanted(run, records, ask.checkpoint, True)
    stage = next(reversed(every), "").partition(".")[0]
    for value in values:
        if key == "checkpoint":
            named = _wanted(run, records, str(value))
            label, checkpoint = str(value), next(iter(named.values()), None)
        else:
            label = f"{key} {value}"
            checkpoint = every.get(_checkpoint_at(run, experiment, stage, key, value))
        if checkpoint is not None:
            yield label, checkpoint, {key: value}


def _wanted(
    run: RunDirectory, records: Records, checkpoint: str | None, every: bool = False
) -> dict[str, str]:
    """The wanted checkpoints that all records have, by the name in the question; without one the
    last, or with `every` all of its stage."""
    lists = [measured_checkpoints(run, record) for record in records]
    names = [name for name in lists[0] if all(name in other for other in lists[1:])]
    if not names:
        return {}
    if checkpoint is None:
        stage = names[-1].partition(".")[0]
        same = [name for name in names if name.partition(".")[0] == stage]
        return {name: name for name in same} if every else {"last": names[-1]}
    reference = parse_checkpoint(checkpoint)
    if reference is None or reference.stage is None:
        return {name: name for name in names if name == checkpoint}
    steps = {
        each.step: name
        for name in names
        if (each := parse_checkpoint(name)) and each.stage == reference.stage
    }
    if reference.which == "all":
        return {name: name for name in steps.values()}
    if reference.rule is not None:
        selection = read_selection(run.path, reference.stage, reference.rule)
        name = selection.checkpoint if selection else None
        return {checkpoint: name} if name in names else {}
    last = max((s for s in steps if s is not None), default=None)
    step = last if reference.which == "last" else reference.step
    return {checkpoint: steps[step]} if step in steps else {}


def _looks(run: RunDirectory, label: str) -> int:
    """Checkpoints that the dev items chose among, where they chose this one."""
    reference = parse_checkpoint(label)
    if reference is None or reference.rule not in ("gate", "dev_score"):
        return 1
    counts = [
        sum(name.partition(".")[0] == reference.stage for name in measured_checkpoints(run, record))
        for record in evaluation_records(run)
        if record.role == "select"
    ]
    return max([1, *counts])


def _unit(
    slot: Slot, seeds: Sequence[tuple[Provenance, ...]], looks: int, at: Mapping[str, Any]
) -> Unit:
    first = seeds[0][0]
    derived = checkpoint_coordinates(first.run, experiment_of(first.run), first.checkpoint)
    if len(seeds[0]) == 1:
        derived |= record_coordinates(first.record)
    checkpoints = {origins[0].checkpoint for origins in seeds}
    name = f"{slot.name}@{checkpoints.pop()}" if len(checkpoints) == 1 else slot.name
    place = {**derived, **slot.coordinates, **at}
    missing = max(slot.seeds - len(seeds), 0)
    try:
        arms = [arm_of_seeds(name, origins, slot.first) for origins in zip(*seeds, strict=True)]
    except DamagedFile as error:
        return Unit(name, place, "damaged", slot.runs, problem=str(error))
    return Unit(name, place, "measured", slot.runs, tuple(arms), missing, looks, first=slot.first)


def arm_of_seeds(name: str, origins: Sequence[Provenance], first: int | None = None) -> Arm:
    """The finished records of one setting as an arm: scores and errors without the texts; of each
    record all items, or the first so many.

    Raises DamagedFile.
    """
    one, *further = (load_arm(origin, outputs=False, first=first) for origin in origins)
    return with_seeds(one, further, name) if further else one


def dev_scores(arm: Arm, select: str) -> list[ItemScores] | None:
    """The dev scores of an arm's checkpoints, one for each seed; None if one is missing."""
    scores = []
    for origin in origins_of(arm):
        records = [
            r for r in evaluation_records(origin.run) if r.name == select and r.role == "select"
        ]
        if not records or not records[0].finished(origin.run, origin.checkpoint):
            return None
        scores.append(read_scores(origin.run, records[0], origin.checkpoint))
    return scores


def same_evaluation(origin: Provenance, baseline: Baseline) -> Provenance | None:
    """The baseline's record of an evaluation, of the same name and items or the same items; None
    where it was not measured."""
    run, wanted = baseline.run or origin.run, origin.record
    records = [r for r in evaluation_records(run) if set(r.items) == set(wanted.items)]
    named = [r for r in records if r.name == wanted.name]
    like = [r for r in records if r.benchmark == wanted.benchmark and r.options == wanted.options]
    record = next(iter([*named, *like]), None)
    if record is None:
        return None
    names = measured_checkpoints(run, record)
    checkpoint = baseline.checkpoint or (names[-1] if names else "")
    if checkpoint.endswith(".last"):
        same = [name for name in names if name.partition(".")[0] == checkpoint[:-5]]
        checkpoint = same[-1] if same else ""
    return Provenance(run, checkpoint, record) if checkpoint in names else None
