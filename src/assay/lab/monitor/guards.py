"""Guards and milestones: conditions on metrics that stop a run, and those that are expected of it.

A guard reads the recorded steps of a stage, so that a resumed run decides as an unbroken one does.
Continuing past a guard must be asked for and is recorded in `guards.json`; the guard then counts
its steps anew. The recorder stops the stage, the runner sets the status.

A milestone is met if the value's interval lies on the expected side, missed if it lies on the
other, undecided if it contains the bound, and pending before its step. One on a
verdict is met if the judge gives that verdict from the records of both checkpoints. Shares and
rewards are estimated from the step's samples, with all completions of a prompt as one cluster.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from assay.data.files import kept
from assay.errors import RunFailure
from assay.experiment.checkpoint_reference import (
    CheckpointReference,
    checkpoint_name,
    parse_checkpoint,
)
from assay.experiment.experiment import Experiment
from assay.experiment.stage_tables import GrpoStage, SamplingStage, StageSpec
from assay.experiment.tables import GuardSpec, MilestoneSpec
from assay.judge.health_checks import (
    MetricReading,
    RuleState,
    Scored,
    State,
    difference_figures,
    figure,
)
from assay.judge.health_rules import RULES, Side
from assay.judge.intervals import Estimate, Interval, counted, grouped
from assay.judge.paired import compare
from assay.judge.verdict import Comparison
from assay.runs.history import History, Sample, is_there, samples_in
from assay.runs.run_directory import RunDirectory
from assay.runs.run_files import read_json, write_json
from assay.tasks.reward_metrics import STANDARD, marked

PASSED = "guards.json"
BONUS_GUARD = "max_steps_without_bonus"
BONUS_RULE = RULES["no_bonus"]
"""What the setting of a grpo stage that BONUS_GUARD is named after stops a run for."""


def stopped(fired: Mapping[str, str]) -> RunFailure:
    """Guards of the experiment stopped the run, by name why; the checkpoint of that step is
    kept."""
    error = RunFailure("; ".join(fired.values()))
    error.guards = tuple(fired)
    return error


def condition(spec: GuardSpec | MilestoneSpec) -> tuple[Side, float]:
    """`above` or `below`, and the bound."""
    if spec.above is not None:
        return "above", spec.above
    assert spec.below is not None, "the spec was checked"
    return "below", spec.below


def met(spec: GuardSpec, value: float | None) -> bool:
    """Whether a value meets the condition; one that is not finite always does."""
    if value is None or not math.isfinite(value):
        return True
    side, bound = condition(spec)
    return value > bound if side == "above" else value < bound


def firing(
    name: str, spec: GuardSpec, stage: str, lines: Sequence[Mapping[str, Any]], after: int = 0
) -> str:
    """Why the guard fires at the last of a stage's lines; "" where it does not. Steps up to `after`
    do not count."""
    where = BONUS_RULE.where if name == BONUS_GUARD else spec.metric

    def counts(line: Mapping[str, Any]) -> bool:
        return spec.metric in line and (where == spec.metric or bool(line.get(where)))

    if spec.stage not in (None, stage) or not lines or not counts(lines[-1]):
        return ""
    counting = (x for x in reversed(lines) if counts(x) and x["step"] > after)
    values = tuple(x[spec.metric] for x in islice(counting, spec.steps))[::-1]
    if len(values) < spec.steps or not all(met(spec, value) for value in values):
        return ""
    side, bound = condition(spec)
    row = "" if len(values) == 1 else f" for {len(values)} steps in a row"
    last = "not finite" if values[-1] is None else f"{values[-1]:g}"
    last += ": it trains as grpo" if name == BONUS_GUARD else ""
    return (
        f"guard {name!r} stopped the run at {stage} step {lines[-1]['step']}: "
        f"{spec.metric} was {side} {bound:g}{row}, last {last}"
    )


@dataclass(frozen=True)
class GuardWatch:
    """The guards of one stage; they see every step in order."""

    guards: Mapping[str, GuardSpec]
    stage: str
    passed: Mapping[str, int]
    """Step up to which steps do not count any more, by guard."""
    lines: list[Mapping[str, Any]]
    """The recorded steps so far."""

    def see(self, step: int, values: Mapping[str, Any]) -> None:
        """Add a recorded step."""
        self.lines.append({**values, "step": step})

    def fired(self) -> dict[str, str]:
        """Why each guard that fires at the last step does."""
        states = {
            name: firing(name, guard, self.stage, self.lines, self.passed.get(name, 0))
            for name, guard in self.guards.items()
        }
        return {name: why for name, why in states.items() if why}


def watch_stage(experiment: Experiment, run: RunDirectory, stage: str, step: int) -> GuardWatch:
    """The guards over a stage that has recorded `step` steps that count."""
    passed, guards = passed_steps(run.path, stage), dict(experiment.guard)
    lines, spec = [*History(run).lines(stage, step)], experiment.stage[stage]
    if isinstance(spec, GrpoStage):
        most, (metric,) = spec.max_steps_without_bonus, BONUS_RULE.metrics
        bound = {"below": BONUS_RULE.nothing, "steps": most, "stage": stage}
        guards[BONUS_GUARD] = GuardSpec(metric=metric, **bound)
    return GuardWatch(guards, stage, passed, lines)


def check_guards(experiment: Experiment, run: RunDirectory, stage: str, step: int) -> None:
    """Raise RunFailure where a guard fires at the step that a stage would go on from.

    So it is where a process died between the checkpoint and the note that a guard stopped it.
    """
    if fired := watch_stage(experiment, run, stage, step).fired():
        raise stopped(fired)


def unseen(experiment: Experiment, metrics: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """Guards without data: their stages have started and no step recorded their metric."""
    idle = []
    for name, guard in experiment.guard.items():
        stages = [guard.stage] if guard.stage else list(experiment.stage)
        lines = [line for stage in stages for line in metrics.get(stage, ())]
        if metrics.keys() >= {*stages} and not any(guard.metric in line for line in lines):
            idle.append(name)
    return idle


def guard_states(
    history: History, stage: str, lines: Sequence[Mapping[str, Any]], fired: Sequence[str]
) -> list[RuleState]:
    """The guards over a stage: with `fired`, the names of those that stopped the run."""
    states, idle = [], unseen(history.experiment, history.metrics)
    for name, spec in history.experiment.guard.items():
        side, bound = condition(spec)
        figures = {"bound": figure(spec.metric, bound), "steps": spec.steps}
        kind = f"stop_{side}" if spec.stage is None else f"stop_{side}_in"
        of = (kind, {**figures, "stage": spec.stage})
        seen = [line[spec.metric] for line in lines if spec.metric in line]
        reading = None
        if seen and spec.stage in (None, stage):
            last = math.nan if seen[-1] is None else float(seen[-1])
            values = {"metric": spec.metric, "value": figure(spec.metric, last)}
            reading = MetricReading(spec.metric, None, "value", values, last)
        state: State = "not recorded" if name in idle else "armed"
        state = "fired" if name in fired else state
        states.append(RuleState(name, state, spec.metric, reading, "stop", of))
    return states


def pass_guards(run: RunDirectory, guards: Sequence[str], stage: str, step: int) -> None:
    """Record that the user passes the guards that stopped a stage at a step."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    entries = [{"guard": name, "stage": stage, "step": step, "at": now} for name in guards]
    write_json(run.path / PASSED, [*_read(run.path), *entries], run.path)


