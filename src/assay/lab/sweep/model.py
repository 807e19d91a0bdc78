"""The types of a matrix, and the keys by which runs, checkpoints and records are pivoted.

Keys are dotted paths of the experiment (`stage.rl.kl.coef`), `name` and `seed` of the run, `stage`,
`step`, `epoch` and `checkpoint`, and fields of a record such as `evaluation.items`.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from assay.compare.arm import Arm, Provenance
from assay.data.hashing import canonical_json
from assay.errors import Finding, InputError, nearest
from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.experiment.experiment import Experiment
from assay.experiment.stage_tables import GrpoStage, StageSpec, counts_rows, rows_per_step
from assay.judge.averages import Average
from assay.judge.families import Tally
from assay.judge.intervals import Interval
from assay.judge.scores import ItemScores
from assay.judge.selection import Choice
from assay.judge.verdict import Comparison
from assay.runs.history import History
from assay.runs.manifest_file import read_manifest
from assay.runs.records import EvaluationRecord
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import experiment_of

MEANS = (
    "loss",
    "policy_loss",
    "kl",
    "advantage_std",
    "advantage_max",
    "kl_coef",
    "reward_mean",
)
"""Metrics of which an epoch shows the mean over its steps."""
LAST = "validation_loss"
Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Epoch:
    """One pass over the rows of a stage."""

    number: int
    """From 1; the last may be unfinished."""
    steps: int
    values: Mapping[str, float]
    """By metric: means over the steps, and the last validation loss."""


@dataclass(frozen=True, slots=True)
class StageEpochs:
    """The training of one stage of a run."""

    run: str
    stage: str
    method: str
    data: str
    """The data set that it learned from."""
    epochs: tuple[Epoch, ...]
    reference: str
    """The reference of the KL: `stage_start` or `base`; "" without one."""
    first_kl: float | None
    """The KL of the first step."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """The rows of a data set that some runs learned from."""

    name: str
    contents: str
    """Their fingerprint."""
    rows: int | None
    groups: Mapping[str, float]
    """Of stored candidates: see `lab.setup.manifest.group_figures`; empty for other rows."""
    runs: tuple[str, ...]


def trainings(runs: Iterable[RunDirectory]) -> Iterator[StageEpochs]:
    """The epochs of every stage of the runs that recorded steps and knows its rows."""
    for run in runs:
        history = History(run)
        experiment = history.experiment
        for name, spec in experiment.stage.items():
            own = history.lines(name)
            if epochs := _epochs(run, experiment, name, own):
                yield StageEpochs(
                    run=str(run),
                    stage=name,
                    method=spec.method,
                    data=spec.data.partition(".")[0],
                    epochs=epochs,
                    reference=spec.kl.reference if isinstance(spec, GrpoStage) else "",
                    first_kl=_number(own[0], "kl_loss", "kl"),
                )


def _epochs(
    run: RunDirectory, experiment: Experiment, stage: str, lines: Sequence[Line]
) -> tuple[Epoch, ...]:
    by_epoch: dict[int, list[Line]] = {}
    for line in lines:
        passed = epoch_of(run, experiment, stage, line["step"])
        if not isinstance(passed, int | float):
            return ()
        by_epoch.setdefault(max(math.ceil(passed), 1), []).append(line)
    return tuple(_epoch(number, own) for number, own in by_epoch.items())


def _epoch(number: int, lines: Sequence[Line]) -> Epoch:
    values: dict[str, float] = {}
    for name in (*MEANS, LAST):
        # The KL of the loss where there is one: what the coefficient multiplies.
        names = ("kl_loss", "kl") if name == "kl" else (name,)
        known = [v for line in lines if (v := _number(line, *names)) is not None]
        if known:
            values[name] = known[-1] if name == LAST else sum(known) / len(known)
    return Epoch(number, len(lines), values)


def _number(line: Line, *names: str) -> float | None:
    return next((line[name] for name in names if line.get(name) is not None), None)


def data_files(runs: Iterable[RunDirectory]) -> list[DataFile]:
    """The data that the runs learned from: each different content once, with its runs."""
    files: dict[tuple[str, str], DataFile] = {}
    for run in runs:
        used = {spec.data.partition(".")[0] for spec in experiment_of(run).stage.values()}
        for name, table in read_manifest(run).get("data", {}).items():
            if name not in used:
                continue
            contents = table.get("contents_sha256") or table.get("file_sha256") or ""
            rows, groups = table.get("train", {}).get("rows"), table.get("groups", {})
            before = files[name, contents].runs if (name, contents) in files else ()
            runs_of = (*before, str(run))
            files[name, contents] = DataFile(name, contents, rows, groups, runs_of)
    return list(files.values())


CHECKPOINT_KEYS = ("checkpoint", "stage", "step", "epoch")
RECORD = "evaluation."

Value = str | int | float | bool | None
"""A value on an axis; tables and arrays as their JSON text, None where a run has no such key."""
Place = tuple[Value, ...]
"""Row, column, then one value for each layer key."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The keys of rows, columns and layers."""

    rows: str
    columns: str | None
    """None: one column."""
    layers: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of all axes."""
        return tuple(k for k in (self.rows, self.columns, *self.layers) if k is not None)

    def values(self, place: Place) -> dict[str, Value]:
        """The value of each key at a place."""
        keys = (self.rows, self.columns, *self.layers)
        return {k: v for k, v in zip(keys, place, strict=True) if k is not None}

    def place(self, coordinates: Mapping[str, Any]) -> Place:
        """The place that has these coordinates."""
        keys = (self.rows, self.columns, *self.layers)
        return tuple(None if k is None else place_value(coordinates.get(k)) for k in keys)


def place_value(value: Any) -> Value:
    """A coordinate as a value on an axis."""
    return canonical_json(value) if isinstance(value, list | tuple | Mapping) else value


def is_late(key: str) -> bool:
    """Whether only what was measured has a key."""
    return key in CHECKPOINT_KEYS or key.startswith(RECORD)


def run_coordinates(name: str, experiment: Experiment) -> dict[str, Any]:
    """The values of a run's resolved experiment, by dotted path, and its name."""
    values = experiment.model_dump(mode="json", exclude={"seeds", "vary", "name", "about", "note"})
    return {**_flat(values), "name": name}


