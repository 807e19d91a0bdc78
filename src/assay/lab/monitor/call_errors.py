"""Errors of calls by type, what they did to the completions that they hit, and what calls cost.

Two things are called an API error: a helper model's call without an answer (the cost ledger has
them), and a program's use of what the interface does not have (its reward notes it). Costs are
those of the ledger; without one, those that rewards noted. Adds no words.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from assay.experiment.price_table import units
from assay.judge.health_checks import Spending
from assay.judge.intervals import Interval, difference_interval
from assay.judge.share_changes import (
    Change,
    Counts,
    Direction,
    Trials,
    change_of_counts,
    change_of_trials,
    direction_of,
)
from assay.judge.trends import Forecast
from assay.lab.monitor.fact_changes import counts_of, trials_of
from assay.lab.monitor.run_costs import known, sent
from assay.lab.monitor.sample_facts import SampleFacts
from assay.runs.cost_ledger import LedgerCall
from assay.runs.history import History
from assay.runs.records import RIGHT, WRONG
from assay.tasks.fact_reading import FactReading

Source = Literal["helper", "program"]
Samples = Sequence[SampleFacts]
STATUS = re.compile(r"HTTP \d{3}")
REASONS = {
    "deadline": "timeout",
    "connection": "connection",
    "garbled answer": "unreadable answer",
    "unusable answer": "unreadable answer",
}
COST = "cost"
"""Ends the metrics of what helper models cost."""


@dataclass(frozen=True)
class CallError:
    """One type of failure, among the calls of helper models or the completions."""

    source: Source
    name: str
    before: Counts
    after: Counts
    change: Change


@dataclass(frozen=True)
class Effect:
    """Completions that errors of one source hit, against the others of the stage so far."""

    source: Source
    hit: int
    others: int
    unanswered: Change
    """The share that gave no answer: of the others, of those hit, and the difference."""
    reward: Change
    """Their mean reward, abstentions left out."""


@dataclass(frozen=True)
class CostRow:
    """What a step, a completion of a problem or a call cost in the mean, before and after."""

    per: Literal["step", "problem", "call"]
    change: Change


@dataclass(frozen=True)
class Saving:
    """What is left of a plan that was written down before the run, if the forecast holds."""

    metric: str
    plan: float
    forecast: Forecast
    value: float
    interval: Interval

    @property
    def direction(self) -> Direction:
        """`rise`: a saving; `fall`: the plan is exceeded; `none`: neither is shown."""
        return direction_of(self.interval)


@dataclass(frozen=True)
class CallReport:
    """Errors and costs of the calls of a stage between two steps."""

    errors: tuple[CallError, ...]
    effects: tuple[Effect, ...]
    costs: tuple[CostRow, ...]
    noted: bool
    """Whether the costs are what rewards noted, for want of a ledger."""
    unknown_cost: bool
    """Whether the cost of a call is not known."""


def call_report(
    history: History,
    stage: str,
    samples: tuple[Samples, Samples],
    steps: tuple[Sequence[int], Sequence[int]],
    reading: FactReading | None,
) -> CallReport | None:
    """Errors and costs of a stage's calls, for the completions and the steps before and after; None
    where nothing is recorded. Raises LedgerUnusable."""
    calls = [call for call in history.calls if call.stage == stage]
    split = tuple([c for c in calls if c.step in set(part)] for part in steps)
    errors = [*_helper_errors(*split), *_program_errors(*samples, reading)]
    every = [*samples[0], *samples[1]]
    failed = {f"{call.stage}/{call.completion}" for call in calls if call.status == "failed"}
    effects = [*_effects(every, errors, failed, reading)]
    costs, unknown = _costs(split, samples, steps)
    if not errors and not costs and not unknown:
        return None
    return CallReport(tuple(errors), tuple(effects), costs, not calls, unknown)


def failure_type(why: str) -> str:
    """The type of a failed call, from its reason: "HTTP 429", "timeout", "connection", ..."""
    status = STATUS.search(why)
    if status is not None:
        return status.group()
    return next((name for word, name in REASONS.items() if word in why), "other")


def _helper_errors(before: Sequence[LedgerCall], after: Sequence[LedgerCall]) -> list[CallError]:
    trials = [sum(map(sent, part)) for part in (before, after)]
    seen = [
        Counter(failure_type(c.why) for c in p if c.status == "failed") for p in (before, after)
    ]
    names = sorted(seen[0] | seen[1], key=lambda name: (-seen[0][name] - seen[1][name], name))
    found = []
    for name in names:
        old, new = (Counts(each[name], size) for each, size in zip(seen, trials, strict=True))
        change = change_of_counts(old, new, family=len(names))
        found.append(CallError("helper", name, old, new, change))
    return found


def _program_errors(
    before: Samples, after: Samples, reading: FactReading | None
) -> list[CallError]:
    if reading is None:
        return []
    misnamed = {
        s.error: None for s in (*before, *after) if s.error and is_misnamed(s.error, reading)
    }
    found = []
    for name in sorted(misnamed):
        old, new = (
            trials_of(part, lambda s, name=name: float(s.error == name)) for part in (before, after)
        )
        change = change_of_trials(old, new, family=len(misnamed))
        found.append(CallError("program", name, counts_of(old), counts_of(new), change))
    return found


def is_misnamed(error: str | None, reading: FactReading | None) -> bool:
    """Whether an error is of a family that uses what the interface does not have."""
    return bool(error and reading and reading.family_of(error) in reading.misnamed)


def _effects(
    samples: Samples, errors: Sequence[CallError], failed: set[str], reading: FactReading | None
) -> list[Effect]:
    found = []
    sources: list[Source] = ["helper", "program"]
    for source in sources:
        hit, others = [], []
        if not any(error.source == source for error in errors):
            continue
        for each in samples:
            by_program = source == "program" and is_misnamed(each.error, reading)
            by_helper = source == "helper" and each.sample_id in failed
            (hit if by_program or by_helper else others).append(each)
        if hit and others:
            found.append(_effect(source, hit, others))
    return found


def _effect(source: Source, hit: Samples, others: Samples) -> Effect:
    calm, broken = (
        trials_of(part, lambda s: float(s.outcome not in (RIGHT, WRONG))) for part in (others, hit)
    )
    before, after = (trials_of(part, lambda s: s.reward) for part in (others, hit))
    values = [*before.values, *after.values]
    bounds = min([0.0, *values]), max([1.0, *values])
    reward = change_of_trials(before, after, bounds, around=difference_interval)
    return Effect(source, len(hit), len(others), change_of_trials(calm, broken), reward)


def _costs(
    split: Sequence[Sequence[LedgerCall]],
    samples: tuple[Samples, Samples],
    steps: tuple[Sequence[int], Sequence[int]],
) -> tuple[tuple[CostRow, ...], bool]:
    """The rows of costs, and whether a cost is not known."""
    if any(split):
        if not all(known(call) for part in split for call in part):
            return (), True
        parts = [_of_ledger(*each) for each in zip(split, steps, strict=True)]
    else:
        if not any(each.cost is not None for part in samples for each in part):
            return (), False
        if any(each.cost is None for part in samples for each in part):
            return (), True
        parts = [_of_facts(part) for part in samples]
    rows = []
    for per in ("step", "problem", "call"):
        ends = [part.get(per, Trials([], [])) for part in parts]
        if any(trials.values for trials in ends):
            rows.append(CostRow(per, _amounts(ends[0], ends[1])))
    return tuple(rows), False


def _amounts(before: Trials, after: Trials) -> Change:
    most = max((*before.values, *after.values))
    # A scale without a width has no interval; costs of 0 are known exactly.
    bounds = (0.0, most or 1e-9)
    return change_of_trials(before, after, bounds, family=3, around=difference_interval)


def _of_ledger(calls: Sequence[LedgerCall], steps: Sequence[int]) -> Mapping[str, Trials]:
    by_step: Counter[int] = Counter(dict.fromkeys(steps, 0))
    by_problem: defaultdict[tuple[str, int, str], int] = defaultdict(int)
    single = []
    for call in calls:
        by_step[call.step] += call.cost or 0
        if call.completion:
            by_problem[call.problem, call.step, call.completion] += call.cost or 0
        if sent(call):
            single.append((units(call.cost or 0), call.problem))
    return {
        "step": Trials([units(c) for c in by_step.values()], [str(step) for step in by_step]),
        "problem": Trials([units(c) for c in by_problem.values()], [key[0] for key in by_problem]),
        "call": Trials([cost for cost, _ in single], [problem for _, problem in single]),
    }


def _of_facts(samples: Samples) -> Mapping[str, Trials]:
    by_step: defaultdict[int, float] = defaultdict(float)
    for each in samples:
        by_step[each.step] += each.cost or 0.0
    return {
        "step": Trials(list(by_step.values()), [str(step) for step in by_step]),
        "problem": trials_of(samples, lambda s: s.cost or 0.0),
    }


def savings(spending: Sequence[Spending]) -> tuple[Saving, ...]:
    """What is left of each plan of a cost that is forecast, with the forecast's interval."""
    found = []
    for each in spending:
        ahead = each.forecast
        if ahead is None or each.metric.rpartition("/")[2] != COST:
            continue
        low, high = each.budget - ahead.interval.high, each.budget - ahead.interval.low
        interval = Interval(low, high, ahead.interval.method, ahead.interval.level, share=False)
        found.append(Saving(each.metric, each.budget, ahead, each.budget - ahead.value, interval))
    return tuple(found)
