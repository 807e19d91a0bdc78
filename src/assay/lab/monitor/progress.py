"""Computes the progress of a run between two steps of a stage from its records.

Works on a live run, because everything is read from the disk. Statistics are in `judge`, words and
drawings in `pages`. What was reported before is known by the files of the reports.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.errors import Finding, InputError, nearest
from assay.experiment.experiment import Experiment
from assay.judge.health_checks import RuleState, Spending
from assay.judge.intervals import Estimate, Interval, change
from assay.judge.trends import FORETELLING, Forecast, Trend, forecast_total, trend
from assay.lab.monitor.fact_changes import FactChanges, fact_changes
from assay.lab.monitor.guards import estimate, guard_states, milestone_states
from assay.lab.monitor.stage_health import planned_steps, spending, stage_health
from assay.runs.history import History
from assay.runs.run_directory import RunDirectory
from assay.runs.run_files import Selection
from assay.runs.status import Status, read_status


def why_due(experiment: Experiment, stage: str, step: int, steps: int) -> str:
    """Why a report is due after `step` of a stage's `steps`; "" where none is."""
    every = experiment.report_every
    if any(m.stage == stage and m.step == step for m in experiment.milestone.values()):
        return "milestone"
    if every and step % every == 0:
        return "steps"
    return "end" if step == steps and (every or experiment.milestone) else ""


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
HIDDEN_BEGINNINGS = ("self_check_",)
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
    reported: int | None
    """The step of the report that `first` comes from; None where it was asked for, or is the first
    step."""
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
        if not any(line["step"] == report for line in lines):
            report = None
        start = min(lines[0]["step"], last) if report is None else report
        return _progress(history, stage, (start, last), report)
    first = _recorded(run, stage, lines, first, first)
    if first >= last:
        raise InputError(f"step {first} is not before step {last}", fix="give an earlier --from")
    return _progress(history, stage, (first, last), None)


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


def _progress(history: History, stage: str, span: tuple[int, int], report: int | None) -> Progress:
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
        reported=report,
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
    kept = [n for n in names if n not in HIDDEN and not n.startswith(HIDDEN_BEGINNINGS)]
    kept = [n for n in kept if not n.endswith("_trials")]
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
