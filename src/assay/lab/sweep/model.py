"""The cells of a matrix: their types, the training of a stage by epoch, and how cells are found, as
the runs of each point of a sweep with their records.

Only finished runs give figures; a cell without a measurement has a reason. `request` compares them.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from assay.compare.arm import Arm, Provenance, load_arm, with_seeds
from assay.data.files import canonical_json
from assay.errors import Finding, finding
from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.experiment.stage_tables import GrpoStage, StageSpec, counts_rows, rows_per_step
from assay.judge.arms import as_repeats
from assay.judge.averages import Average
from assay.judge.families import Tally
from assay.judge.intervals import Interval
from assay.judge.scores import ItemScores
from assay.judge.selection import Choice
from assay.judge.verdict import Comparison
from assay.lab.sweep.read_sweep import Axis, PlannedMeasure, PlannedRun
from assay.runs.history import History, evaluation_records, measured_checkpoints
from assay.runs.records import EvaluationRecord, read_scores
from assay.runs.registry import apart, made_so, newest_by_seed
from assay.runs.run_directory import (
    RunDirectory,
    begun,
    read_manifest,
    read_status,
    step_name,
    stored_status,
)
from assay.runs.run_files import DamagedFile, read_selection
from assay.runs.run_names import experiment_of

METRICS = (
    "loss",
    "validation_loss",
    "policy_loss",
    "kl",
    "advantage_std",
    "advantage_max",
    "kl_coef",
    "reward_mean",
)
"""Metrics of which an epoch shows the mean over its steps, and of the validation loss the last."""
Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StageEpochs:
    """The training of one stage of a run."""

    run: str
    stage: str
    method: str
    reference: str
    """The reference of the KL: `stage_start` or `base`; "" without one."""
    epochs: tuple[Mapping[str, float], ...]
    """By metric; the last epoch may be unfinished."""


def trainings(runs: Iterable[RunDirectory]) -> Iterator[StageEpochs]:
    """The epochs of every stage of the runs that recorded steps and knows its rows."""
    for run in runs:
        history = History(run)
        for name, spec in history.experiment.stage.items():
            rows, by_epoch = epoch_rows(run, spec), dict[int, list[Line]]()
            for line in history.lines(name) if rows else ():
                passed = math.ceil(round(line["step"] * rows_per_step(spec) / rows, 2))
                by_epoch.setdefault(max(passed, 1), []).append(line)
            if by_epoch:
                reference = spec.kl.reference if isinstance(spec, GrpoStage) else ""
                epochs = tuple(map(_epoch, by_epoch.values()))
                yield StageEpochs(str(run), name, spec.method, reference, epochs)


def _epoch(lines: Sequence[Line]) -> dict[str, float]:
    values: dict[str, float] = {}
    for name in METRICS:
        # The KL of the loss where there is one: what the coefficient multiplies.
        names = ("kl_loss", "kl") if name == "kl" else (name,)
        values_of = (next((x[n] for n in names if x.get(n) is not None), None) for x in lines)
        known = [value for value in values_of if value is not None]
        if known:
            values[name] = known[-1] if name == "validation_loss" else sum(known) / len(known)
    return values


def step_of_epoch(run: RunDirectory, stage: str, epoch: float) -> int | None:
    """The first step of a stage at or behind the end of an epoch; None where rows are unknown."""
    spec = experiment_of(run).stage.get(stage)
    rows = epoch_rows(run, spec) if spec is not None else None
    # Parts of an epoch are binary fractions, which may come out a little above a whole step.
    return math.ceil(epoch * rows / rows_per_step(spec) - 1e-9) if spec and rows else None


def epoch_rows(run: RunDirectory, spec: StageSpec) -> int | None:
    """The rows that one epoch of a stage visits, as the manifest counts them; None of others."""
    if not counts_rows(spec):
        return None
    name, _, part = spec.data.partition(".")
    counts = read_manifest(run).get("data", {}).get(name, {}).get(part or "train", {})
    return counts.get("epoch_rows", counts.get("rows"))


Value = str | int | float | bool | None
"""A value on an axis; tables and arrays as their JSON text."""
Place = tuple[Value, ...]
"""Row, column, then one value for each layer key."""


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The keys of rows, columns and layers."""

    rows: str
    columns: str | None
    """None: one column."""
    layers: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str | None, ...]:
        """The keys of all axes, in the order of a place."""
        return (self.rows, self.columns, *self.layers)

    def values(self, place: Place) -> dict[str, Value]:
        """The value of each key at a place."""
        return {k: v for k, v in zip(self.keys, place, strict=True) if k is not None}

    def place(self, coordinates: Mapping[Any, Any]) -> Place:
        """The place that has these coordinates."""
        return tuple(place_value(coordinates.get(key)) for key in self.keys)


