"""What the samples and calls of a stage say between two steps: form, errors, operators, costs.

The completions up to the first step are compared with those after it. Facts of rewards are taken by
their names; a task says how they are read (`FactReading`), and what it does not note is left
out. Each table's changes are corrected for its rows. Adds no words.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from assay.data.files import kept
from assay.experiment.experiment import Experiment
from assay.experiment.price_table import units
from assay.judge.binomial import (
    Counts,
    Trials,
    ValueChange,
    change_of_counts,
    change_of_trials,
    direction_of,
)
from assay.judge.intervals import Estimate, difference_interval, mean_interval
from assay.judge.verdict import ALPHA
from assay.lab.monitor.run_costs import known, sent
from assay.runs.cost_ledger import LedgerCall
from assay.runs.history import History, Sample, samples_in
from assay.tasks.reward_metrics import FactReading, marked, plain_facts
from assay.tasks.task import task

EQUAL = 1e-9
"""Rewards closer to the mean of their group than this are neither high nor low."""
STATUS = re.compile(r"HTTP \d{3}")
REASONS = {
    "deadline": "timeout",
    "connection": "connection",
    "garbled answer": "unreadable answer",
    "unusable answer": "unreadable answer",
}
Steps = tuple[int, int]


@dataclass(frozen=True, slots=True)
class SampleFacts:
    """What a completion's reward notes."""

    row_id: str
    group: str
    """Its row and visit."""
    reward: float | None
    error: str | None
    """The kind of its failure; "" where it has none, None where the task notes no errors."""
    form: bool | None
    operators: tuple[str, ...] | None
    fallback: bool | None


Samples = Sequence[SampleFacts]


@kept(4096)
def _facts(file: Path) -> tuple[SampleFacts, ...]:
    return tuple(map(_noted, samples_in(file)))


def _noted(sample: Sample) -> SampleFacts:
    facts = plain_facts(sample.facts)
    operators, fallback, error = facts.get("operators"), facts.get("fallback"), facts.get("error")
    called = None if operators is None else str(operators).split()
    return SampleFacts(
        row_id=sample.row,
        group=f"{sample.row}#{sample.visit}@{sample.step}",
        reward=sample.reward,
        error=None if error is None else str(error),
        form=marked(sample.judgement, "format"),
        operators=None if called is None else tuple(each.rpartition(":")[0] for each in called),
        fallback=None if fallback is None else fallback > 0,
    )


@dataclass(frozen=True)
class FactRow:
    """One kind of thing before and after: a share of counts, else a mean."""

    name: str
    change: ValueChange
    before: Counts | None = None
    """None of a mean."""
    after: Counts | None = None
    kinds: tuple[str, ...] = ()
    """The kinds of errors of a family."""
    difference: Estimate | None = None
    """Share among high minus share among low rewards, in the mean of groups, before being low."""


@dataclass(frozen=True)
class FactTable:
    """Things of one sort."""

    name: str
    rows: tuple[FactRow, ...]


@dataclass(frozen=True)
class FactChanges:
    """What the samples and calls of a stage say between two steps."""

    before: Steps
    """First and last step of the completions before; (0, 0) for none."""
    after: Steps
    completions: tuple[int, int]
    prompts: tuple[int, int]
    tables: tuple[FactTable, ...]
    """Without those that have no rows."""
    unknown_cost: bool
    """Whether what a call cost is not known."""

    def rows(self, table: str) -> tuple[FactRow, ...]:
        """The rows of a table; none where it is not there."""
        return next((each.rows for each in self.tables if each.name == table), ())