def passed_steps(run: Path, stage: str) -> dict[str, int]:
    """The last step at which each guard of a stage was passed."""
    return {each["guard"]: each["step"] for each in _read(run) if each["stage"] == stage}


def _read(run: Path) -> list[dict[str, Any]]:
    file = run / PASSED
    return read_json(file, list) if file.exists() else []


Line = Mapping[str, Any]
SHARE, TRIALS, PART = "_share", "_trials", "part/"
GROUP_SHARES = frozenset({"signal_share"})
"""Shares of groups; other shares are of completions."""
GROUP_MEANS = frozenset({"different_trees_share"})
"""Means over groups: how different their completions are, no share of counted things."""
COUNTED: Mapping[str, Callable[[Sample], float | None]] = {
    "truncated_share": lambda sample: float(sample.ended == "length"),
    "abstained_share": lambda sample: float(sample.reward is None),
    "reward_mean": lambda sample: sample.reward,
}
"""What a sample adds to a metric that is a mean over samples."""


def is_share(metric: str) -> bool:
    """Whether a metric is a share of one by its name."""
    return metric.endswith(SHARE)


def estimate(run: RunDirectory, stage: StageSpec, line: Line, metric: str) -> Estimate | None:
    """The metric at the step of a line; None where the step did not record a finite number."""
    value = line.get(metric)
    if value is None:
        return None
    file = run.samples(line["stage"], line["step"])
    if _counted_in(metric) is not None and is_there(file) and metric in _estimates(file):
        return _estimates(file)[metric]
    trials = _trials(stage, line, metric) if is_share(metric) else None
    if trials and 0 <= value <= 1:
        return counted(value, trials)
    return Estimate(value, None)