def checkpoint_coordinates(
    run: RunDirectory, experiment: Experiment, checkpoint: str
) -> dict[str, Any]:
    """Stage, step and epoch of a checkpoint as records name it; the base is step 0 of `base`."""
    reference = parse_checkpoint(checkpoint)
    if reference is None or reference.stage is None:
        return {"checkpoint": checkpoint, "stage": "base", "step": 0, "epoch": 0}
    step = reference.step or 0
    epoch = epoch_of(run, experiment, reference.stage, step)
    return {"checkpoint": checkpoint, "stage": reference.stage, "step": step, "epoch": epoch}


def epoch_of(run: RunDirectory, experiment: Experiment, stage: str, step: int) -> Value:
    """Passes over the stage's rows after `step`, to two decimals; None where rows are unknown."""
    spec = experiment.stage.get(stage)
    rows = _epoch_rows(run, spec) if spec is not None else None
    if spec is None or not rows:
        return None
    epoch = round(step * rows_per_step(spec) / rows, 2)
    return int(epoch) if epoch == int(epoch) else epoch


def step_of_epoch(
    run: RunDirectory, experiment: Experiment, stage: str, epoch: float
) -> int | None:
    """The first step of a stage at or behind the end of an epoch; None where rows are unknown."""
    spec = experiment.stage.get(stage)
    rows = _epoch_rows(run, spec) if spec is not None else None
    # Parts of an epoch are binary fractions, which may come out a little above a whole step.
    return math.ceil(epoch * rows / rows_per_step(spec) - 1e-9) if spec and rows else None


def _epoch_rows(run: RunDirectory, spec: StageSpec) -> int | None:
    """The rows that one epoch of a stage visits, as the manifest counts them; None of others."""
    if not counts_rows(spec):
        return None
    name, _, part = spec.data.partition(".")
    counts = read_manifest(run).get("data", {}).get(name, {}).get(part or "train", {})
    return counts.get("epoch_rows", counts.get("rows"))


