"""Computes the progress of a run between two steps of a stage from its records: metrics,
conditions, and what samples and calls say (form, errors, operators, costs).

The completions up to the first step are compared with those after it. Facts of rewards are taken by
their names; a task says how they are read (`FactReading`), and what it does not note is left
out. Each table's changes are corrected for its rows.

Works on a live run, because everything is read from the disk. Statistics are in `judge`, words and
drawings in `pages`. What was reported before is known by the files of the reports.
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
from assay.errors import Finding, InputError, nearest
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
from assay.judge.health_checks import RuleState, Spending
from assay.judge.intervals import Estimate, Interval, change, difference_interval, mean_interval
from assay.judge.selection import FORETELLING, Forecast, Trend, forecast_total, trend
from assay.judge.verdict import ALPHA
from assay.lab.monitor.guards import estimate, guard_states, milestone_states
from assay.lab.monitor.run_costs import known, sent
from assay.lab.monitor.stage_health import planned_steps, spending, stage_health
from assay.runs.cost_ledger import LedgerCall
from assay.runs.history import History, Sample, samples_in
from assay.runs.run_directory import RunDirectory, Status, read_status
from assay.runs.run_files import Selection
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


def report_file(run: RunDirectory, stage: str, step: int) -> Path:
    """The Markdown file of the report that was made after a step."""
    return run.path / "reports" / stage / f"step-{step:06d}.md"


Lines = Sequence[Mapping[str, Any]]

FIRST = ("reward_mean", "signal_share", "nll", "validation_loss", "grad_norm", "entropy", "kl")
FIRST += ("own_divergence", "divergence", "teacher_agreement", "length_mean")
"""Metrics that lead the table; others follow in the order in which steps record them."""
HIDDEN = frozenset(
    {
        *("stage", "step", "seconds", "rows", "groups", "groups_dropped", "sampled_batches"),
        *("completions", "prompt_tokens", "completion_tokens", "tokens", "rollout_seconds"),
        *("update_seconds", "peak_memory_mb", "learning_rate", "skipped_steps", "tau"),
        "cpu_seconds",
        "host_memory_mb",
        *("reward_std", "clipped_share"),
    }
)
"""Sizes and settings of a step, which say nothing about progress."""
SIZES = re.compile(r"^self_check_|_trials$")
COST = "cost"
"""Ends the metrics of what helper models cost."""
SPARSE = frozenset({"validation_loss"})
"""Metrics that few steps record; in between, the last value holds."""


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One metric at two steps, and between them."""

    metric: str
    before: Estimate | None
    """None where the step has not the metric, or there is no earlier step."""
    after: Estimate | None
    change: Interval | None
    """Of after - before; None where a step says nothing about its error."""
    trend: Trend | None

    @property
    def moved(self) -> bool:
        """Whether the change, or the trend, differs from zero significantly."""
        apart = self.change is not None and (self.change.low > 0 or self.change.high < 0)
        return apart or (self.trend is not None and (self.trend.rises or self.trend.falls))


@dataclass(frozen=True)
class Progress:
    """A stage of a run between two of its steps."""

    run: RunDirectory
    experiment: Experiment
    status: Status
    stage: str
    first: int
    last: int
    planned: int | None
    rows: tuple[MetricRow, ...]
    findings: tuple[Finding, ...]
    """As of `last`."""
    new: frozenset[str]
    """Rules that find something at `last` and did not at `first`."""
    gone: frozenset[str]
    """Rules that find something at `first` and not at `last`."""
    forecasts: Mapping[str, Forecast]
    """By metric: totals at the end of the stage."""
    spending: tuple[Spending, ...]
    checkpoints: tuple[int, ...]
    """Made between the two steps."""
    selection: Selection | None
    states: tuple[RuleState, ...]
    """Of every condition, as of `last`: health rules, milestones, guards."""
    facts: FactChanges | None
    """None where no fact, call or cost is recorded."""


def progress(
    run: RunDirectory, stage: str | None = None, first: int | None = None, last: int | None = None
) -> Progress | None:
    """The progress of a stage, by default the last that has started; None if no step is recorded.

    Covers by default the steps from the last report, or else the first step, to the last step.
    Raises InputError.
    """
    history = History(run)
    if stage is None:
        if history.last_stage is None:
            if first is not None or last is not None:
                raise InputError(f"{run} has recorded no step yet")
            return None
        stage = history.last_stage
    lines = _lines(history, stage)
    last = _recorded(run, stage, lines, last, lines[-1]["step"])
    if first is None:
        files = report_file(run, stage, 0).parent.glob("step-*.md")
        steps = [int(file.stem.removeprefix("step-")) for file in files]
        report = max((step for step in steps if step < last), default=None)
        known = any(line["step"] == report for line in lines)
        start = report if report is not None and known else min(lines[0]["step"], last)
        return _progress(history, stage, (start, last))
    first = _recorded(run, stage, lines, first, first)
    if first >= last:
        raise InputError(f"step {first} is not before step {last}", fix="give an earlier --from")
    return _progress(history, stage, (first, last))


