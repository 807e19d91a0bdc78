"""What to watch over the next steps: metrics of rules, guards and milestones, and their distance.

The distance is what is left between the present figure and the bound. Rules that find something
come first, then the milestones ahead, the guards, and of the other rules those that are nearest to
their threshold. Adds no words.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from assay.experiment.experiment import Experiment
from assay.experiment.tables import GuardSpec
from assay.judge.health_checks import RuleState
from assay.judge.health_rules import RULES, Side
from assay.judge.trends import Forecast
from assay.lab.monitor.guards import condition, met
from assay.lab.monitor.milestones import MilestoneState

NEAREST = 5
"""Rules without a finding that are listed."""
Lines = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Watched:
    """One thing to watch."""

    kind: Literal["rule", "milestone", "guard"]
    name: str
    """Of the rule, milestone or guard."""
    metric: str
    """"" of a milestone on a verdict."""
    side: Side
    """Of a rule and a guard: where they fire; of a milestone: where it is met."""
    bound: float | None
    now: float | None
    """The figure that is held against the bound; None where it is not recorded."""
    distance: float | None = field(init=False)
    """What is left to the bound."""
    beyond: bool = False
    """Whether the figure is on that side already."""
    step: int | None = None
    forecast: Forecast | None = None

    def __post_init__(self) -> None:
        known = self.now is not None and self.bound is not None
        object.__setattr__(self, "distance", self.bound - self.now if known else None)  # type: ignore[operator]


def watch_list(
    experiment: Experiment,
    stage: str,
    lines: Lines,
    states: Sequence[RuleState],
    milestones: Sequence[MilestoneState],
) -> tuple[Watched, ...]:
    """What to watch after the last of a stage's lines."""
    rules = [each for state in states if (each := _rule(state)) is not None]
    found = [each for each in rules if each.beyond]
    calm = sorted((each for each in rules if not each.beyond), key=_nearness)[:NEAREST]
    ahead = [
        _milestone(each, lines)
        for each in milestones
        if each.spec.stage == stage and each.state in ("pending", "open")
    ]
    guards = [
        _guard(name, spec, lines)
        for name, spec in experiment.guard.items()
        if spec.stage in (None, stage)
    ]
    return (*found, *ahead, *guards, *calm)


def next_report(experiment: Experiment, last: int, planned: int | None) -> int | None:
    """The step of the next report, or the last of the stage; None where neither is to come."""
    if planned is not None and last >= planned:
        return None
    every = experiment.report_every
    due = None if not every else (last // every + 1) * every
    ends = [step for step in (due, planned) if step is not None and step > last]
    return min(ends, default=None)


def _rule(state: RuleState) -> Watched | None:
    """A rule that read a number; those that hold nothing against a threshold are left out."""
    rule, reading = RULES[state.rule], state.reading
    bound = rule.error if rule.warning is None else rule.warning
    if reading is None or reading.value is None or bound is None:
        return None
    beyond = reading.severity is not None
    return Watched("rule", state.rule, reading.metric, rule.side, bound, reading.value, beyond)


def _nearness(each: Watched) -> float:
    """The distance as a multiple of the bound: figures of different sizes become comparable."""
    assert each.distance is not None and each.bound is not None
    return abs(each.distance) / abs(each.bound) if each.bound else math.inf


def _milestone(each: MilestoneState, lines: Lines) -> Watched:
    spec, metric = each.spec, each.spec.metric or ""
    bound = spec.below if spec.above is None else spec.above
    side: Side = "below" if spec.above is None and bound is not None else "above"
    now = _last_value(lines, metric)
    return Watched(
        "milestone", each.name, metric, side, bound, now, step=spec.step, forecast=each.forecast
    )


def _guard(name: str, spec: GuardSpec, lines: Lines) -> Watched:
    (side, bound), now = condition(spec), _last_value(lines, spec.metric)
    beyond = any(spec.metric in line for line in lines) and met(spec, now)
    return Watched("guard", name, spec.metric, side, bound, now, beyond)


def _last_value(lines: Lines, metric: str) -> float | None:
    """The last recorded value of a metric; None where it is not finite or never recorded."""
    values = [line[metric] for line in lines if metric in line]
    return None if not values or values[-1] is None else float(values[-1])