def fact_changes(
    history: History, lines: Sequence[Mapping[str, Any]], first: int
) -> FactChanges | None:
    """What a stage's steps say, of which `lines` are the metrics; those up to `first` are before.
    None where no fact, call or cost is recorded. Raises DamagedFile, LedgerUnusable."""
    stage, there = lines[0]["stage"], set(history.sampled(lines[0]["stage"]))
    every = [line["step"] for line in lines]
    steps = [s for s in every if s <= first], [s for s in every if s > first]
    sampled = [[step for step in part if step in there] for part in steps]
    before, after = (
        [f for step in part for f in _facts(history.run.samples(stage, step))] for part in sampled
    )
    tables = _sample_tables(_Split(before, after), fact_reading(history.experiment))
    calls = [call for call in history.calls if call.stage == stage]
    split = [[c for c in calls if c.step in set(part)] for part in steps]
    trials = [sum(map(sent, part)) for part in split]
    seen = [Counter(failure_type(c.why) for c in p if c.status == "failed") for p in split]
    names = sorted(seen[0] | seen[1], key=lambda name: (-seen[0][name] - seen[1][name], name))
    rows = []
    for name in names:
        old, new = (Counts(each[name], size) for each, size in zip(seen, trials, strict=True))
        rows.append(FactRow(name, change_of_counts(old, new, family=len(names)), old, new))
    tables.append(FactTable("api_errors", tuple(rows)))
    unknown_cost = not all(map(known, calls))
    if not unknown_cost:
        tables.append(FactTable("costs", _costs(split, steps)))
    tables = [each for each in tables if each.rows]
    if not tables and not unknown_cost:
        return None
    return FactChanges(
        before=_ends(sampled[0]),
        after=_ends(sampled[1]),
        completions=(len(before), len(after)),
        prompts=(len({s.row_id for s in before}), len({s.row_id for s in after})),
        tables=tuple(tables),
        unknown_cost=unknown_cost,
    )


def fact_reading(experiment: Experiment) -> FactReading | None:
    """How the task of the run reads its facts. A task of a user's file is not run for a report."""
    return None if ":" in experiment.task else getattr(task(experiment.task), "fact_reading", None)


@dataclass(frozen=True)
class _Split:
    """Completions before and after."""

    before: Samples
    after: Samples

    def among(self, holds: Callable[[SampleFacts], bool]) -> "_Split":
        """The completions that hold."""
        return _Split(*([each for each in p if holds(each)] for p in (self.before, self.after)))

    @property
    def every(self) -> Samples:
        """All of them."""
        return [*self.before, *self.after]

    def rows(self, names: Callable[[SampleFacts], tuple[str, ...] | None]) -> tuple[FactRow, ...]:
        """A row for each name, most frequent first, among the completions that have names."""
        split = self.among(lambda sample: names(sample) is not None)
        seen = Counter(name for sample in split.every for name in set(names(sample) or ()))
        order = sorted(seen, key=lambda name: (-seen[name], name))
        return tuple(split.row(n, lambda s, n=n: n in (names(s) or ()), len(order)) for n in order)

    def row(self, name: str, holds: Callable[[SampleFacts], bool], family: int = 1) -> FactRow:
        """The completions for which `holds`, one of `family` comparisons."""
        ends = [trials_of(part, lambda s: float(holds(s))) for part in (self.before, self.after)]
        counts = [Counts(round(sum(each.values)), len(each.values)) for each in ends]
        change = change_of_trials(ends[0], ends[1], family=family)
        return FactRow(name, change, counts[0], counts[1])


def trials_of(samples: Iterable[Any], of: Callable[[Any], float | None]) -> Trials:
    """What samples or groups add to a mean, with their rows; those that add nothing left out."""
    values = [(value, each.row_id) for each in samples if (value := of(each)) is not None]
    return Trials([value for value, _ in values], [row for _, row in values])


def _sample_tables(split: _Split, reading: FactReading | None) -> list[FactTable]:
    marks = []
    for name in ("form", "fallback"):
        of = split.among(lambda sample, name=name: getattr(sample, name) is not None)
        if of.every:
            marks.append(of.row(name, lambda sample, name=name: bool(getattr(sample, name))))
    return [
        FactTable("form", tuple(marks)),
        FactTable("errors", _errors(split.among(lambda each: each.error is not None), reading)),
        FactTable("operators", split.rows(lambda sample: sample.operators)),
        FactTable("by_reward", operators_by_reward(split.every)),
    ]