def step_before(run: RunDirectory, stage: str | None, steps: int, generations: int) -> int:
    """The step before a stage's last so many steps, or before its last whole steps with at least so
    many generations; the first one where there are no more. Raises InputError."""
    history = History(run)
    if stage is None and (stage := history.last_stage) is None:
        raise InputError(f"{run} has recorded no step yet")
    lines = [*_lines(history, stage)]
    while len(lines) > 1 and max(steps, generations) > 0:
        steps, generations = steps - 1, generations - lines.pop().get("completions", 0)
    return lines[-1]["step"]


def _progress(history: History, stage: str, span: tuple[int, int]) -> Progress:
    experiment, (first, last), lines = history.experiment, span, history.lines(stage, span[1])
    then = {each.code for each in stage_health(history, stage, first).findings}
    health = stage_health(history, stage, last)
    now = {each.code for each in health.findings}
    status = read_status(history.run.path)
    expected = milestone_states(history, (stage, last))
    guarded = guard_states(history, stage, lines, status.guard.split())
    planned = planned_steps(history, stage)
    costs = tuple(spending(history, stage, last))
    ahead = costs if stage == history.last_stage else ()
    return Progress(
        run=history.run,
        experiment=experiment,
        status=status,
        stage=stage,
        first=first,
        last=last,
        planned=planned,
        rows=tuple(_rows(history, lines, span)),
        findings=health.findings,
        new=frozenset(now - then),
        gone=frozenset(then - now),
        forecasts=_forecasts(lines, planned, ahead),
        spending=costs,
        checkpoints=tuple(s for s in history.checkpoints(stage) if first < s <= last),
        selection=history.selection(stage),
        states=(*health.states, *expected, *guarded),
        facts=fact_changes(history, lines, first),
    )


def _rows(history: History, lines: Lines, span: tuple[int, int]) -> list[MetricRow]:
    between = [line for line in lines if span[0] <= line["step"] <= span[1]]
    spec = history.experiment.stage[lines[0]["stage"]]
    rows = []
    for metric in _shown(between):
        ends = [next(x for x in lines if x["step"] == step) for step in span]
        if metric in SPARSE:  # it keeps its last value
            known = [[x for x in lines if x["step"] <= s and metric in x][-1:] for s in span]
            ends = [(own or [end])[0] for own, end in zip(known, ends, strict=True)]
        first, last = ends
        before = estimate(history.run, spec, first, metric) if first is not last else None
        after = estimate(history.run, spec, last, metric)
        shown = [line for line in between if metric in line]
        line = trend([x["step"] for x in shown], [x[metric] for x in shown])
        both = change(before, after) if before and after else None
        rows.append(MetricRow(metric, before, after, both, line))
    return rows


def _shown(lines: Lines) -> list[str]:
    """The metrics of a table, those of FIRST in front."""
    names = dict.fromkeys(name for line in lines for name in line)
    kept = [n for n in names if n not in HIDDEN and not SIZES.search(n)]
    return [n for n in FIRST if n in kept] + [n for n in kept if n not in FIRST]


def _forecasts(lines: Lines, planned: int | None, costs: Sequence[Spending]) -> dict[str, Forecast]:
    """Forecasts for the end of the stage; empty once it has ended, and before FORETELLING steps."""
    if planned is None or lines[-1]["step"] >= planned or len(lines) < FORETELLING:
        return {}
    forecasts = {each.metric: each.forecast for each in costs}
    remaining = planned - lines[-1]["step"]
    if None not in (took := [line["seconds"] for line in lines]):  # as other trainers may leave it
        forecasts.setdefault("seconds", forecast_total(took, remaining, planned))
    for metric in (name for name in lines[-1] if name.rpartition("/")[2] == COST):
        # Where a step's cost is not known, neither is the total.
        if metric not in forecasts and all(line.get(metric) is not None for line in lines):
            total = [line[metric] for line in lines]
            forecasts[metric] = forecast_total(total, remaining, planned)
    return {metric: each for metric, each in forecasts.items() if each is not None}


def _lines(history: History, stage: str) -> Lines:
    run, stages = history.run, history.experiment.stage
    if stage not in stages:
        raise InputError(f"{run} has no stage {stage!r}", fix=nearest(stage, stages))
    if stage not in history.metrics:
        fix = "stages that have: " + (", ".join(history.metrics) or "none has yet")
        raise InputError(f"{run}: {stage!r} has recorded no step", fix=fix)
    return history.metrics[stage]


def _recorded(run: RunDirectory, stage: str, lines: Lines, step: int | None, default: int) -> int:
    if step is None:
        return default
    if not any(line["step"] == step for line in lines):
        fix = f"it has steps {lines[0]['step']} to {lines[-1]['step']}"
        raise InputError(f"{run}: {stage!r} has no step {step}", fix=fix)
    return step
