"""Applies the health rules of `judge` to a stage as its run recorded it. Adds no words."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from assay.compare.arm import recorded_weights
from assay.errors import Finding, InputError, finding
from assay.experiment.checkpoint_reference import CheckpointReference, checkpoint_name
from assay.experiment.reward_tables import parts_of
from assay.experiment.stage_tables import (
    GrpoStage,
    SamplingStage,
    StageSpec,
    StoredStage,
    counts_rows,
    kept_reference,
    steps_of,
)
from assay.judge.health_checks import Evidence, Health, RuleState, Spending, check_health
from assay.judge.health_rules import BONUSES, OF_SAMPLES, PENALTIES, STORED_ADVICE
from assay.judge.scores import ItemScores
from assay.judge.selection import FORETELLING, forecast_total
from assay.runs.history import History
from assay.runs.run_directory import RunDirectory, stored_status
from assay.runs.run_files import DamagedFile
from assay.runs.run_names import resolve_checkpoint
from assay.tasks.text_rewards import TEXT, TEXT_MAXIMUM
from assay.train.metric_names import PART

Lines = Sequence[Mapping[str, Any]]


def stage_health(history: History, stage: str, until: int | None = None) -> Health:
    """The states and findings of the health rules in a stage, of its steps up to `until`.

    Spending is counted for the last stage that has started. Of stored candidates no rule of
    OF_SAMPLES says anything, and none of a KL that is no part of the stage.
    """
    spec, lines = history.experiment.stage[stage], history.lines(stage, until)
    dev = [(x.step, x.scores) for x in history.looks(stage) if until is None or x.step <= until]
    money = spending(history, stage, until) if stage == history.last_stage else []
    parts, ended = reward_parts(spec), has_ended(history, stage, until)
    reached = _reached(history, stage) if until is None else {}
    findings = check_health(
        Evidence(_at_temperature(lines, spec), dev, money, parts, ended, reached)
    )
    stored = isinstance(spec, StoredStage) and spec.stored
    mute = OF_SAMPLES if stored else frozenset[str]()
    if not kept_reference(spec):
        mute |= {"no_kl", "kl_returns"}
    begins = isinstance(spec, GrpoStage) and spec.kl.reference == "stage_start"
    once = isinstance(spec, GrpoStage) and spec.updates.minibatches * spec.updates.epochs == 1
    if not (begins and once):
        mute |= {"kl_at_start"}  # The first step's KL is no more that of the start to itself.
    advice = STORED_ADVICE if stored else {}
    return Health(
        tuple(
            RuleState(each.rule, "not recorded", "", None) if each.rule in mute else each
            for each in findings.states
        ),
        tuple(
            replace(each, values={**each.values, **advice.get(each.code, {})})
            for each in findings.findings
            if each.code not in mute
        ),
    )


def _reached(history: History, stage: str) -> dict[str, tuple[ItemScores, ItemScores]]:
    """Scores of the start and of the last checkpoint of a GRPO stage, by reporting evaluation."""
    steps, start = history.checkpoints(stage), history.start(stage)
    if not steps or not isinstance(history.experiment.stage[stage], GrpoStage):
        return {}
    last = checkpoint_name(CheckpointReference(stage, "step", steps[-1]))
    scores = {}
    for record in history.evaluations:
        if record.role == "report" and {start, last} <= {*history.measured(record)}:
            try:
                before, after = history.scores(record, start, last)
            except DamagedFile:
                raise
            except InputError:  # no answer has a score
                continue
            scores[record.name] = (before, after)
    return scores


def reward_parts(stage: StageSpec) -> dict[str, list[str]]:
    """The metrics of the parts of a stage's reward table, apart by whether they add to it; none of
    a reward that is one part."""
    parts: dict[str, list[str]] = {BONUSES: [], PENALTIES: []}
    table = getattr(stage, "reward", None)
    if isinstance(table, dict) and len(table) > 1:
        for name, part in parts_of(table).items():
            most = TEXT_MAXIMUM.get(part.kind.removeprefix(TEXT), 1.0)
            if part.worth:
                parts[BONUSES if part.worth > 0 and most > 0 else PENALTIES].append(PART + name)
    return parts


def has_ended(history: History, stage: str, until: int | None = None) -> bool:
    """Whether a stage has recorded its last planned step, or a guard stopped the run in it."""
    lines, planned = history.lines(stage, until), planned_steps(history, stage)
    if not lines:
        return False
    stopped = until is None and bool(stored_status(history.run.path).guard)
    return stopped or (planned is not None and lines[-1]["step"] >= planned)


def unlearned(run: RunDirectory) -> list[Finding]:
    """The stages of a run that learned nothing, each by its `name`: advantage or gradient 0 in
    every step, the weights of an earlier checkpoint at the end, a start that the gate kept.

    From what is recorded; no weights are read. Raises what reading the records raises.
    """
    history, findings = History(run), []
    for name, spec in history.experiment.stage.items():
        lines = history.lines(name)
        ends = [line[k] for line in lines for k in ("advantage_min", "advantage_max") if k in line]
        if ends and not any(end != 0 for end in ends):
            findings.append(("unlearned_advantage", name))
        elif lines and all(line.get("grad_norm") == 0 for line in lines):
            findings.append(("unlearned_gradient", name))
        if same := same_as_before(run, name, spec):
            findings.append(("unlearned_weights", f"{same[0]} = {same[1]}"))
        chosen = history.selection(name)
        if chosen is not None and not chosen.promoted:
            findings.append(("unlearned_gate", f"{name}.best = {chosen.checkpoint}"))
    return [finding(code, "warning", name=f"{run}: {what}") for code, what in findings]


def same_as_before(run: RunDirectory, stage: str, spec: StageSpec) -> tuple[str, str] | None:
    """The last checkpoint of a stage, and the first before it with the same weights, the stage's
    start in the same run among them; None where there is none."""
    steps, start = run.checkpoint_steps(stage), spec.starts_from
    names = [checkpoint_name(CheckpointReference(stage, "step", step)) for step in steps]
    if start is not None and start.stage is not None and run.checkpoint_steps(start.stage):
        names.insert(0, checkpoint_name(resolve_checkpoint(run, start)))
    weights = {name: recorded_weights(run, name) for name in names}
    before = (name for name in names[:-1] if weights[name] and weights[name] == weights[names[-1]])
    return next(((names[-1], name) for name in before), None)


def _at_temperature(lines: Lines, stage: StageSpec) -> Lines:
    """The lines with the temperature that they were sampled at; where it has a schedule, the stage
    recorded it."""
    if not isinstance(stage, SamplingStage) or stage.stored:
        return lines
    temperature = stage.sampling.temperature
    if not isinstance(temperature, float | int):
        return lines
    return [{"temperature": float(temperature), **line} for line in lines]


def spending(history: History, stage: str, until: int | None = None) -> list[Spending]:
    """The spent part of each budget whose metric was recorded, with a forecast.

    Of `stage` only the steps up to `until` count. The forecast covers the remaining steps of the
    last stage that has started.
    """
    findings = []
    metrics = {**history.metrics, stage: history.lines(stage, until)}
    for metric, budget in history.experiment.budget.items():
        costs = {
            name: [line[metric] for line in lines if line.get(metric) is not None]
            for name, lines in metrics.items()
        }
        spent = float(sum(map(sum, costs.values())))
        if not any(costs.values()):
            continue
        last = [*metrics][-1]
        steps = planned_steps(history, last)
        forecast = None
        if steps is not None and len(costs[last]) >= FORETELLING:
            before = spent - sum(costs[last])
            remaining = max(steps - metrics[last][-1]["step"], 0)
            forecast = forecast_total(costs[last], remaining, steps, before)
        findings.append(Spending(metric, spent, budget, forecast))
    return findings


def planned_steps(history: History, stage: str) -> int | None:
    """The steps that a stage will have; None where its rows are not counted yet, or not counted in
    rows."""
    spec = history.experiment.stage[stage]
    if spec.steps is not None or not counts_rows(spec):
        return spec.steps
    name, _, part = spec.data.partition(".")
    counted = history.manifest.get("data", {}).get(name, {}).get(part or "train")
    return None if counted is None else steps_of(spec, counted.get("epoch_rows", counted["rows"]))
