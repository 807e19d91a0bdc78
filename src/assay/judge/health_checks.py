"""Checks the health rules over the metrics of one training stage.

`CHECKS` has one generator for each shape of rule: levels, multiples, slopes, spending. Rules read
the last steps, so they report the present state; the rules are data in `health_rules`. Stopping a
run is not done here.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from assay.errors import Finding, Severity, worst_first
from assay.judge.families import adjust_family
from assay.judge.health_rules import IDLE, LONG, MOVED, RULES, WINDOW, Rule, derived
from assay.judge.identity import IDENTITY_RULES
from assay.judge.paired import compare
from assay.judge.scores import ItemScores
from assay.judge.selection import ROUNDING, Forecast, corrected_for_looks, trend
from assay.judge.verdict import Comparison

Line = Mapping[str, Any]
Dev = Sequence[tuple[int, ItemScores]]
"""Scores on dev items, in order of steps, all on one scale."""
LEVEL = 0.99
"""Of the intervals of slopes: many rules look at every step."""


@dataclass(frozen=True, slots=True)
class Spending:
    """What a run has spent of one budget."""

    metric: str
    spent: float
    budget: float
    forecast: Forecast | None
    """The sum when the stage ends."""


@dataclass(frozen=True)
class Evidence:
    """What rules look at."""

    lines: Sequence[Line]
    """Recorded steps of one stage, in order; `check_health` adds the derived metrics."""
    dev: Dev = ()
    spending: Sequence[Spending] = ()
    parts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The metrics that BONUSES and PENALTIES stand for."""
    ended: bool = False
    """Whether the stage will record no more steps."""
    reached: Mapping[str, tuple[ItemScores, ItemScores]] = field(default_factory=dict)
    """By evaluation the scores of the stage's start and of its last checkpoint."""


@dataclass(frozen=True, slots=True)
class MetricReading:
    """What a rule reads of one metric, whether it finds something or not."""

    metric: str
    severity: Severity | None
    """None where all is well."""
    evidence: str
    """The template of the evidence."""
    figures: Mapping[str, str]
    value: float | None = None
    """The number that is held against the thresholds; None where there is no single one."""


def figure(metric: str, value: float) -> str:
    """A value as evidence writes it: shares in percent, others in four digits."""
    if metric.endswith("_share"):
        return f"{value:.1%}"
    return f"{value:.4g}" if abs(value) >= 1 else f"{value:.3f}"


def _texts(metric: str, **values: float | int | str) -> dict[str, str]:
    """The figures of evidence: numbers that are not whole as `figure` writes them."""
    texts = {k: figure(metric, v) if isinstance(v, float) else str(v) for k, v in values.items()}
    return {"metric": metric, **texts}


def _levels(rule: Rule, evidence: Evidence) -> Iterator[MetricReading]:
    for metric, values in _present(rule, evidence):
        recent = values[-WINDOW:]
        value = float(np.mean(recent))
        if math.isnan(value):
            continue
        severity = _severity(rule, value)
        figures = _texts(metric, value=value, steps=len(recent), limit=_limit(rule, severity))
        yield MetricReading(metric, severity, rule.kind, figures, value)