def place_value(value: Any) -> Value:
    """A coordinate as a value on an axis."""
    return canonical_json(value) if isinstance(value, list | tuple | Mapping) else value


State = Literal[
    "measured",
    "not run",
    "running",
    "interrupted",
    "failed",
    "not measured",
    "not in the search",
    "damaged",
]


@dataclass(frozen=True, slots=True)
class Baseline:
    """What cells are compared with: other cells, one run, or a checkpoint of the cell's own run."""

    where: Mapping[str, Any] | None = None
    run: RunDirectory | None = None
    checkpoint: str | None = None

    @property
    def words(self) -> str:
        """The baseline as a user writes it."""
        if self.where is not None:
            return ", ".join(f"{key} = {value}" for key, value in self.where.items())
        if self.run is not None:
            return f"{self.run}@{self.checkpoint}" if self.checkpoint else str(self.run)
        return self.checkpoint or ""


def origins_of(arm: Arm) -> list[Provenance]:
    """The records behind an arm of a matrix, one for each training seed."""
    return [each.provenance for each in arm.members if each.provenance is not None]


@dataclass(frozen=True, slots=True)
class SweepCell:
    """One cell of the table: the runs of one setting at one checkpoint, measured or not."""

    place: Place
    state: State
    run: str = ""
    """The name of the runs that fill it; "" where none does."""
    name: str = ""
    """The same, with `@CHECKPOINT` where one is known."""
    parts: tuple[Arm, ...] = ()
    """The arms behind its value, one for each evaluation; empty unless measured."""
    seeds_missing: int = 0
    """Seeds that its value lacks."""
    looks: int = 1
    """Checkpoints among which this one was chosen on dev items."""
    problem: str = ""
    """The damage of a record; "" if there is none."""
    first: int | None = None
    """The value is that of the first so many items of the records; None: of all."""
    score: float | None = None
    interval: Interval | None = None
    controls: Mapping[str, tuple[Arm, ...]] = field(default_factory=dict)
    """The arms of every control by name that it is compared with."""
    against: Mapping[str, Comparison] = field(default_factory=dict)
    """Against each of them, all comparisons of the matrix as one family."""
    same_weights: tuple[str, ...] = ()
    """The controls that have the same weights as the cell: then a verdict is about nothing."""
    alike: tuple[str, ...] = ()
    """The earlier checkpoints and the controls that gave the same answer to every item."""
    own: tuple[str, ...] = ()
    """The controls that are the cell itself."""
    is_control: bool = False
    """Whether it is a cell that others are compared with, other than the baseline."""

    @property
    def pooled(self) -> list[ItemScores]:
        """The scores of each evaluation, seeds as repeats."""
        return [arm.scores for arm in self.parts]

    @property
    def items(self) -> int:
        """Items of all evaluations."""
        return sum(len(arm.scores.item_ids) for arm in self.parts)

    @property
    def repeats(self) -> int:
        """Answers to each item."""
        return self.parts[0].members[0].scores.repeats if self.parts else 0

    @property
    def seeds(self) -> int:
        """Training seeds in its value."""
        return len(self.parts[0].members) if self.parts else 0

    @property
    def origins(self) -> list[Provenance]:
        """The records that the cell's value comes from, by evaluation and seed."""
        return [origin for arm in self.parts for origin in origins_of(arm)]


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A setting and its model by rule, or none with the reason."""

    reason: str
    """Key of the sentence with the reason: `chosen`, or why there is none."""
    choice: Choice | None = None
    cell: SweepCell | None = None
    """The candidate."""
    select: tuple[str, ...] = ()
    """The selecting evaluations."""
    ratios_to: Mapping[str, float] = field(default_factory=dict)
    """Their baseline scores; empty where they are one score."""
    dev: tuple[ItemScores, ...] = ()
    """The candidate's scores there."""
    dev_scores: Mapping[Place, float] = field(default_factory=dict)
    """The score of every cell there."""
    points: int = 0
    missing: int = 0
    """Points without all of their scores: then none has won."""
    rivals: tuple[SweepCell, ...] = ()
    problem: str = ""
    """The damage of a dev record; "" if there is none."""

    @property
    def winner(self) -> SweepCell | None:
        """The best on dev, once every point was measured, whether it beats a baseline or not."""
        return self.cell if not self.missing else None


