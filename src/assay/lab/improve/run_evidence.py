"""Gathers what a run recorded for the rules that look for improvements.

Reads the experiment, metrics, samples, stored candidates, evaluation records and checkpoints; reads
rows again only where candidates or pools are to be looked at, and refuses those that have changed.
Judges nothing and asks no model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.compare.arm import Arm, Provenance, load_arm
from assay.data.row import Row
from assay.errors import Finding
from assay.experiment.experiment import Experiment
from assay.experiment.stage_tables import DistillStage, StageSpec, StoredStage
from assay.judge.improvements import Aim, Cost, Fact, Improvement, Risk, Stake, Unit, Work
from assay.judge.selection_agreement import selections_in
from assay.lab.monitor.stage_health import stage_health
from assay.lab.setup.prepare import rows_by_id
from assay.lab.setup.reward_parts import reward_of
from assay.lab.setup.run_rows import check_unchanged
from assay.runs.checkpoints import Selection
from assay.runs.history import History, Look
from assay.runs.records import FACTS, EvaluationRecord, read_columns
from assay.runs.run_directory import RunDirectory
from assay.tasks.reward_table import RewardTable, stored_reward
from assay.tasks.task import RewardFunction
from assay.tasks.task import task as make_task

CANDIDATES = "candidates"
"""The field of a row's `extra` that holds stored candidates."""
Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One rewarded completion or stored candidate of a group."""

    text: str
    reward: float | None
    """None for an abstention."""
    numbers: Mapping[str, float]
    """The parts of its reward, and those of its facts that are numbers."""
    fallback: bool
    """Whether a fallback metric scored it."""


Group = tuple[Candidate, ...]
"""The candidates of one visit to one query."""


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups that a stage learned from, and where they lie."""

    found: tuple[Group, ...]
    place: str


@dataclass(frozen=True)
class StageEvidence:
    """What one stage recorded."""

    name: str
    spec: StageSpec
    lines: Sequence[Line]
    """Its steps, with derived metrics."""
    health: Sequence[Finding]
    start: str
    """As records name it; "" where it is not known."""
    steps: tuple[int, ...]
    """Of its checkpoints."""
    groups: Groups
    looks: Sequence[Look]
    """Start and checkpoints on dev items, by step."""
    selection: Selection | None

    @property
    def last(self) -> str:
        """Its last checkpoint as records name it; "" where it has none."""
        return f"{self.name}.step-{self.steps[-1]:06d}" if self.steps else ""

    @property
    def risk(self) -> Risk:
        """Of training it otherwise: whether the gate looks at its checkpoints."""
        return "open" if self.selection is None else "guarded"

    @property
    def seconds(self) -> float | None:
        """What its steps took."""
        taken = [line["seconds"] for line in self.lines if line.get("seconds") is not None]
        return float(sum(taken)) if taken else None

    def improvement(
        self,
        rule: str,
        aim: Aim,
        *facts: Fact,
        share: float,
        unit: Unit,
        at_most: bool = False,
        work: Work = "train",
        what: str = "",
    ) -> Improvement:
        """Train it otherwise, or make its data again and train it: a change with its evidence."""
        change = (f"improve_what.{what or rule}",)
        stake, cost = Stake(share, unit, at_most), Cost(work, self.seconds)
        return Improvement(rule, self.name, change, aim, facts, stake, cost, self.risk)


@dataclass(frozen=True)
class Measured:
    """One evaluation: the arms of its finished records, the base first, then by stage and step."""

    record: EvaluationRecord
    arms: Mapping[str, Arm]
    """By checkpoint."""
    seconds: float | None
    """What asking one answer took on average."""

    @property
    def place(self) -> str:
        """The folder of its records."""
        return f"evaluations/{self.record.key}"

    @property
    def picks(self) -> bool:
        """Whether its answers are selections of demonstrations."""
        return any(selections_in(arm.outputs) is not None for arm in self.arms.values())


@dataclass(frozen=True)
class RunEvidence:
    """What a run recorded."""

    run: RunDirectory
    experiment: Experiment
    stages: Mapping[str, StageEvidence]
    """Those that recorded steps, in order."""
    measured: Sequence[Measured]
    rows: Mapping[str, Mapping[str, Row]]
    """By data set, the rows of stored candidates and of pools, by id."""