def operators_by_reward(samples: Samples) -> tuple[FactRow, ...]:
    """The operators of completions above and below the mean reward of their group, so that an easy
    prompt does not pass for a good choice; the most called first."""
    groups: defaultdict[str, list[tuple[SampleFacts, float]]] = defaultdict(list)
    for each in samples:
        if each.reward is not None and each.operators is not None:
            groups[each.group].append((each, each.reward))
    sides: list[tuple[list[SampleFacts], list[SampleFacts]]] = []
    for members in groups.values():
        mean = fmean(reward for _, reward in members)
        high = [each for each, reward in members if reward > mean + EQUAL]
        low = [each for each, reward in members if reward < mean - EQUAL]
        if high and low:
            sides.append((high, low))
    every = [each for pair in sides for side in pair for each in side]
    called = Counter(name for each in every for name in each.operators or ())
    rows, level = tuple(high[0].row_id for high, _ in sides), 1 - ALPHA / max(len(called), 1)
    lines = []
    for name in sorted(called, key=lambda name: (-called[name], name)):
        high, low = (
            [[name in (each.operators or ()) for each in pair[side]] for pair in sides]
            for side in (0, 1)
        )
        values = np.array([fmean(a) - fmean(b) for a, b in zip(high, low, strict=True)])
        interval = mean_interval(values, rows, (-1.0, 1.0), level)
        difference = Estimate(float(values.mean()), interval, len(values), len(set(rows)))
        counts = [Counts(sum(map(sum, each)), sum(map(len, each))) for each in (low, high)]
        change = ValueChange(None, None, direction=direction_of(interval))
        lines.append(FactRow(name, change, counts[0], counts[1], difference=difference))
    return tuple(lines)


def _errors(split: _Split, reading: FactReading | None) -> tuple[FactRow, ...]:
    """Errors by family in the task's order; without families, each kind."""
    if reading is None:
        return split.rows(lambda s: (s.error,) if s.error else ())
    kinds: defaultdict[str, list[str]] = defaultdict(list)
    for kind in sorted({each.error for each in split.every if each.error}):
        kinds[reading.family_of(kind)].append(kind)
    order = [*reading.families, *(f for f in kinds if f not in reading.families)]
    rows = []
    for name in (name for name in order if name in kinds):
        row = split.row(name, lambda s, own=kinds[name]: s.error in own, len(kinds))
        rows.append(replace(row, kinds=tuple(kinds[name])))
    return tuple(rows)


def failure_type(why: str) -> str:
    """The type of a failed call, from its reason: "HTTP 429", "timeout", "connection", ..."""
    status = STATUS.search(why)
    if status is not None:
        return status.group()
    return next((name for word, name in REASONS.items() if word in why), "other")


def _costs(
    split: Sequence[Sequence[LedgerCall]], steps: Sequence[Sequence[int]]
) -> tuple[FactRow, ...]:
    """What a step, a completion of a problem and a call cost."""
    parts, rows = [_of_ledger(*each) for each in zip(split, steps, strict=True)], []
    for per in parts[0] if any(split) else ():
        before, after = (part[per] for part in parts)
        # A scale without a width has no interval; costs of 0 are known exactly.
        bounds = (0.0, max((*before.values, *after.values), default=0.0) or 1e-9)
        rows.append(FactRow(per, change_of_trials(before, after, bounds, 3, difference_interval)))
    return tuple(rows)


def _of_ledger(calls: Sequence[LedgerCall], steps: Sequence[int]) -> Mapping[str, Trials]:
    by_step: Counter[int] = Counter(dict.fromkeys(steps, 0))
    by_problem: defaultdict[tuple[str, int, str], int] = defaultdict(int)
    for call in calls:
        by_step[call.step] += call.cost or 0
        if call.completion:
            by_problem[call.problem, call.step, call.completion] += call.cost or 0
    single = [(units(call.cost or 0), call.problem) for call in calls if sent(call)]
    return {
        "step": Trials([units(c) for c in by_step.values()], [str(step) for step in by_step]),
        "problem": Trials([units(c) for c in by_problem.values()], [key[0] for key in by_problem]),
        "call": Trials([cost for cost, _ in single], [problem for _, problem in single]),
    }


def _ends(steps: Sequence[int]) -> Steps:
    return (steps[0], steps[-1]) if steps else (0, 0)
