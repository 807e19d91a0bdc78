"""Measures the arms that a task brings: what the best choice could win before anything is trained.

Each arm is a model of its own (`selector:oracle`, `workflow:direct`) in a run of its own without
stages, which is recorded, resumed and compared like any other; what is measured is not measured
again. Choices among the arms are upper bounds: they have seen the scores.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from assay.data.formats.problem_rows import LEVEL, PROBLEM_TYPE, TOPIC, topic_of
from assay.data.hashing import canonical_json, sha256_text
from assay.data.row import Row
from assay.errors import InputError, nearest
from assay.experiment.experiment import Experiment
from assay.experiment.read_file import ExperimentSource, lines_named
from assay.judge.intervals import Interval
from assay.judge.paired import compare
from assay.judge.scores import ItemScores
from assay.lab.monitor.observer import Observer
from assay.lab.run.runner import launch_or_resume
from assay.lab.setup.evaluation import make_evaluation
from assay.lab.setup.session import Session
from assay.lab.setup.validate import read_whole
from assay.runs.history import evaluation_records
from assay.runs.records import read_scores
from assay.runs.run_directory import RunDirectory

LEAST_GAP = 0.10
"""A smaller gap between floor and ceiling leaves a method nothing to win."""
LEAST_CHOICE = 0.05
"""What choosing by type has to add to the best arm."""
HARD, EASY = 0.1, 0.8
"""A best arm below, and a floor above, leave no room."""
BY_TYPE, CHOSEN = "best per type", "best per problem"
BY_LEVEL = "best per type and level"
HINDSIGHT = "best per problem, in hindsight"
SHOTS = "shots"
"""The option of a benchmark that `assay ceiling --shots` changes."""


@dataclass(frozen=True, slots=True)
class Arm:
    """A model that is measured, with the options of the benchmark that it changes."""

    source: str
    options: Mapping[str, Any]
    floor: str
    """The arm that it is compared with: the first, of as many shots."""


@dataclass(frozen=True, slots=True)
class ArmLine:
    """An arm, or a choice among arms."""

    name: str
    score: float
    by_type: Mapping[str, float]
    """Scores by type of problem; empty where all are of one."""
    floor: str
    difference: float
    """To the floor, paired item by item; 0 for the floor itself."""
    interval: Interval | None
    share: float | None
    """Of the gap from the floor to the best arm of each item, what is reached; None without one."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The runs of the arms, and what there is to win."""

    evaluation: str
    runs: Mapping[str, RunDirectory]
    """By arm."""
    lines: tuple[ArmLine, ...]
    best_by_type: Mapping[str, str]
    """The best arm of each type of problem, and of each level of it ("words/2") where problems have
    levels; of arms with several shots, those of the last."""
    same: Mapping[str, str]
    """Arms that answer every item as another one does, which is measured in their place."""
    warnings: tuple[str, ...]


def measure_ceiling(
    source: ExperimentSource,
    overrides: Sequence[str],
    root: Path,
    observer: Observer,
    *,
    on: str | None = None,
    items: int | None = None,
    repeats: int = 1,
    shots: Sequence[int] = (),
) -> Ceiling:
    """Measure every arm of an experiment's task in the lab at `root`, with each number of `shots`.

    Raises InputError where the task brings no arm or no evaluation fits, and what runs raise.
    """
    experiment = read_whole(source, overrides, root)
    nowhere = RunDirectory(root, experiment.name, "ceiling")
    session = Session(experiment, nowhere, experiment.seeds[0], observer)
    arms = arms_of(session, shots)
    name = evaluation_of(experiment, on)
    made = {
        label: arm_experiment(experiment, name, label, arm, items, repeats)
        for label, arm in arms.items()
    }
    with lines_named(source, overrides):
        rows = items_of(session, name, next(iter(made.values())))
        same = alike(session, arms, rows)
        runs = {}
        for label in (each for each in arms if each not in same):
            (launched,) = launch_or_resume(made[label], (), root=root, observer=observer)
            runs[label] = launched.run
    scores = {}
    for label, run in runs.items():
        (record,) = evaluation_records(run)
        scores[label] = read_scores(run, record, "base")
    types = {row.id: kind_of(row) for row in rows}
    lines: list[ArmLine] = []
    warnings: list[str] = []
    best: dict[str, str] = {}
    for floor in dict.fromkeys(arm.floor for arm in arms.values()):
        group = {label: each for label, each in scores.items() if arms[label].floor == floor}
        best, choices = choices_among(group, types)
        found = lines_of(floor, group | choices, types)
        lines += found
        warnings += warnings_of(found, group, choices)
    return Ceiling(name, runs, tuple(lines), best, same, tuple(warnings))


