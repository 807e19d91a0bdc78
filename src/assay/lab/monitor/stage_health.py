"""Reads a run's metrics, dev scores and spending, and applies the health rules of `judge` to them.

Also compares a stage's start and its checkpoints on dev items again, so that the selection can be
explained; `lab.evaluate.checkpoint_selection` made it. Adds no words.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.experiment.experiment import Experiment
from assay.experiment.read_file import read_experiment
from assay.experiment.stage_tables import (
    SamplingStage,
    StageSpec,
    StoredStage,
    counts_rows,
    steps_of,
)
from assay.judge.health_checks import Diagnosis, RuleState, Spending, diagnose, rule_states
from assay.judge.health_rules import OF_SAMPLES, STORED_ADVICE
from assay.judge.scores import ItemScores, on_one_scale
from assay.judge.selection import Promotion, promote
from assay.judge.trends import forecast_total
from assay.runs.checkpoints import read_selection
from assay.runs.history import evaluation_records, measured_checkpoints
from assay.runs.manifest_file import read_manifest
from assay.runs.records import EvaluationRecord, read_scores
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import RunNotFound
from assay.runs.run_names import start_name as named_start


@dataclass(frozen=True)
class Look:
    """Score of one checkpoint on dev items."""

    step: int
    """0 for the stage's start."""
    name: str
    """As records name it."""
    scores: ItemScores


def looks(run: RunDirectory, stage: str) -> list[Look]:
    """The scores of a stage by its first selecting evaluation, by step, on one scale.

    The start comes first if it was measured. Raises what reading the records raises.
    """
    for record in evaluation_records(run):
        if record.role != "select":
            continue
        measured = measured_checkpoints(run, record)
        steps = {name: parse_checkpoint(name) for name in measured}
        names = {n: r.step for n, r in steps.items() if r and r.stage == stage and r.step}
        if names:
            start = start_name(run, stage)
            return _scored(run, record, ({start: 0} if start in measured else {}) | names)
    return []


def explained(run: RunDirectory, stage: str) -> Promotion | None:
    """The gate's figures for a stage, computed again; None where start or checkpoints lack."""
    found = looks(run, stage)
    if len(found) < 2 or found[0].step != 0:
        return None
    return promote(found[0].scores, {look.step: look.scores for look in found[1:]})


def start_name(run: RunDirectory, stage: str) -> str:
    """The start of a stage as records name it; "" if it is not known yet."""
    chosen = read_selection(run.path, stage)
    if chosen and chosen.start:
        return chosen.start
    try:
        return named_start(run, stage, read_experiment(run.spec).stage[stage])
    except RunNotFound:  # the stage before has left no checkpoint yet, or it was deleted
        return ""


def _scored(run: RunDirectory, record: EvaluationRecord, names: dict[str, int]) -> list[Look]:
    scores = on_one_scale(*(read_scores(run, record, name) for name in names))
    return [
        Look(step, name, each) for (name, step), each in zip(names.items(), scores, strict=True)
    ]


Lines = Sequence[Mapping[str, Any]]


def stage_health(
    run: RunDirectory,
    experiment: Experiment,
    stage: str,
    metrics: Mapping[str, Lines],
    until: int | None = None,
) -> list[Diagnosis]:
    """Findings of the health rules in a stage, worst first.

    `metrics` are the run's lines by stage. With `until`, only steps up to that one count. Spending
    is counted for the last stage that has started. Of stored candidates no rule of OF_SAMPLES says
    anything.
    """
    found = diagnose(*_evidence(run, experiment, stage, metrics, until))
    if not learns_from_stored(experiment.stage[stage]):
        return found
    return [
        replace(each, advice=STORED_ADVICE.get(each.rule, each.advice))
        for each in found
        if each.rule not in OF_SAMPLES
    ]


def stage_states(
    run: RunDirectory,
    experiment: Experiment,
    stage: str,
    metrics: Mapping[str, Lines],
    until: int | None = None,
) -> list[RuleState]:
    """The state of every health rule in a stage; as `stage_health`."""
    found = rule_states(*_evidence(run, experiment, stage, metrics, until))
    if not learns_from_stored(experiment.stage[stage]):
        return found
    return [
        RuleState(each.rule, "not recorded", "", None) if each.rule in OF_SAMPLES else each
        for each in found
    ]


def learns_from_stored(stage: StageSpec) -> bool:
    """Whether a stage learns from candidates of the data and samples none."""
    return isinstance(stage, StoredStage) and stage.stored


def _evidence(
    run: RunDirectory,
    experiment: Experiment,
    stage: str,
    metrics: Mapping[str, Lines],
    until: int | None,
) -> tuple[Lines, list[tuple[int, ItemScores]], list[Spending]]:
    """Metrics, dev scores and spending that the rules look at."""
    lines = [line for line in metrics.get(stage, []) if until is None or line["step"] <= until]
    dev = [
        (look.step, look.scores)
        for look in looks(run, stage)
        if until is None or look.step <= until
    ]
    last = list(metrics)[-1] if metrics else None
    money = spending(run, experiment, {**metrics, stage: lines}) if stage == last else []
    return at_temperature(lines, experiment.stage[stage]), dev, money


def at_temperature(lines: Lines, stage: StageSpec) -> Lines:
    """The lines with the temperature that they were sampled at; where it has a schedule, the stage
    recorded it."""
    if not isinstance(stage, SamplingStage) or stage.stored:
        return lines
    temperature = stage.sampling.temperature
    if not isinstance(temperature, float | int):
        return lines
    return [{"temperature": float(temperature), **line} for line in lines]


def spending(
    run: RunDirectory, experiment: Experiment, metrics: Mapping[str, Lines]
) -> list[Spending]:
    """The spent part of each budget whose metric was recorded, with a forecast.

    The forecast covers the remaining steps of the last stage that has started.
    """
    found = []
    for metric, budget in experiment.budget.items():
        costs = {
            stage: [line[metric] for line in lines if line.get(metric) is not None]
            for stage, lines in metrics.items()
        }
        spent = float(sum(map(sum, costs.values())))
        if not any(costs.values()):
            continue
        stage = list(metrics)[-1]
        steps = planned_steps(run, experiment, stage)
        forecast = None
        if steps is not None and costs[stage]:
            before = spent - sum(costs[stage])
            remaining = max(steps - metrics[stage][-1]["step"], 0)
            forecast = forecast_total(costs[stage], remaining, steps, before)
        found.append(Spending(metric, spent, budget, forecast))
    return found


def planned_steps(run: RunDirectory, experiment: Experiment, stage: str) -> int | None:
    """The steps that a stage will have; None where its rows are not counted yet, or not counted in
    rows."""
    spec = experiment.stage[stage]
    if spec.steps is not None or not counts_rows(spec):
        return spec.steps
    name, _, part = spec.data.partition(".")
    counted = read_manifest(run).get("data", {}).get(name, {}).get(part or "train")
    return None if counted is None else steps_of(spec, counted.get("epoch_rows", counted["rows"]))
