"""Guards: conditions on metrics that stop a run and keep its checkpoint.

A guard reads the recorded steps of a stage, so that a resumed run decides as an unbroken one does.
Continuing past a guard must be asked for and is recorded in `guards.json`; the guard then counts
its steps anew. The recorder stops the stage, the runner sets the status.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from assay.errors import RunFailure
from assay.experiment.experiment import Experiment
from assay.experiment.stage_tables import GrpoStage
from assay.experiment.tables import GuardSpec, MilestoneSpec
from assay.judge.health_checks import Reading, RuleState, State, figure
from assay.judge.health_rules import RULES, Side
from assay.runs.history import History
from assay.runs.run_directory import RunDirectory
from assay.runs.run_files import read_json, write_json

PASSED = "guards.json"
BONUS_GUARD = "max_steps_without_bonus"
BONUS_RULE = RULES["no_bonus"]
"""What the setting of a grpo stage that BONUS_GUARD is named after stops a run for."""


class GuardFired(RunFailure):
    """A guard of the experiment stopped the run; the checkpoint of that step is kept."""

    def __init__(self, fired: Mapping[str, str]):
        super().__init__("; ".join(fired.values()))
        self.guards = tuple(fired)


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
        found = {
            name: firing(name, guard, self.stage, self.lines, self.passed.get(name, 0))
            for name, guard in self.guards.items()
        }
        return {name: why for name, why in found.items() if why}


def watch_stage(experiment: Experiment, run: RunDirectory, stage: str, step: int) -> GuardWatch:
    """The guards over a stage that has recorded `step` steps that count."""
    lines, guards = [*History(run).lines(stage, step)], dict(experiment.guard)
    spec = experiment.stage[stage]
    if isinstance(spec, GrpoStage):
        most, (metric,) = spec.max_steps_without_bonus, BONUS_RULE.metrics
        bound = {"below": BONUS_RULE.nothing, "steps": most, "stage": stage}
        guards[BONUS_GUARD] = GuardSpec(metric=metric, **bound)
    return GuardWatch(guards, stage, passed_steps(run.path, stage), lines)


def check_guards(experiment: Experiment, run: RunDirectory, stage: str, step: int) -> None:
    """Raise GuardFired where a guard fires at the step that a stage would go on from.

    So it is where a process died between the checkpoint and the note that a guard stopped it.
    """
    if fired := watch_stage(experiment, run, stage, step).fired():
        raise GuardFired(fired)


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
    found, idle = [], unseen(history.experiment, history.metrics)
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
            reading = Reading(spec.metric, None, "value", values, last)
        state: State = "not recorded" if name in idle else "armed"
        state = "fired" if name in fired else state
        found.append(RuleState(name, state, spec.metric, reading, "stop", of))
    return found


def pass_guards(run: RunDirectory, guards: Sequence[str], stage: str, step: int) -> None:
    """Record that the user passes the guards that stopped a stage at a step."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    entries = [{"guard": name, "stage": stage, "step": step, "at": now} for name in guards]
    write_json(run.path / PASSED, [*_read(run.path), *entries], run.path)


def forget_passed(run: Path, kept: Callable[[str, int], bool]) -> None:
    """Remove the passed guards of stages and steps that are trained again."""
    wishes = _read(run)
    left = [wish for wish in wishes if kept(wish["stage"], wish["step"])]
    if left != wishes:
        write_json(run / PASSED, left, run)


def passed_steps(run: Path, stage: str) -> dict[str, int]:
    """The last step at which each guard of a stage was passed."""
    return {each["guard"]: each["step"] for each in _read(run) if each["stage"] == stage}


def _read(run: Path) -> list[dict[str, Any]]:
    file = run / PASSED
    return read_json(file, list) if file.exists() else []