def arms_of(session: Session, shots: Sequence[int]) -> dict[str, Arm]:
    """The arms of an experiment's task, each with every number of shots unless it fixes that."""
    found: dict[str, Arm] = {}
    every = {label: arm for lab in session.labs for label, arm in lab.ceiling.items()}
    for count in dict.fromkeys(shots) or (None,):
        floor = ""
        for label, (source, options) in every.items():
            varied = count is not None and SHOTS not in options
            name = f"{label}-{count}" if varied else label
            floor = floor or name
            more = {SHOTS: count} if varied else {}
            found.setdefault(name, Arm(source, {**options, **more}, floor))
    if not found:
        problem = (
            f"the task {session.experiment.task!r} brings no arm whose ceiling can be measured"
        )
        raise InputError(problem, field="task")
    return found


def evaluation_of(experiment: Experiment, on: str | None) -> str:
    """The evaluation that is asked for, else the first on a benchmark. Raises InputError."""
    known = [name for name, spec in experiment.evaluate.items() if spec.benchmark is not None]
    if on is None and known:
        return known[0]
    if on not in known:
        fix = nearest(on, known) if on and known else "add [evaluate.test] with a benchmark"
        raise InputError(f"no evaluation {on or 'on a benchmark'!r}", field="evaluate", fix=fix)
    return on


def arm_experiment(
    experiment: Experiment, name: str, label: str, arm: Arm, items: int | None, repeats: int
) -> Experiment:
    """The experiment that measures one arm and trains nothing. Its name has a hash of what is
    measured, so that other items or another helper model are other runs."""
    values = experiment.model_dump(mode="json", exclude_none=True)
    kept = ("task", "helpers", "selector", "sandbox", "as_reported")
    made = {key: values[key] for key in kept if key in values}
    spec = values["evaluate"][name] | {"checkpoints": ["base"], "repeats": repeats, "fewer": {}}
    if items is not None:
        spec["take"] = {"rows": items, "how": "first"}
    made["evaluate"] = {name: spec}
    key = sha256_text(canonical_json(made))[:8]
    spec["options"] = {**spec.get("options", {}), **arm.options}
    return Experiment(
        name=f"{experiment.name}-ceiling-{label}-{key}",
        about=f"What {label} reaches on {name}; trains nothing",
        model=arm.source,
        seeds=experiment.seeds[:1],
        vary=("model", "evaluate"),
        **made,
    )


def items_of(session: Session, name: str, experiment: Experiment) -> tuple[Row, ...]:
    """The items that the arms are asked."""
    spec = experiment.evaluate[name]
    root, seed = session.run.root, session.seed
    return make_evaluation(name, spec, session.task, {}, experiment.model, seed, {}, root).items


def alike(session: Session, arms: Mapping[str, Arm], rows: Sequence[Row]) -> dict[str, str]:
    """Arms whose answers to all items are those of an earlier arm, by its name. Only arms that ask
    no helper model are looked at, whose answers are known before anything is run."""
    fixed = {source: arm for lab in session.labs for source, arm in lab.arms.items()}
    first: dict[Any, str] = {}
    found = {}
    for label, arm in arms.items():
        made = fixed.get(arm.source)
        if made is None or made.helper or arm.options:
            continue
        if all(made.needs in row.extra for row in rows):
            texts = tuple(each.text for each, _ in made.answers({}, rows))
            if (other := first.setdefault(texts, label)) != label:
                found[label] = other
    return found


def kind_of(row: Row) -> str:
    """A problem's topic or else type, with its level where it has both: "words/2"."""
    topic, level = row.extra.get(TOPIC), row.extra.get(LEVEL)
    return (
        f"{topic}/{level}" if topic and level else str(topic or row.extra.get(PROBLEM_TYPE) or "")
    )