@kept(1 << 14)
def _estimates(file: Path) -> Mapping[str, Estimate]:
    """Every metric that the samples of a step count."""
    samples = tuple(samples_in(file))
    parts = dict.fromkeys(PART + name for each in samples for name in each.parts)
    marks = {k.rpartition("/")[2] + SHARE for s in samples for k in (*s.parts, *s.facts)}
    return {
        name: estimate
        for name in (*COUNTED, *parts, *(name for name in STANDARD if name in marks))
        if (estimate := _counted(samples, name)) is not None
    }


def _counted(samples: Sequence[Sample], metric: str) -> Estimate | None:
    value_of = _counted_in(metric) or (lambda sample: None)
    pairs = [(float(v), each.row) for each in samples if (v := value_of(each)) is not None]
    if not pairs:
        return None
    values, rows = zip(*pairs, strict=True)
    # A reward may be punished below 0 or carry a bonus above 1.
    return grouped(values, rows, (min(0.0, *values), max(1.0, *values)))


def _counted_in(metric: str) -> Callable[[Sample], float | None] | None:
    """What a sample adds to a metric; None for metrics that are no means over samples."""
    if metric.startswith(PART):
        return lambda sample: sample.parts.get(metric.removeprefix(PART))
    if metric in STANDARD and is_share(metric):
        # As the step's own metric counts it: whether a reward's part or fact is set.
        return lambda sample: marked(sample.judgement, metric.removesuffix(SHARE))
    return COUNTED.get(metric)


def _trials(stage: StageSpec, line: Line, metric: str) -> int | None:
    """The number of trials of a share, as the step recorded it; None of a mean over groups."""
    if metric in GROUP_MEANS:
        return None
    if metric + TRIALS in line:
        return int(line[metric + TRIALS])
    if metric in GROUP_SHARES:
        return int(line.get("groups", line.get("rows", 0)))
    if "completions" in line:
        return int(line["completions"])
    if isinstance(stage, SamplingStage) and "rows" in line:
        return int(line["rows"]) * stage.group
    return None


def milestone_states(history: History, until: tuple[str, int] | None = None) -> list[RuleState]:
    """Every milestone; with `until`, as it stood after that step of that stage."""
    states = []
    for name, spec in history.experiment.milestone.items():
        last = until[1] if until is not None and until[0] == spec.stage else None
        lines = history.lines(spec.stage, last)
        state, reading = _state(history, spec, lines)
        metric, condition = spec.metric or "", _condition(spec)
        states.append(RuleState(name, state, metric, reading, "expect", condition))
    return states