def record_coordinates(record: EvaluationRecord) -> dict[str, Any]:
    """The fields of a record's evaluation."""
    table = {
        "name": record.name,
        "benchmark": record.benchmark,
        "items": len(record.items),
        "repeats": record.repeats,
        "sampling": dict(record.sampling),
        "options": dict(record.options),
    }
    return {RECORD + key: value for key, value in _flat(table).items()}


def _flat(table: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Nested tables by dotted path, each inner table also as a whole."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if value is not None:
            flat[f"{above}{key}"] = value
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{above}{key}.")
    return flat


def check_key(key: str, known: Iterable[Mapping[str, Any]]) -> None:
    """Raise InputError, with the nearest key, where no coordinates have this one."""
    names = sorted({*CHECKPOINT_KEYS, "name", "seed", *(n for each in known for n in each)})
    if key not in names:
        simple = [n for n in names if not n.endswith((".sampling", ".options"))]
        raise InputError(f"no run can be pivoted by {key!r}", fix=nearest(key, simple))


def ordered(values: Iterable[Value]) -> tuple[Value, ...]:
    """Different values: numbers by size, others as they came, None last."""
    unique = list(dict.fromkeys(values))
    numbers = [v for v in unique if isinstance(v, int | float) and not isinstance(v, bool)]
    others = [v for v in unique if v not in numbers and v is not None]
    return (*sorted(numbers), *others, *([None] if None in unique else []))


State = Literal[
    "measured",
    "not run",
    "running",
    "interrupted",
    "failed",
    "not measured",
    "not in the search",
    "no checkpoint",
    "damaged",
]


@dataclass(frozen=True, slots=True)
class Baseline:
    """The baseline of cells: other cells, one run, or a checkpoint of the cell's own run."""

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


@dataclass(frozen=True, slots=True)
class Question:
    """What a matrix is asked for."""

    name: str
    about: str
    layout: Layout
    on: tuple[str, ...]
    """Evaluations by name, benchmark or pattern; empty means the first reporting one."""
    controls: Mapping[str, Baseline]
    """What cells are compared with; cells show the first."""
    select: tuple[str, ...]
    """The evaluations that rank cells; empty: the only selecting one."""
    declared: tuple[str, ...]
    """Keys in which the units may differ: the axes, and what arms set."""
    checkpoint: str | None = None
    """STAGE.last, STAGE.best, STAGE.step-N, STAGE.all, base, or None for the last measured."""
    ratios_to: Mapping[str, float] = field(default_factory=dict)
    """Baseline scores of `on`, which then make one value together; else each record makes one."""
    select_ratios: Mapping[str, float] = field(default_factory=dict)
    """Baseline scores of `select`, where it is several."""
    allow: tuple[str, ...] = ()
    notes: tuple[Finding, ...] = ()
    listed: tuple[str, tuple[Value, ...]] | None = None
    """A key of checkpoints with the values that are wanted; None: all there are."""
    sweep: bool = False
    """Whether the units are all points of one."""
    chosen_points: bool = False
    """Whether places without a unit are no part of the search; else their runs are missing."""


@dataclass(frozen=True, slots=True)
class Unit:
    """The content of a cell: runs of one setting at one checkpoint, measured or not."""

    name: str
    """The runs' name, with `@CHECKPOINT` where one is known."""
    coordinates: Mapping[str, Any]
    state: State
    runs: tuple[RunDirectory, ...]
    parts: tuple[Arm, ...] = ()
    """One for each evaluation of the value; empty unless measured."""
    seeds_missing: int = 0
    looks: int = 1
    """Checkpoints among which this one was chosen on dev items."""
    problem: str = ""
    """The damage of a record; "" if there is none."""
    first: int | None = None
    """The value is that of the first so many items of the records; None: of all."""

    @property
    def waiting(self) -> str:
        """The name of the run that its cell waits for; "" where it is measured."""
        return "" if self.state == "measured" else self.name.partition("@")[0]

    @property
    def stands(self) -> bool:
        """Whether its one checkpoint stands at every value of an axis of checkpoints."""
        return self.coordinates.get("checkpoint", "") is None


def origins_of(arm: Arm) -> list[Provenance]:
    """The records behind an arm of a matrix, one for each training seed."""
    return [each.provenance for each in arm.members if each.provenance is not None]


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of the table."""

    place: Place
    state: State
    unit: Unit | None = None
    """None where no run belongs to the place."""
    score: float | None = None
    interval: Interval | None = None
    items: int = 0
    repeats: int = 0
    seeds: int = 0
    comparison: Comparison | None = None
    """Against the baseline, corrected for the family of the matrix."""
    is_baseline: bool = False
    against: Mapping[str, Comparison] = field(default_factory=dict)
    """Against every control by name, the baseline among them, of the same family."""
    same_weights: tuple[str, ...] = ()
    """The controls that have the same weights as the cell: then a verdict is about nothing."""
    is_control: bool = False
    """Whether it is a cell that others are compared with, other than the baseline."""
    run: str = ""
    """The name of the run that fills it, where it is empty and a run may."""

    @property
    def name(self) -> str:
        """The cell's name in findings and lists."""
        return self.unit.name if self.unit else ""

    @property
    def parts(self) -> tuple[Arm, ...]:
        """The arms behind its value, one for each evaluation; empty unless measured."""
        return self.unit.parts if self.unit else ()

    @property
    def pooled(self) -> list[ItemScores]:
        """The scores of each evaluation, seeds as repeats."""
        return [arm.scores for arm in self.parts]

    @property
    def seeds_missing(self) -> int:
        """Seeds that its value lacks."""
        return self.unit.seeds_missing if self.unit else 0

    @property
    def origins(self) -> list[Provenance]:
        """The records that the cell's value comes from, by evaluation and seed."""
        return [origin for arm in self.parts for origin in origins_of(arm)]


@dataclass(frozen=True, slots=True)
class Margin:
    """A row, a column or a layer taken together."""

    key: str
    value: Value
    layer: Place
    """The layer that it lies in."""
    average: Average | None
    cells: int
    """Cells that there would be."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A setting and its model by rule, or none with the reason."""

    reason: str
    """Key of the sentence with the reason: `chosen`, or why there is none."""
    choice: Choice | None = None
    cell: Cell | None = None
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
    """Points of the sweep; 0 for runs that are no sweep, of which none wins."""
    missing: int = 0
    """Points without all of their scores: then none has won."""
    rivals: tuple[Cell, ...] = ()
    problem: str = ""
    """The damage of a dev record; "" if there is none."""

    @property
    def winner(self) -> Cell | None:
        """The best on dev, once every point was measured, whether it beats a baseline or not."""
        return self.cell if self.points and not self.missing else None


@dataclass(frozen=True, slots=True)
class Trend:
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
    trend: Trend | None


@dataclass(frozen=True, slots=True)
class Block:
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
    """A pivoted set of runs."""

    name: str
    about: str
    layout: Layout
    on: tuple[str, ...]
    ratios_to: Mapping[str, float]
    baseline: str
    """In words: what cells are compared with; empty where nothing is."""
    controls: Mapping[str, str]
    """The same for all that cells are compared with, by name; the first is the baseline."""
    rows: tuple[Value, ...]
    columns: tuple[Value, ...]
    layers: tuple[Place, ...]
    cells: Mapping[Place, Cell]
    margins: tuple[Margin, ...]
    tally: Tally
    recommendation: Recommendation
    blocks: tuple[Block, ...] = ()
    trainings: tuple[StageEpochs, ...] = ()
    data_files: tuple[DataFile, ...] = ()
    notes: tuple[Finding, ...] = ()
    """Omissions with their reasons, and warnings."""

    @property
    def measured(self) -> list[Cell]:
        """The cells that have a score, in order."""
        return [cell for cell in self.cells.values() if cell.state == "measured"]

    def mark(self, cell: Cell) -> str:
        """`winner`, `rival` of it, or ""; `leader`: the best on dev, where points are missing."""
        advice = self.recommendation
        if advice.cell is not None and cell.place == advice.cell.place:
            return "winner" if advice.winner else "leader"
        return "rival" if any(cell.place == rival.place for rival in advice.rivals) else ""
