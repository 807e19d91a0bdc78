"""The health of a run's stages from its records: metrics, dev scores and spending put together.

The rules are `judge`'s; nothing is worded here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from assay.experiment.experiment import Experiment
from assay.experiment.stage_tables import steps_of
from assay.judge.health_checks import Spending
from assay.judge.stage_diagnosis import Diagnosis, diagnose
from assay.judge.trends import forecast_total
from assay.lab.monitor.dev_scores import looks
from assay.runs.manifest_file import read_manifest
from assay.runs.run_directory import RunDirectory

Lines = Sequence[Mapping[str, Any]]


def stage_health(
    run: RunDirectory,
    experiment: Experiment,
    stage: str,
    metrics: Mapping[str, Lines],
    until: int | None = None,
) -> list[Diagnosis]:
    """What the rules find in a stage, worst first; `metrics` are the run's lines by stage.

    With `until`, as it stood after that step. Spending belongs to the last stage that has begun.
    """
    lines = [line for line in metrics.get(stage, []) if until is None or line["step"] <= until]
    dev = [
        (look.step, look.scores)
        for look in looks(run, stage)
        if until is None or look.step <= until
    ]
    last = list(metrics)[-1] if metrics else None
    money = spending(run, experiment, {**metrics, stage: lines}) if stage == last else []
    return diagnose(lines, dev, money)


def spending(
    run: RunDirectory, experiment: Experiment, metrics: Mapping[str, Lines]
) -> list[Spending]:
    """What was spent of each budget whose metric was recorded, and what it will come to.

    The forecast covers the remaining steps of the last stage that has begun.
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
    """The steps that a stage will have; None where its rows are not counted yet."""
    spec = experiment.stage[stage]
    if spec.steps is not None:
        return spec.steps
    name, _, part = spec.data.partition(".")
    counted = read_manifest(run).get("data", {}).get(name, {}).get(part or "train")
    return None if counted is None else steps_of(spec, counted["rows"])
