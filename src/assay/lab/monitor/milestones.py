"""Milestones: what the experiment expected of a stage, scored against what the stage recorded.

An expectation is met where the interval of the value lies on the expected side, missed where it
lies on the other, and undecided where it holds the bound. Before its step it is pending, with a
forecast.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from assay.experiment.experiment import Experiment
from assay.experiment.watch_tables import MilestoneSpec
from assay.judge.intervals import Interval
from assay.judge.rates import Estimate
from assay.judge.trends import Forecast, forecast_value
from assay.lab.monitor.estimates import estimate, is_share
from assay.runs.run_directory import RunDirectory

State = Literal["pending", "open", "met", "missed", "undecided", "not recorded"]
"""`open`: a value without a step is not there yet. `not recorded`: the step has not the metric."""
RECENT = 20
"""A forecast is made from at most so many steps."""


@dataclass(frozen=True, slots=True)
class MilestoneState:
    """How a milestone stands."""

    name: str
    spec: MilestoneSpec
    state: State
    step: int | None
    """The step at which it was scored; None before."""
    value: Estimate | None = None
    forecast: Forecast | None = None
    """Of the value at its step, while it is pending."""


def milestone_states(
    run: RunDirectory,
    experiment: Experiment,
    metrics: Mapping[str, Sequence[Mapping[str, Any]]],
    until: tuple[str, int] | None = None,
) -> list[MilestoneState]:
    """Every milestone; with `until`, as it stood after that step of that stage."""
    found = []
    for name, spec in experiment.milestone.items():
        lines = metrics.get(spec.stage, [])
        if until is not None and until[0] == spec.stage:
            lines = [line for line in lines if line["step"] <= until[1]]
        found.append(_state(run, experiment, name, spec, lines))
    return found


def _state(
    run: RunDirectory,
    experiment: Experiment,
    name: str,
    spec: MilestoneSpec,
    lines: Sequence[Mapping[str, Any]],
) -> MilestoneState:
    last = lines[-1]["step"] if lines else 0
    if not lines or (spec.step is not None and last < spec.step):
        return MilestoneState(name, spec, "pending", None, forecast=_forecast(spec, lines))
    step = last if spec.step is None else spec.step
    if spec.metric is None:
        return MilestoneState(name, spec, "met", step)
    line = next((line for line in lines if line["step"] == step), {})
    stage = experiment.stage[spec.stage]
    value = estimate(run, stage, line, spec.metric) if line else None
    if value is None:
        return MilestoneState(name, spec, "not recorded", step)
    state = scored(spec, value)
    if spec.step is None and state == "missed":
        state = "open"
    return MilestoneState(name, spec, state, step, value)


def scored(spec: MilestoneSpec, value: Estimate) -> State:
    """Whether a value is on the expected side, as far as its interval allows to say."""
    around = value.interval or Interval(value.value, value.value, "exact")
    if spec.above is not None:
        above, under = around.low > spec.above, around.high <= spec.above
    else:
        assert spec.below is not None, "the spec was checked"
        above, under = around.high < spec.below, around.low >= spec.below
    if above:
        return "met"
    return "missed" if under else "undecided"


def _forecast(spec: MilestoneSpec, lines: Sequence[Mapping[str, Any]]) -> Forecast | None:
    if spec.metric is None or spec.step is None:
        return None
    return metric_forecast(lines, spec.metric, spec.step)


def metric_forecast(lines: Sequence[Mapping[str, Any]], metric: str, at: int) -> Forecast | None:
    """A metric at a later step, from the last steps that record it; shares stay within 0 and 1."""
    recorded = [line for line in lines if metric in line][-RECENT:]
    found = forecast_value([x["step"] for x in recorded], [x[metric] for x in recorded], at)
    if found is None or not is_share(metric):
        return found
    low, high = _within(found.interval.low), _within(found.interval.high)
    interval = replace(found.interval, low=low, high=high)
    return replace(found, value=_within(found.value), interval=interval)


def _within(value: float) -> float:
    return min(max(value, 0.0), 1.0)
