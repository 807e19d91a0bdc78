"""What to watch over the next steps: metrics of rules, guards and milestones, and their distance.

The distance is what is left between the present figure and the bound. Rules that find something
come first, then the milestones ahead, the guards, and of the other rules those that are nearest to
their threshold. Adds no words.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from assay.experiment.experiment import Experiment
from assay.judge.health_checks import RuleState
from assay.judge.health_rules import RULES, Rule
from assay.judge.trends import Forecast
from assay.lab.monitor.guards import condition, met
from assay.lab.monitor.milestones import MilestoneState

NEAREST = 5
"""Rules without a finding that are listed."""
Kind = Literal["rule", "milestone", "guard"]
Side = Literal["above", "below"]
DOWNWARDS = frozenset({"low", "shrunk", "flat"})
"""Kinds of rules that find values below their threshold."""


@dataclass(frozen=True)
class Watched:
    """One thing to watch."""

    kind: Kind
    name: str
    """Of the rule, milestone or guard."""
    metric: str
    """"" of a milestone on a verdict."""
    side: Side
    """Of a rule and a guard: where they fire; of a milestone: where it is met."""
    bound: float | None
    now: float | None
    """The figure that is held against the bound; None where it is not recorded."""
    distance: float | None
    """bound - now."""
    beyond: bool = False
    """Whether the figure is on that side already."""
    step: int | None = None
    forecast: Forecast | None = None


def watch_list(
    experiment: Experiment,
    stage: str,
    lines: Sequence[Mapping[str, Any]],
    states: Sequence[RuleState],
    milestones: Sequence[MilestoneState],
) -> tuple[Watched, ...]:
    """What to watch after the last of a stage's lines."""
    rules = [each for state in states if (each := _rule(state)) is not None]
    found = [each for each in rules if each.beyond]
    calm = sorted((each for each in rules if not each.beyond), key=_nearness)[:NEAREST]
    ahead = [_milestone(m, lines) for m in milestones if is_ahead(m, stage)]
    guards = [
        _guard(name, experiment, lines)
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


def is_ahead(milestone: MilestoneState, stage: str) -> bool:
    """Whether a milestone of the stage is still to be scored."""
    return milestone.spec.stage == stage and milestone.state in ("pending", "open")


def _rule(state: RuleState) -> Watched | None:
    """A rule that read a number; those that hold nothing against a threshold are left out."""
    rule, reading = RULES[state.rule], state.reading
    bound = threshold(rule)
    if reading is None or reading.value is None or bound is None:
        return None
    side = "below" if rule.kind in DOWNWARDS else "above"
    return Watched(
        "rule",
        state.rule,
        reading.metric,
        side,
        bound,
        reading.value,
        bound - reading.value,
        beyond=reading.severity is not None,
    )


def threshold(rule: Rule) -> float | None:
    """Where a rule begins to find something."""
    return rule.error if rule.warning is None else rule.warning


def _nearness(each: Watched) -> float:
    """The distance as a multiple of the bound: figures of different sizes become comparable."""
    assert each.distance is not None and each.bound is not None
    return abs(each.distance) / abs(each.bound) if each.bound else math.inf


def _milestone(each: MilestoneState, lines: Sequence[Mapping[str, Any]]) -> Watched:
    spec, metric = each.spec, each.spec.metric or ""
    bound = spec.below if spec.above is None else spec.above
    side = "below" if spec.above is None and bound is not None else "above"
    now = last_value(lines, metric)
    distance = None if now is None or bound is None else bound - now
    return Watched(
        *("milestone", each.name, metric, side, bound, now, distance),
        step=spec.step,
        forecast=each.forecast,
    )


def _guard(name: str, experiment: Experiment, lines: Sequence[Mapping[str, Any]]) -> Watched:
    spec = experiment.guard[name]
    side: Side = "below" if spec.above is None else "above"
    _, bound = condition(spec)
    now = last_value(lines, spec.metric)
    recorded = any(spec.metric in line for line in lines)
    distance = None if now is None else bound - now
    return Watched(
        *("guard", name, spec.metric, side, bound, now, distance),
        beyond=recorded and met(spec, now),
    )


def last_value(lines: Sequence[Mapping[str, Any]], metric: str) -> float | None:
    """The last recorded value of a metric; None where it is not finite or never recorded."""
    values = [line[metric] for line in lines if metric in line]
    return None if not values or values[-1] is None else float(values[-1])