@dataclass(frozen=True, slots=True)
class DifferenceTrend:
    """The change of a mean difference from the first to the last checkpoint that has one."""

    change: Average
    """Over the cells that both have, item by item."""
    first: Value
    last: Value


@dataclass(frozen=True, slots=True)
class Changes:
    """The mean differences of a row, a column or all cells, one for each checkpoint."""

    key: str
    """Of the axis; "" for all cells."""
    value: Value
    means: tuple[Average | None, ...]
    trend: DifferenceTrend | None


@dataclass(frozen=True, slots=True)
class CellBlock:
    """The cells of one arm, or whatever the layers are, against one control."""

    control: str
    where: tuple[tuple[str, Value], ...]
    """The keys and values of the layers, without the axis of checkpoints."""
    axis: str
    """The key of checkpoints among the layers; "" if there is none."""
    steps: tuple[Value, ...]
    """The values of that axis; one None where there is none."""
    tallies: tuple[Tally, ...]
    """One for each of the steps."""
    overall: Changes
    rows: tuple[Changes, ...]
    columns: tuple[Changes, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """The cells of a sweep, compared."""

    name: str
    about: str
    layout: TableLayout
    on: tuple[str, ...]
    ratios_to: Mapping[str, float]
    controls: Mapping[str, str]
    """In words, by name: what cells are compared with; cells show the first."""
    rows: tuple[Value, ...]
    columns: tuple[Value, ...]
    layers: tuple[Place, ...]
    cells: Mapping[Place, SweepCell]
    tally: Tally
    recommendation: Recommendation
    blocks: tuple[CellBlock, ...] = ()
    trainings: tuple[StageEpochs, ...] = ()
    notes: tuple[Finding, ...] = ()
    """Omissions with their reasons, and warnings."""

    @property
    def baseline(self) -> str:
        """The name of the control that cells show; "" where nothing is compared."""
        return next(iter(self.controls), "")

    def mark(self, cell: SweepCell) -> str:
        """`winner`, `rival` of it, or ""; `leader`: the best on dev, where points are missing."""
        advice = self.recommendation
        if advice.cell is not None and cell.place == advice.cell.place:
            return "winner" if advice.winner else "leader"
        return "rival" if any(cell.place == rival.place for rival in advice.rivals) else ""


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
        worst: tuple[State, ...] = ("running", "interrupted", "failed", "not run")
        known = {*self.states.values(), "not run"}
        return next(each for each in worst if each in known)


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
        # The one checkpoint of an arm stands at every value.
        moving = axis if measured.checkpoint is None else None
        for value in moving.values if moving else (None,):
            key = moving.key if moving else ""
            place = layout.place({**measured.place, key: value})
            named = value if key == "checkpoint" else measured.checkpoint or checkpoint
            yield _cell(runs, measured, on or measured.on, place, named, key, value)


def _cell(
    runs: Runs,
    measured: PlannedMeasure,
    on: tuple[str, ...],
    place: Place,
    checkpoint: str | None,
    key: str,
    value: Any,
) -> SweepCell:
    """The cell of a checkpoint by its name, or at a `value` of `key`, a step or an epoch."""
    name = runs.plan.name
    if not runs.finished:
        return SweepCell(place, runs.state, name, name)
    seeds, looks = [], 1
    for run in runs.finished:
        by_name = {record.name: record for record in evaluation_records(run)}
        records = tuple(by_name[each] for each in on if each in by_name)
        if len(records) == len(on) and (at := _checkpoint(run, records, checkpoint, key, value)):
            seeds.append(tuple(Provenance(run, at, record) for record in records))
            looks = max(looks, _looks(run, checkpoint))
    if not seeds:
        return SweepCell(place, "not measured", name, name)
    checkpoints = {origins[0].checkpoint for origins in seeds}
    whole = f"{name}@{checkpoints.pop()}" if len(checkpoints) == 1 else name
    missing = max(len(runs.plan.experiment.seeds) - len(seeds), 0)
    first = measured.first
    try:
        arms = tuple(arm_of_seeds(whole, each, first) for each in zip(*seeds, strict=True))
    except DamagedFile as error:
        return SweepCell(place, "damaged", name, whole, problem=str(error))
    return SweepCell(place, "measured", "", whole, arms, missing, looks, first=first)


def _checkpoint(
    run: RunDirectory,
    records: Sequence[EvaluationRecord],
    checkpoint: str | None,
    key: str = "",
    value: Any = None,
) -> str | None:
    """The checkpoint as all of the records have it; None where one of them has not."""
    lists = [measured_checkpoints(run, record) for record in records]
    names = [name for name in lists[0] if all(name in each for each in lists)]
    reference = parse_checkpoint(checkpoint) if checkpoint else None
    last = names[-1] if names else ""
    stage = last.partition(".")[0] if reference is None else reference.stage
    if stage is None:
        return "base" if "base" in names else None
    step = reference.step if reference is not None else None
    if key in ("step", "epoch"):
        step = value if key == "step" else step_of_epoch(run, stage, value)
    elif reference is not None and reference.rule is not None:
        selection = read_selection(run.path, stage, reference.rule)
        return selection.checkpoint if selection and selection.checkpoint in names else None
    elif step is None:
        return next((n for n in reversed(names) if n.partition(".")[0] == stage), None)
    wanted = None if step is None else f"{stage}.{step_name(int(step))}"
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


def arm_of_seeds(name: str, origins: Iterable[Provenance], first: int | None = None) -> Arm:
    """The finished records of one setting as an arm: scores and errors without the texts; of each
    record all items, or the first so many.

    Raises DamagedFile.
    """
    return with_seeds([load_arm(each, outputs=False, first=first) for each in origins], name)


def dev_scores(arm: Arm, names: Sequence[str]) -> tuple[ItemScores, ...] | None:
    """The dev scores of an arm on some evaluations, seeds as repeats; None where one is missing."""
    parts = []
    for name in names:
        seeds = []
        for origin in origins_of(arm):
            known = [r for r in evaluation_records(origin.run) if r.name == name]
            record = next((each for each in known if each.role == "select"), None)
            if record is None or not record.finished(origin.run, origin.checkpoint):
                return None
            seeds.append(read_scores(origin.run, record, origin.checkpoint))
        parts.append(as_repeats(seeds))
    return tuple(parts)


def same_evaluation(origin: Provenance, baseline: Baseline) -> Provenance | None:
    """The baseline's record of an evaluation, of the same name and items or the same items; None
    where it was not measured."""
    run, wanted = baseline.run or origin.run, origin.record
    records = [r for r in evaluation_records(run) if set(r.items) == set(wanted.items)]
    named = [r for r in records if r.name == wanted.name]
    like = [r for r in records if r.benchmark == wanted.benchmark and r.options == wanted.options]
    record = next(iter([*named, *like]), None)
    checkpoint = _checkpoint(run, (record,), baseline.checkpoint) if record else None
    return Provenance(run, checkpoint, record) if record and checkpoint else None
