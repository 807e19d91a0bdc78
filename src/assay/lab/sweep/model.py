"""The types of a matrix, and the training of a stage by epoch."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from assay.compare.arm import Arm, Provenance
from assay.data.files import canonical_json
from assay.errors import Finding
from assay.experiment.experiment import Experiment
from assay.experiment.stage_tables import GrpoStage, StageSpec, counts_rows, rows_per_step
from assay.judge.averages import Average
from assay.judge.families import Tally
from assay.judge.intervals import Interval
from assay.judge.scores import ItemScores
from assay.judge.selection import Choice
from assay.judge.verdict import Comparison
from assay.runs.history import History
from assay.runs.run_directory import RunDirectory, read_manifest

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


def step_of_epoch(
    run: RunDirectory, experiment: Experiment, stage: str, epoch: float
) -> int | None:
    """The first step of a stage at or behind the end of an epoch; None where rows are unknown."""
    spec = experiment.stage.get(stage)
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
    against: Mapping[str, Comparison] = field(default_factory=dict)
    """Against every control by name, all comparisons of the matrix as one family."""
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