def _multiples(rule: Rule, evidence: Evidence) -> Iterator[MetricReading]:
    for metric, values in _present(rule, evidence):
        size = min(WINDOW, len(values) // 2)
        if not size:
            continue
        start, now = float(np.mean(values[:size])), float(np.mean(values[-size:]))
        if not start > 0 or not math.isfinite(now):
            continue
        ratio = now / start
        severity = _severity(rule, ratio)
        limit = f"{_limit(rule, severity):g}"
        more = {"ratio": f"{ratio:.2g}", "steps": size, "limit": limit}
        figures = _texts(metric, start=start, now=now, **more)
        yield MetricReading(metric, severity, rule.kind, figures, ratio)


def _slopes(rule: Rule, evidence: Evidence) -> Iterator[MetricReading]:
    flat, sign = rule.kind == "flat", -1 if rule.kind == "falling" else 1
    growing = rule.kind == "growing"
    for metric in rule.metrics:
        lines = [line for line in evidence.lines if metric in line][0 if growing else -LONG :]
        rise = trend([line["step"] for line in lines], [line[metric] for line in lines], LEVEL)
        if rise is None or rise.steps < (LONG if flat or growing else WINDOW):
            continue
        share = max(rise.start, ROUNDING) if growing else 1.0
        if flat:
            value = rise.interval.high * (rise.last - rise.first)
        else:
            value = _rounded(sign * (rise.end - rise.start)) / share
        shown = flat or (rise.rises if sign > 0 else rise.falls)
        severity = _severity(rule, value) if shown else None
        slope = {"slope": rise.slope, "low": rise.interval.low, "high": rise.interval.high}
        slopes = {name: f"{_rounded(each):+.3g}" for name, each in slope.items()}
        more = {"steps": rise.steps, "limit": _limit(rule, severity), **slopes}
        figures = _texts(metric, start=rise.start, now=rise.end, **more)
        template = "rising" if flat and severity is None else rule.kind
        yield MetricReading(metric, severity, template, figures, value)


def _rounded(value: float) -> float:
    """A change, where it is more than rounding leaves of a flat line."""
    return value if abs(value) > ROUNDING else 0.0


def _zero(rule: Rule, evidence: Evidence) -> Iterator[MetricReading]:
    for metric, values in _present(rule, evidence):
        recent = values[-WINDOW:]
        figures = _texts(metric, steps=len(recent))
        if all(value == 0 for value in recent):
            yield MetricReading(metric, "error", "zero", figures)
        elif finite := [value for value in recent if math.isfinite(value)]:
            now = _texts(metric, value=finite[-1])
            yield MetricReading(metric, None, "not_zero", {**figures, **now})


def _idle(rule: Rule, evidence: Evidence) -> Iterator[MetricReading]:
    """A part of an algorithm that is set and does nothing."""
    severity = "warning" if rule.error is None else "error"
    usual: Severity = "note" if rule.error is rule.warning is None else severity
    for metric in _metrics(rule, evidence):
        lines = [line for line in evidence.lines if line.get(metric) is not None]
        counted = [line for line in lines if not rule.where or (line.get(rule.where) or 0) > 0]
        recent = counted if rule.kind == "never" else counted[-IDLE:]
        occasion = bool(recent)
        values = values_of(recent if occasion else lines, metric)
        if not values or (len(values) < IDLE and not evidence.ended):
            continue
        idle = all(abs(value) <= rule.nothing for value in values)
        more = {"limit": rule.nothing, "where": rule.where, "value": max(values, key=abs)}
        figures = _texts(metric, steps=len(values), **more)
        if not idle:
            yield MetricReading(metric, None, "acted", figures)
        elif occasion:
            template = "idle_below" if rule.nothing else "idle"
            yield MetricReading(metric, usual, template, figures)
        else:
            yield MetricReading(metric, "note", "no_occasion", figures)


def _broken(rule: Rule, evidence: Evidence) -> Iterator[MetricReading]:
    for metric, values in _present(rule, evidence):
        broken = sum(not math.isfinite(value) for value in values)
        skipped = max(values_of(evidence.lines, "skipped_steps"), default=0.0)
        severity = None
        if broken or skipped:
            recent = any(not math.isfinite(value) for value in values[-WINDOW:])
            severity = "error" if recent else "warning"
        figures = _texts(metric, broken=broken, steps=len(values), skipped=f"{skipped:.0f}")
        yield MetricReading(metric, severity, "broken", figures)


def _budget(rule: Rule, evidence: Evidence) -> Iterator[MetricReading]:
    for each in evidence.spending:
        figures = _texts(each.metric, spent=float(each.spent), budget=float(each.budget))
        ahead = each.forecast
        if each.spent > each.budget or ahead is None:
            severity = "error" if each.spent > each.budget else None
            yield MetricReading(each.metric, severity, "spent", figures, each.spent / each.budget)
            continue
        ends = {"low": ahead.interval.low, "high": ahead.interval.high}
        more = {"at": ahead.at, "steps": ahead.steps}
        figures |= _texts(each.metric, forecast=ahead.value, **ends, **more)
        severity = "warning" if ahead.interval.low > each.budget else None
        value = ahead.interval.low / each.budget
        yield MetricReading(each.metric, severity, "will_spend", figures, value)


_compared = lru_cache(maxsize=16)(compare)
"""The same two scores are compared at every report of a run."""


def _dev(rule: Rule, evidence: Evidence) -> Iterator[MetricReading]:
    """The last dev scores are worse than the first, and the reward's slope is above 0."""
    (metric,) = rule.metrics
    lines = [line for line in evidence.lines if metric in line]
    slope = trend([line["step"] for line in lines], [line[metric] for line in lines])
    if len(evidence.dev) < 2 or slope is None:
        return
    comparison = _compared(evidence.dev[0][1], evidence.dev[-1][1])
    severity = "error" if slope.rises and comparison.verdict == "worse" else None
    scores = {"before": comparison.control_score, "after": comparison.score}
    texts = {name: f"{score:.3f}" for name, score in scores.items()}
    more = {"first": evidence.dev[0][0], "last": evidence.dev[-1][0]}
    figures = _texts(metric, start=slope.start, now=slope.end, **more, **texts)
    figures["p"] = f"{comparison.p_value:.2g}"
    yield MetricReading(metric, severity, "dev", figures)


def _first(rule: Rule, evidence: Evidence) -> Iterator[MetricReading]:
    for metric, values in _present(rule, evidence):
        if evidence.lines[0].get("step") == 1 and metric in evidence.lines[0]:
            severity = _severity(rule, values[0])
            figures = _texts(metric, value=values[0], limit=_limit(rule, severity))
            yield MetricReading(metric, severity, "first", figures, values[0])


def _turned(rule: Rule, evidence: Evidence) -> Iterator[MetricReading]:
    for metric in rule.metrics:
        lines = [line for line in evidence.lines if line.get(metric) is not None]
        lowest = min(lines, key=lambda line: line[metric], default=None)
        after = [line for line in lines if lowest and line["step"] >= lowest["step"]]
        slope = trend([line["step"] for line in after], [line[metric] for line in after])
        if slope is not None and lowest is not None:
            ends = {"lowest": float(lowest[metric]), "now": float(after[-1][metric])}
            figures = _texts(metric, step=lowest["step"], **ends)
            yield MetricReading(metric, "note" if slope.rises else None, "turned", figures)


def _peak(rule: Rule, evidence: Evidence) -> Iterator[MetricReading]:
    own = [look for look in evidence.dev if look[0]]
    if len(own) > 1:
        peak = max(own[:-1], key=lambda look: (look[1].mean, -look[0]))
        comparison = corrected_for_looks(_compared(peak[1], own[-1][1]), len(own) - 1)
        figures = {"peak": str(peak[0]), "last": str(own[-1][0]), **difference_figures(comparison)}
        yield MetricReading("", "note" if comparison.verdict == "worse" else None, "peak", figures)


def _start(rule: Rule, evidence: Evidence) -> Iterator[MetricReading]:
    compared = {}
    for name, pair in evidence.reached.items():
        if not set.isdisjoint(*map(_scored, pair)):
            compared[name] = _compared(*pair)
    adjusted = adjust_family(compared)
    better = any(each.verdict == "better" for each in adjusted.values())
    for name, each in adjusted.items():
        figures = {"metric": name, **difference_figures(each)}
        yield MetricReading(name, None if better else "note", "start", figures)


def _scored(scores: ItemScores) -> set[str]:
    kept = ~np.isnan(scores.item_means)
    return {item for item, keep in zip(scores.item_ids, kept, strict=True) if keep}


def difference_figures(comparison: Comparison) -> dict[str, str]:
    """A comparison as text, in points where scores run from 0 to 1."""
    scale = 100.0 if comparison.interval.share else 1.0
    ends = {
        "difference": comparison.difference,
        "low": comparison.interval.low,
        "high": comparison.interval.high,
    }
    texts = {name: f"{scale * value:+.1f}" for name, value in ends.items()}
    return {**texts, "items": str(comparison.items), "p": f"{comparison.adjusted_p:.2g}"}


CHECKS: Mapping[str, Callable[[Rule, Evidence], Iterator[MetricReading]]] = {
    **dict.fromkeys(("high", "low"), _levels),
    **dict.fromkeys(("grown", "shrunk"), _multiples),
    **dict.fromkeys(("rising", "falling", "flat", "growing"), _slopes),
    "zero": _zero,
    **dict.fromkeys(("idle", "never"), _idle),
    "broken": _broken,
    "budget": _budget,
    "dev": _dev,
    "first": _first,
    "turned": _turned,
    "peak": _peak,
    "start": _start,
}
"""How each kind of rule is checked."""


def _severity(rule: Rule, value: float) -> Severity | None:
    """The worst severity whose threshold is passed."""

    def beyond(limit: float) -> bool:
        if rule.side == "above":
            return value >= limit
        # A level of exactly the error's threshold counts, as 0 does.
        return value < limit or (rule.kind == "low" and value == limit == rule.error)

    if rule.error is not None and beyond(rule.error):
        return "error"
    if rule.warning is not None and beyond(rule.warning):
        return "warning"
    return "note" if rule.advise is not None and beyond(rule.advise) else None


def _limit(rule: Rule, severity: Severity | None) -> float:
    """The threshold that was passed, or the first that could be."""
    limits = (rule.warning, rule.advise, rule.error)
    limit = rule.error
    if severity != "error":
        limit = next(each for each in limits if each is not None)
    assert limit is not None
    return limit


def _present(rule: Rule, evidence: Evidence) -> Iterator[tuple[str, list[float]]]:
    for metric in _metrics(rule, evidence):
        values = values_of(evidence.lines, metric)
        if values:
            yield metric, values


def _metrics(rule: Rule, evidence: Evidence) -> Iterator[str]:
    for metric in rule.metrics:
        yield from evidence.parts.get(metric, (metric,))


def values_of(lines: Sequence[Line], metric: str) -> list[float]:
    """The recorded values of one metric; a recorded null is a number that was not finite."""
    present = [line[metric] for line in lines if metric in line]
    return [math.nan if value is None else float(value) for value in present]


Unread = Literal["too few steps", "not finite", "not recorded"]
Scored = Literal["met", "missed", "undecided", "pending", "open", "not recorded"]
State = Literal[Severity, "ok", Unread, "fired", "armed", Scored]
"""`open`: what a milestone without a step expects is not there yet."""


@dataclass(frozen=True, slots=True)
class RuleState:
    """The state of a condition on a recorded metric: a health rule, a guard or a milestone."""

    rule: str
    """Its name."""
    state: State
    metric: str
    """"" where the rule's metric is not recorded, or nothing can be read yet."""
    reading: MetricReading | None
    """None where nothing was read."""
    consequence: Literal["find", "stop", "expect"] = "find"
    """It makes a finding, stops the run, or is what people expect."""
    condition: tuple[str, Mapping[str, Any]] = ("", {})
    """Of guards and milestones: the template of the condition and its figures."""


@dataclass(frozen=True, slots=True)
class Health:
    """A stage as the rules see it."""

    states: tuple[RuleState, ...]
    """Of every rule, in the order of the register."""
    findings: tuple[Finding, ...]
    """Worst first; numbers that contradict each other (`identity`) are among them."""


def check_health(seen: Evidence) -> Health:
    """Apply the rules to the steps of one stage. Raises what `judge.paired.compare` raises."""
    kept, moved = [], False
    for line in map(derived, seen.lines):
        kept.append({**line, MOVED: float(moved)})
        moved |= line.get("grad_norm", 1.0) not in (0, None) and line.get("learning_rate", 1.0) != 0
    evidence = replace(seen, lines=kept)
    states: list[RuleState] = []
    findings: list[Finding] = []
    for name, rule in RULES.items():
        readings = list(CHECKS[rule.kind](rule, evidence))
        for each in readings:
            states.append(RuleState(name, each.severity or "ok", each.metric, each))
            if each.severity is not None:
                idle = rule.kind in ("idle", "never") and each.severity == "note"
                code = "no_occasion" if idle else name
                keys = {"template": each.evidence, "advice": _advice(rule, evidence.lines)}
                findings.append(Finding(each.severity, code=code, values={**each.figures, **keys}))
        if not readings:
            states.append(RuleState(name, _unread(rule, evidence), "", None))
    findings += filter(None, (contradicts(seen.lines) for contradicts in IDENTITY_RULES))
    return Health(tuple(states), tuple(worst_first(findings)))


def _unread(rule: Rule, evidence: Evidence) -> Unread:
    """Why a rule could read nothing."""
    values = [value for _, each in _present(rule, evidence) for value in each[-WINDOW:]]
    if not values or (rule.kind == "dev" and not evidence.dev):
        return "not recorded"
    return "too few steps" if all(map(math.isfinite, values)) else "not finite"


def _advice(rule: Rule, lines: Sequence[Line]) -> tuple[str, ...]:
    """The advice whose condition holds: the recent mean of its metric lies on the named side."""
    held = {}
    for each in rule.advice:
        recent = values_of(lines, each.metric)[-WINDOW:]
        value = float(np.mean(recent)) if recent else math.nan
        over = each.above is not None and value > each.above
        under = each.below is not None and value < each.below
        if not each.metric or over or under:
            held[each.key] = None
    return tuple(held)
