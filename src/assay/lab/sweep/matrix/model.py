"""The types of a matrix: frozen data that `build` makes and `report` shows."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from assay.compare.arm import Arm, Provenance
from assay.errors import Finding
from assay.judge.averages import Average
from assay.judge.families import Tally
from assay.judge.intervals import Interval
from assay.judge.scores import ItemScores
from assay.judge.selection import Choice
from assay.judge.verdict import Comparison
from assay.lab.sweep.matrix.coordinates import Layout, Place, Value
from assay.lab.sweep.matrix.training_epochs import DataFile, StageEpochs
from assay.runs.run_directory import RunDirectory

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
    change: Average | None
    """Mean difference to the baseline over the cells that have one."""
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
