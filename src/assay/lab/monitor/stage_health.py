"""Applies the health rules of `judge` to a stage as its run recorded it. Adds no words."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from assay.experiment.stage_tables import (
    SamplingStage,
    StageSpec,
    StoredStage,
    counts_rows,
    steps_of,
)
from assay.judge.health_checks import Health, RuleState, Spending, check_health
from assay.judge.health_rules import OF_SAMPLES, STORED_ADVICE
from assay.judge.selection import Promotion, promote
from assay.judge.trends import forecast_total
from assay.runs.history import History

Lines = Sequence[Mapping[str, Any]]


def explained(history: History, stage: str) -> Promotion | None:
    """The gate's figures for a stage, computed again; None where start or checkpoints lack."""
    looks = history.looks(stage)
    if len(looks) < 2 or looks[0].step != 0:
        return None
    return promote(looks[0].scores, {look.step: look.scores for look in looks[1:]})


def stage_health(history: History, stage: str, until: int | None = None) -> Health:
    """The states and findings of the health rules in a stage, of its steps up to `until`.

    Spending is counted for the last stage that has started. Of stored candidates no rule of
    OF_SAMPLES says anything.
    """
    spec, lines = history.experiment.stage[stage], history.lines(stage, until)
    dev = [(x.step, x.scores) for x in history.looks(stage) if until is None or x.step <= until]
    money = spending(history, stage, until) if stage == history.last_stage else []
    found = check_health(_at_temperature(lines, spec), dev, money)
    if not learns_from_stored(spec):
        return found
    return Health(
        tuple(
            RuleState(each.rule, "not recorded", "", None) if each.rule in OF_SAMPLES else each
            for each in found.states
        ),
        tuple(
            replace(each, values={**each.values, **STORED_ADVICE.get(each.code, {})})
            for each in found.findings
            if each.code not in OF_SAMPLES
        ),
    )


def learns_from_stored(stage: StageSpec) -> bool:
    """Whether a stage learns from candidates of the data and samples none."""
    return isinstance(stage, StoredStage) and stage.stored


def _at_temperature(lines: Lines, stage: StageSpec) -> Lines:
    """The lines with the temperature that they were sampled at; where it has a schedule, the stage
    recorded it."""
    if not isinstance(stage, SamplingStage) or stage.stored:
        return lines
    temperature = stage.sampling.temperature
    if not isinstance(temperature, float | int):
        return lines
    return [{"temperature": float(temperature), **line} for line in lines]


def spending(history: History, stage: str, until: int | None = None) -> list[Spending]:
    """The spent part of each budget whose metric was recorded, with a forecast.

    Of `stage` only the steps up to `until` count. The forecast covers the remaining steps of the
    last stage that has started.
    """
    found = []
    metrics = {**history.metrics, stage: history.lines(stage, until)}
    for metric, budget in history.experiment.budget.items():
        costs = {
            name: [line[metric] for line in lines if line.get(metric) is not None]
            for name, lines in metrics.items()
        }
        spent = float(sum(map(sum, costs.values())))
        if not any(costs.values()):
            continue
        last = [*metrics][-1]
        steps = planned_steps(history, last)
        forecast = None
        if steps is not None and costs[last]:
            before = spent - sum(costs[last])
            remaining = max(steps - metrics[last][-1]["step"], 0)
            forecast = forecast_total(costs[last], remaining, steps, before)
        found.append(Spending(metric, spent, budget, forecast))
    return found


def planned_steps(history: History, stage: str) -> int | None:
    """The steps that a stage will have; None where its rows are not counted yet, or not counted in
    rows."""
    spec = history.experiment.stage[stage]
    if spec.steps is not None or not counts_rows(spec):
        return spec.steps
    name, _, part = spec.data.partition(".")
    counted = history.manifest.get("data", {}).get(name, {}).get(part or "train")
    return None if counted is None else steps_of(spec, counted.get("epoch_rows", counted["rows"]))
