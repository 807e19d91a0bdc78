"""Gathers what a run recorded for the rules that look for improvements.

Reads the experiment, metrics, samples, stored candidates, evaluation records and checkpoints; reads
rows again only where candidates or pools are to be looked at, and refuses those that have changed.
Judges nothing and asks no model.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.compare.arm import Arm, Provenance, load_arm
from assay.data.row import Row
from assay.experiment.experiment import Experiment
from assay.experiment.read_file import read_experiment
from assay.experiment.stage_tables import StageSpec, StoredStage
from assay.judge.health_checks import Diagnosis
from assay.judge.selection_agreement import selections_in
from assay.lab.monitor.progress import by_stage
from assay.lab.monitor.stage_health import Look, looks, stage_health, start_name
from assay.lab.setup.prepare import rows_by_id
from assay.lab.setup.reward_parts import reward_of
from assay.lab.setup.run_rows import check_unchanged
from assay.runs.checkpoints import Selection, read_selection
from assay.runs.history import evaluation_records, measured_checkpoints
from assay.runs.metrics import read_metrics
from assay.runs.records import FACTS, EvaluationRecord, read_columns, read_samples
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import checkpoint_steps
from assay.tasks.reward_table import RewardTable
from assay.tasks.stored_reward import stored_reward
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
    health: Sequence[Diagnosis]
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
    def seconds(self) -> float | None:
        """What its steps took."""
        taken = [line["seconds"] for line in self.lines if line.get("seconds") is not None]
        return float(sum(taken)) if taken else None


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
    experiment = read_experiment(run.spec)
    metrics = by_stage(read_metrics(run.metrics))
    measured = [_measured(run, record) for record in evaluation_records(run)]
    rows = _rows(run, experiment, any(each.picks for each in measured))
    stages = {
        name: _stage(run, experiment, name, metrics, rows)
        for name in experiment.stage
        if name in metrics
    }
    return RunEvidence(run, experiment, stages, measured, rows)


def _stage(
    run: RunDirectory,
    experiment: Experiment,
    name: str,
    metrics: Mapping[str, Sequence[Line]],
    rows: Mapping[str, Mapping[str, Row]],
) -> StageEvidence:
    spec = experiment.stage[name]
    return StageEvidence(
        name=name,
        spec=spec,
        lines=metrics[name],
        health=stage_health(run, experiment, name, metrics),
        start=start_name(run, name),
        steps=tuple(checkpoint_steps(run, name)),
        groups=_groups(run, experiment, name, rows),
        looks=looks(run, name),
        selection=read_selection(run.path, name),
    )


def _groups(
    run: RunDirectory,
    experiment: Experiment,
    name: str,
    rows: Mapping[str, Mapping[str, Row]],
) -> Groups:
    """What the stage sampled, or else the stored candidates of its data, judged as the stage judges
    them; none for other stages."""
    spec = experiment.stage[name]
    folder = run.path / "samples" / name
    if folder.is_dir():
        lines = [line for file in sorted(folder.glob("step-*.parquet")) for line in _lines(file)]
        return Groups(_by_visit(lines), f"samples/{name}")
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


def _lines(file: Any) -> list[dict[str, Any]]:
    lines = read_samples(file)
    return [{**line, "file": file.name} for line in lines]


def _by_visit(lines: Sequence[Line]) -> tuple[Group, ...]:
    """Samples as groups: those of one step, row and visit."""
    groups: dict[tuple[Any, ...], list[Candidate]] = {}
    for line in lines:
        key = (line["file"], line["row_id"], line.get("visit"))
        parts, facts = (json.loads(line.get(name) or "{}") for name in ("parts", FACTS))
        groups.setdefault(key, []).append(_candidate(line["text"], line["reward"], parts, facts))
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


def _measured(run: RunDirectory, record: EvaluationRecord) -> Measured:
    names = [name for name in measured_checkpoints(run, record) if record.finished(run, name)]
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