def _condition(spec: MilestoneSpec) -> tuple[str, Mapping[str, Any]]:
    """The template of what is expected and its figures."""
    plain = {"stage": spec.stage, "step": spec.step}
    if spec.evaluation is not None:
        names = {"evaluation": spec.evaluation, "against": spec.against}
        return f"expect_{spec.verdict}", {**plain, **names}
    if spec.metric is None:
        return "expect_step", plain
    side, bound = condition(spec)
    at = "" if spec.step is None else "_at"
    return f"expect_{side}{at}", {**plain, "bound": figure(spec.metric, bound)}


def _state(
    history: History, spec: MilestoneSpec, lines: Sequence[Line]
) -> tuple[Scored, MetricReading | None]:
    last, stage = lines[-1]["step"] if lines else 0, history.experiment.stage[spec.stage]
    metric, step = spec.metric, last if spec.step is None else spec.step
    if not lines or last < step:
        return "pending", None
    if spec.evaluation is not None:
        comparison = _compared(history, spec)
        if comparison is None:
            return "not recorded", None
        state, figures = by_verdict(spec, comparison), difference_figures(comparison)
        least = comparison.minimum_detectable_difference
        scale = 100.0 if comparison.interval.share else 1.0
        figures["least"] = "–" if least is None else f"{scale * least:.1f}"
        return state, MetricReading("", None, "compared", figures, comparison.difference)
    if metric is None:
        return "met", None
    line = next((line for line in lines if line["step"] == step), {})
    value = estimate(history.run, stage, line, metric) if line else None
    if value is None:
        return "not recorded", None
    state = scored(spec, value)
    if spec.step is None and state == "missed":
        state = "open"
    return state, _measured(metric, value)


def _measured(metric: str, estimate: Estimate) -> MetricReading:
    figures = {"metric": metric, "value": figure(metric, estimate.value)}
    if estimate.interval is None:
        return MetricReading(metric, None, "value", figures, estimate.value)
    figures |= {"low": figure(metric, estimate.interval.low), "trials": str(estimate.trials)}
    figures |= {"high": figure(metric, estimate.interval.high)}
    return MetricReading(metric, None, "estimate", figures, estimate.value)


def _compared(history: History, spec: MilestoneSpec) -> Comparison | None:
    """The checkpoint at the milestone's step against the other, item by item; None where one of
    them is not measured."""
    own = checkpoint_name(CheckpointReference(spec.stage, "step", spec.step))
    for record in history.evaluations:
        if record.name == spec.evaluation:
            other, measured = _against(history, spec.against), history.measured(record)
            if own in measured and other in measured:
                control, scores = history.scores(record, other, own)
                return compare(control, scores)
    return None


def _against(history: History, text: str) -> str:
    """The name in the records of what is compared with; "" where it is not known yet."""
    reference = parse_checkpoint(text)
    assert reference is not None, "the spec was checked"
    if reference.stage is None or reference.which == "step":
        return checkpoint_name(reference)
    if reference.which == "last":
        steps = history.checkpoints(reference.stage)
        last = CheckpointReference(reference.stage, "step", max(steps, default=0))
        return checkpoint_name(last) if last.step else ""
    chosen = history.selection(reference.stage)
    return chosen.checkpoint if chosen is not None else ""


def by_verdict(spec: MilestoneSpec, comparison: Comparison) -> Scored:
    """Met where the verdict is the wanted one; undecided where the items show none."""
    if comparison.verdict == spec.verdict:
        return "met"
    return "missed" if comparison.verdict in ("better", "worse", "equivalent") else "undecided"


def scored(spec: MilestoneSpec, value: Estimate) -> Scored:
    """Whether a value is on the expected side; undecided if its interval contains the bound."""
    around = value.interval or Interval(value.value, value.value, "exact")
    side, bound = condition(spec)
    if side == "above":
        met, missed = around.low > bound, around.high <= bound
    else:
        met, missed = around.high < bound, around.low >= bound
    return "met" if met else "missed" if missed else "undecided"