def gather_evidence(run: RunDirectory) -> RunEvidence:
    """Everything that the rules look at. Raises what reading the records and the rows raises."""
    history = History(run)
    measured = [_measured(history, record) for record in history.evaluations]
    rows = _rows(run, history.experiment, any(each.picks for each in measured))
    begun = [name for name in history.experiment.stage if name in history.metrics]
    stages = {name: _stage(history, name, rows) for name in begun}
    return RunEvidence(run, history.experiment, stages, measured, rows)


def _stage(history: History, name: str, rows: Mapping[str, Mapping[str, Row]]) -> StageEvidence:
    return StageEvidence(
        name=name,
        spec=history.experiment.stage[name],
        lines=history.lines(name),
        health=stage_health(history, name).findings,
        start=history.start(name),
        steps=tuple(history.checkpoints(name)),
        groups=_groups(history, name, rows),
        looks=history.looks(name),
        selection=history.selection(name),
    )


def _groups(history: History, name: str, rows: Mapping[str, Mapping[str, Row]]) -> Groups:
    """What the stage sampled, or else the stored candidates of its data, judged as the stage judges
    them; none for other stages, and for distillation, which learns from no reward."""
    run, experiment = history.run, history.experiment
    spec, sampled = experiment.stage[name], history.sampled(name)
    if isinstance(spec, DistillStage):
        return Groups((), "")
    if sampled:
        return Groups(_by_visit(history, name, sampled), f"samples/{name}")
    if not isinstance(spec, StoredStage) or not spec.stored:
        return Groups((), "")
    task = make_task(experiment.task, run.root)
    reward = None if spec.reward is None else reward_of(task, spec.reward, run.root)
    data = spec.data.partition(".")[0]
    kept = [row for row in rows.get(data, {}).values() if row.extra.get(CANDIDATES)]
    found = tuple(
        tuple(_stored(reward, row, candidate) for candidate in row.extra[CANDIDATES])
        for row in kept
    )
    return Groups(found, f"data.{data}")


def _by_visit(history: History, stage: str, steps: Sequence[int]) -> tuple[Group, ...]:
    """Samples as groups: those of one step, row and visit."""
    groups: dict[tuple[int, str, int], list[Candidate]] = {}
    for step in steps:
        for each in history.samples(stage, step):
            made = _candidate(each.text, each.reward, each.parts, each.facts)
            groups.setdefault((step, each.row, each.visit), []).append(made)
    return tuple(map(tuple, groups.values()))


def _stored(
    reward: RewardFunction | RewardTable | None, row: Row, candidate: Mapping[str, Any]
) -> Candidate:
    judged = stored_reward(reward, row, candidate)
    facts = {**(candidate.get(FACTS) or {}), **judged.facts}
    return _candidate(candidate["text"], judged.value, judged.parts, facts)


def _candidate(text: str, reward: float | None, parts: Line, facts: Line) -> Candidate:
    numbers = {
        name: float(value)
        for name, value in {**parts, **facts}.items()
        if isinstance(value, int | float)
    }
    marked = [v for k, v in numbers.items() if k.rpartition("/")[2] == "fallback"]
    mode = next((v for k, v in facts.items() if k.rpartition("/")[2].endswith("eval_mode")), "")
    return Candidate(text, reward, numbers, any(marked) or mode in ("fallback", "error"))


def _measured(history: History, record: EvaluationRecord) -> Measured:
    run = history.run
    names = [name for name in history.measured(record) if record.finished(run, name)]
    arms = {name: load_arm(Provenance(run, name, record), name) for name in names}
    taken = [
        second
        for name in names
        for second in read_columns(record.file(run.evaluations, name), ["seconds"])["seconds"]
        if second is not None
    ]
    return Measured(record, arms, sum(taken) / len(taken) if taken else None)


def _rows(run: RunDirectory, experiment: Experiment, picks: bool) -> dict[str, Mapping[str, Row]]:
    """The rows of data sets that stored candidates or pools are read from."""
    stages = experiment.stage.values()
    names = {s.data for s in stages if picks or (isinstance(s, StoredStage) and s.stored)}
    names |= {each.data for each in experiment.evaluate.values() if picks and each.data}
    found = {}
    for name in sorted({name.partition(".")[0] for name in names}):
        check_unchanged(run, experiment, name, run.root)
        found[name] = rows_by_id(experiment, name, run.root)
    return found
