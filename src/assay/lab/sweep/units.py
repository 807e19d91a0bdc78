"""Finds the cells of a matrix: the runs of each point of a sweep, with their records.

Only finished runs give figures; a cell without a measurement has a reason. `build` compares them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.compare.arm import Arm, Provenance, load_arm, with_seeds
from assay.errors import Finding, finding
from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.judge.scores import ItemScores
from assay.lab.sweep.model import (
    Baseline,
    Place,
    State,
    SweepCell,
    TableLayout,
    origins_of,
    step_of_epoch,
)
from assay.lab.sweep.planned_runs import PlannedMeasure, PlannedRun
from assay.lab.sweep.read_sweep import Axis
from assay.runs.history import evaluation_records, measured_checkpoints
from assay.runs.records import EvaluationRecord, read_scores
from assay.runs.registry import apart, made_so, newest_by_seed
from assay.runs.run_directory import RunDirectory, begun, read_status, step_name, stored_status
from assay.runs.run_files import DamagedFile, read_selection
from assay.runs.run_names import experiment_of

Records = tuple[EvaluationRecord, ...]


@dataclass(frozen=True, slots=True)
class Runs:
    """The newest run of each seed of a planned run."""

    plan: PlannedRun
    states: Mapping[RunDirectory, str]
    """The status of each; empty where none was started."""
    notes: tuple[Finding, ...]
    """Runs of its name that were made otherwise or cannot be read."""

    @property
    def finished(self) -> list[RunDirectory]:
        """The runs that give figures."""
        return [run for run, state in self.states.items() if state == "finished"]

    @property
    def state(self) -> State:
        """Why nothing is measured, where no run has finished."""
        states = {*self.states.values()}
        if "running" in states:
            return "running"
        return "interrupted" if "interrupted" in states else "failed" if states else "not run"


def runs_of_plan(root: Path, plan: PlannedRun) -> Runs:
    """The runs of one point of a sweep."""
    whole, damaged = apart(begun(root, plan.name))
    runs = [r for r in newest_by_seed(whole) if stored_status(r.path).seed in plan.experiment.seeds]
    same = [run for run in runs if made_so(run, plan.experiment)]
    notes = [finding("made_otherwise", "warning", name=f"{r}") for r in runs if r not in same]
    notes += [finding("damaged_run", "warning", name=f"{d.run} ({d.why})") for d in damaged]
    return Runs(plan, {run: read_status(run.path).status for run in same}, tuple(notes))


def cells_of_runs(
    runs: Runs, layout: TableLayout, axis: Axis | None, checkpoint: str | None, on: tuple[str, ...]
) -> Iterator[SweepCell]:
    """The cells of one point, at every value of the `axis` of checkpoints where there is one, else
    at the `checkpoint`; `on` names other evaluations than the sweep's."""
    for measured in runs.plan.cells:
        evaluations = on or measured.on
        if axis is None or measured.checkpoint is not None:  # it stands at every value
            wanted = measured.checkpoint or checkpoint
            yield _cell(runs, measured, evaluations, layout.place(measured.place), "", wanted)
            continue
        for value in axis.values:
            place = layout.place({**measured.place, axis.key: value})
            own = (value, None) if axis.key == "checkpoint" else (checkpoint, value)
            key = "" if axis.key == "checkpoint" else axis.key
            yield _cell(runs, measured, evaluations, place, key, *own)


def _cell(
    runs: Runs,
    measured: PlannedMeasure,
    on: tuple[str, ...],
    place: Place,
    key: str,
    checkpoint: str | None,
    value: Any = None,
) -> SweepCell:
    """The cell of a checkpoint by its name, or at a `value` of `key`, a step or an epoch."""
    name = runs.plan.name
    if not runs.finished:
        return SweepCell(place, runs.state, name, name)
    seeds, looks = [], 1
    for run in runs.finished:
        by_name = {record.name: record for record in evaluation_records(run)}
        records = tuple(by_name[each] for each in on if each in by_name)
        if len(records) < len(on):
            continue
        checkpoint_record = _checkpoint(run, records, key, checkpoint, value)
        if checkpoint_record is not None:
            seeds.append(tuple(Provenance(run, checkpoint_record, record) for record in records))
            looks = max(looks, _looks(run, checkpoint))
    if not seeds:
        return SweepCell(place, "not measured", name, name)
    checkpoints = {origins[0].checkpoint for origins in seeds}
    whole = f"{name}@{checkpoints.pop()}" if len(checkpoints) == 1 else name
    missing = max(len(runs.plan.experiment.seeds) - len(seeds), 0)
    try:
        arms = [arm_of_seeds(whole, each, measured.first) for each in zip(*seeds, strict=True)]
    except DamagedFile as error:
        return SweepCell(place, "damaged", name, whole, problem=str(error))
    return SweepCell(
        place, "measured", "", whole, tuple(arms), missing, looks, first=measured.first
    )


def _checkpoint(
    run: RunDirectory, records: Records, key: str, checkpoint: str | None, value: Any
) -> str | None:
    """The checkpoint as all of the records have it; None where one of them has not."""
    lists = [measured_checkpoints(run, record) for record in records]
    names = [name for name in lists[0] if all(name in other for other in lists[1:])]
    reference = parse_checkpoint(checkpoint) if checkpoint else None
    last = names[-1] if names else ""
    stage = last.partition(".")[0] if reference is None else reference.stage
    if stage is None:
        return "base" if "base" in names else None
    own = [name for name in names if name.partition(".")[0] == stage]
    if key:
        step = value if key == "step" else step_of_epoch(run, experiment_of(run), stage, value)
        wanted = None if step is None else f"{stage}.{step_name(int(step))}"
    elif reference is not None and reference.rule is not None:
        selection = read_selection(run.path, stage, reference.rule)
        wanted = selection.checkpoint if selection else None
    elif reference is not None and reference.step is not None:
        wanted = f"{stage}.{step_name(reference.step)}"
    else:
        wanted = own[-1] if own else None
    return wanted if wanted in names else None


def _looks(run: RunDirectory, label: str | None) -> int:
    """Checkpoints that the dev items chose among, where they chose this one."""
    reference = parse_checkpoint(label) if label else None
    if reference is None or reference.rule not in ("gate", "dev_score"):
        return 1
    counts = [
        sum(name.partition(".")[0] == reference.stage for name in measured_checkpoints(run, record))
        for record in evaluation_records(run)
        if record.role == "select"
    ]
    return max([1, *counts])


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
    checkpoint = _checkpoint(run, (record,), "", baseline.checkpoint, None)
    return Provenance(run, checkpoint, record) if checkpoint else None