def choices_among(
    scores: Mapping[str, ItemScores], types: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, ItemScores]]:
    """The best arm of each type and of each level of it, and the scores of choices among the arms:
    the best of an item's type, of its type and level, that of the item's other repeats, and in
    hindsight the best of each item."""
    names, first = [*scores], next(iter(scores.values()))
    values_AIR = np.stack([_ordered(each, first.item_ids) for each in scores.values()])
    means_AI = values_AIR.mean(axis=2)
    choices, best = {}, {}
    for choice, of in {BY_TYPE: topic_of, BY_LEVEL: str}.items():
        kinds = [of(types[item]) for item in first.item_ids]
        picks = {
            kind: int(means_AI[:, [kind == each for each in kinds]].mean(axis=1).argmax())
            for kind in dict.fromkeys(kinds)
        }
        if len(picks) > max(len(best), 1):
            places = np.arange(len(kinds))
            choices[choice] = values_AIR[[picks[kind] for kind in kinds], places]
            best |= picks
    if first.repeats > 1:
        overall_A11 = means_AI.mean(axis=1)[:, None, None] * 1e-6  # ties go to the better arm
        others_AIR = values_AIR.sum(axis=2, keepdims=True) - values_AIR + overall_A11
        pick_IR = others_AIR.argmax(axis=0)
        choices[CHOSEN] = np.take_along_axis(values_AIR, pick_IR[None], axis=0)[0]
    choices[HINDSIGHT] = means_AI.max(axis=0)[:, None]
    return (
        {kind: names[n] for kind, n in sorted(best.items())},
        {name: replace(first, scores=values) for name, values in choices.items()},
    )


def _ordered(scores: ItemScores, items: Sequence[str]) -> np.ndarray:
    """Scores (items, repeats) in an order of items; 0 for an abstention."""
    place = {item: n for n, item in enumerate(scores.item_ids)}
    return np.nan_to_num(scores.scores, nan=0.0)[[place[item] for item in items]]


def lines_of(
    floor: str, scores: Mapping[str, ItemScores], types: Mapping[str, str]
) -> list[ArmLine]:
    """Arms and choices against the floor."""
    low = scores[floor].mean
    gap = scores[HINDSIGHT].mean - low
    found = []
    for name, own in scores.items():
        by_type: dict[str, list[float]] = {}
        for item, value in zip(own.item_ids, map(float, own.item_means), strict=True):
            by_type.setdefault(types[item], []).append(value)
        means = {kind: float(np.nanmean(each)) for kind, each in sorted(by_type.items())}
        interval = None if name == floor else compare(scores[floor], own).interval
        share = (own.mean - low) / gap if gap > 0 else None
        kinds = means if len(means) > 1 else {}
        found.append(ArmLine(name, own.mean, kinds, floor, own.mean - low, interval, share))
    return found


def warnings_of(
    lines: Sequence[ArmLine], arms: Mapping[str, ItemScores], choices: Mapping[str, ItemScores]
) -> Iterator[str]:
    """What makes the items a task on which no method can show its worth."""
    known = {line.name: line for line in lines}
    top, floor = known[HINDSIGHT], known[lines[0].floor]
    fix = "take other items, larger pools or another helper model"
    if top.difference < LEAST_GAP:
        yield (
            f"from {floor.name} to the best of each item are {top.difference * 100:.1f} points, "
            f"less than {LEAST_GAP * 100:.0f}: there is little to win ({fix})"
        )
    elif top.interval is not None and top.interval.low < LEAST_GAP:
        yield (
            f"from {floor.name} to the best of each item may be as little as "
            f"{top.interval.low * 100:.1f} points (measure more items)"
        )
    best = max((known[name] for name in arms), key=lambda line: line.score)
    if best.score < HARD or floor.score > EASY:
        hard = "hard" if best.score < HARD else "easy"
        yield f"too {hard}: {floor.name} {floor.score:.1%}, {best.name} {best.score:.1%} ({fix})"
    if BY_TYPE in choices and (gain := known[BY_TYPE].score - best.score) < LEAST_CHOICE:
        yield (
            f"choosing by type adds {gain * 100:.1f} points to {best.name}: only a choice per "
            "problem could win more"
        )
    intervals = {name: known[name].interval for name in arms if name != floor.name}
    noise = [name for name, each in intervals.items() if each and each.low <= 0 <= each.high]
    if noise:
        count = len(arms[floor.name].item_ids)
        yield f"within noise of {floor.name} on {count} items: {', '.join(noise)}"
    if lost := sum(int(np.isnan(each.scores).sum()) for each in arms.values()):
        yield f"{lost} answers have no score: their model or the lab failed"
