"""Chooses checkpoints of a stage by its rules, and lists the checkpoints that a run measures.

The rules are in `judge.selection`; what they chose is stored with its evidence.
Trains nothing; `run_evaluation` measures.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from assay.data.episode import FULL_SCORE
from assay.data.row_checks import field_value
from assay.errors import InputError
from assay.experiment.checkpoint_reference import Rule, checkpoint_name
from assay.experiment.experiment import Experiment
from assay.experiment.stage_tables import SamplingStage
from assay.experiment.tables import EvaluateSpec
from assay.judge.selection import longest_rise, promote
from assay.lab.evaluate.local_answerer import LocalAnswerer
from assay.lab.evaluate.run_evaluation import measure, measure_stored
from assay.lab.session.evaluation import Evaluation
from assay.lab.session.session import Session
from assay.rl.policy import Policy
from assay.runs.history import History
from assay.runs.records import read_scores
from assay.runs.run_directory import RunDirectory
from assay.runs.run_files import (
    DevLook,
    LevelChoice,
    RewardRise,
    Selection,
    read_level,
    read_selection,
    write_level,
    write_selections,
)
from assay.runs.run_names import recorded_start, resolve_checkpoint


def selectors(session: Session, stage: str) -> list[Evaluation]:
    """The selecting evaluations of a stage."""
    return [
        evaluation
        for evaluation in session.evaluations.values()
        if evaluation.spec.role == "select"
        and any(reference.stage == stage for reference in evaluation.spec.references)
    ]


def select(session: Session, stage: str, policy: Policy, step: int) -> None:
    """Measure a checkpoint that is in memory with the selecting evaluations."""
    for evaluation in selectors(session, stage):
        measure(session, evaluation, LocalAnswerer(session, policy), f"{stage}.step-{step:06d}")


def measure_start(session: Session, stage: str, evaluation: Evaluation) -> str:
    """Measure what a stage starts from, which a later checkpoint must be better than; returns how
    records name it."""
    start = start_of(session, stage)
    measure_stored(session, evaluation, start)
    return start


def start_of(session: Session, stage: str) -> str:
    """How records name what a stage starts from. Raises RunNotFound."""
    start = recorded_start(session.run, stage, session.experiment.stage[stage])
    return checkpoint_name(start)


def choose_level(session: Session, name: str) -> None:
    """Store from which rows a stage learns: those of the first level of which its start answers
    fewer dev items right than `passes`, else of the last."""
    stage = session.experiment.stage[name]
    curriculum = stage.curriculum if isinstance(stage, SamplingStage) else None
    if curriculum is None or curriculum.by is None or read_level(session.run.path, name):
        return
    evaluation = selectors(session, name)[0]
    start = measure_start(session, name, evaluation)
    scores = read_scores(session.run, evaluation.record, start)
    items = {item.id: item for item in evaluation.items}
    right: dict[Any, list[bool]] = {}
    for id_, row in zip(scores.item_ids, scores.scores, strict=True):
        level = field_value(items[id_], curriculum.by)
        right.setdefault(level, []).extend(score >= FULL_SCORE for score in row)
    if None in right:
        problem = f"items of {evaluation.name!r} have no {curriculum.by}"
        raise InputError(problem, field=f"stage.{name}.curriculum.by", fix="name another field")
    rates = [(level, sum(right[level]) / len(right[level])) for level in sorted(right)]
    passes = curriculum.passes or 0.0
    open_ = [level for level, rate in rates if rate < passes]
    level = (open_ or [rates[-1][0]])[0]
    about = curriculum.by, passes, start, evaluation.name, rates
    told = ", ".join(f"{each} {rate:.0%}" for each, rate in rates)
    write_level(session.run.path, name, LevelChoice(level, *about))
    session.observer.note(f"{name}: rows with {curriculum.by} {level}, the start's rates: {told}")


def choose(session: Session, stage: str) -> None:
    """Store the checkpoints of a stage that its rules choose.

    The gate keeps the start unless a later checkpoint is shown better; it decides wherever dev
    items are looked at. The other rules choose where a start or an evaluation asks for them.
    """
    run, rules = session.run, rules_of(session.experiment, stage)
    evaluations, by_trend = selectors(session, stage)[:1], "reward_trend" in rules
    if not evaluations and not by_trend:
        return
    start = start_of(session, stage)
    steps, chosen = run.checkpoint_steps(stage), list[Selection]()
    for evaluation in evaluations:
        names = {step: f"{stage}.step-{step:06d}" for step in steps}
        chosen += by_dev_items(run, evaluation, rules, start, names)
    if by_trend:
        chosen.append(by_reward_trend(History(run).lines(stage), stage, start, steps))
    write_selections(run.path, stage, chosen)


def rules_of(experiment: Experiment, stage: str) -> set[Rule]:
    """The rules by which starts and evaluations of an experiment name a checkpoint of a stage."""
    named = [each.starts_from for each in experiment.stage.values()]
    named += [each for spec in experiment.evaluate.values() for each in spec.references]
    return {each.rule for each in named if each and each.stage == stage and each.rule is not None}


def chosen_by(run: RunDirectory, experiment: Experiment, stage: str, selecting: bool) -> bool:
    """Whether every rule of a stage has chosen; `selecting`: whether dev items are looked at."""
    wanted = rules_of(experiment, stage)
    if selecting:
        wanted.add("gate")
    return all(read_selection(run.path, stage, rule) is not None for rule in wanted)


def by_dev_items(
    run: RunDirectory,
    evaluation: Evaluation,
    rules: Collection[Rule],
    start: str,
    names: Mapping[int, str],
) -> list[Selection]:
    """What the gate chooses of a stage's start and its checkpoints by step, and the best dev score
    where it is asked for."""
    scores = {name: read_scores(run, evaluation.record, name) for name in (start, *names.values())}
    promotion, evidence = promote(scores[start], {step: scores[n] for step, n in names.items()}), []
    for step, each in promotion.looks.items():
        ends = each.interval
        figures = each.score, each.difference, ends.low, ends.high, each.p_value, each.adjusted_p
        evidence.append(DevLook(names[step], *figures, each.verdict, each.items, each.items_needed))
    places: dict[int | None, str] = {None: start, **names}
    chosen: dict[Rule, str] = {"gate": places[promotion.step]}
    if "dev_score" in rules:
        chosen["dev_score"] = places[promotion.highest]
    looks, of = tuple(evidence), evaluation.name
    return [
        Selection(name, start, of, scores[name].mean, len(names), rule, looks)
        for rule, name in chosen.items()
    ]


def by_reward_trend(
    lines: Sequence[Mapping[str, Any]], stage: str, start: str, checkpoints: Sequence[int]
) -> Selection:
    """The checkpoint at the end of the longest shown rise of the rewards in a stage's lines;
    without one, the start."""
    steps = [line["step"] for line in lines]
    rewards = [line.get("reward_mean") for line in lines]
    best = longest_rise(steps, rewards, checkpoints)
    if best is None:
        return Selection(start, start, "", None, len(checkpoints), "reward_trend")
    line, ends = best.trend, best.trend.interval
    figures = line.slope, ends.low, ends.high, line.start, line.end, line.steps
    rise = RewardRise(best.after, best.until, *figures)
    name = f"{stage}.step-{best.until:06d}"
    return Selection(name, start, "", None, len(checkpoints), "reward_trend", rise=rise)


def measure_listed(session: Session, evaluations: Iterable[Evaluation]) -> None:
    """Measure what evaluations list and nobody measured yet: all checkpoints of a reporting one; of
    a selecting one, first, `base`: a recommendation against it needs its scores, also where no
    stage of theirs starts from it."""
    listed = list[tuple[Evaluation, str]]()
    for evaluation in sorted(evaluations, key=lambda each: each.spec.role == "report"):
        if evaluation.spec.role == "report":
            names = named_checkpoints(session.run, evaluation.spec)
            listed += [(evaluation, name) for name in names]
        elif "base" in evaluation.spec.checkpoints:
            listed.append((evaluation, "base"))
    for evaluation, name in listed:
        measure_stored(session, evaluation, name)


def named_checkpoints(run: RunDirectory, spec: EvaluateSpec) -> Iterator[str]:
    """The checkpoints of a run that an evaluation names, as records name them. Raises
    RunNotFound."""
    for each in spec.references:
        if each.stage is None or each.rule is not None:
            yield checkpoint_name(resolve_checkpoint(run, each))
            continue
        steps = run.checkpoint_steps(each.stage)
        if each.which == "last":
            steps = steps[-1:]
        elif each.which == "step":
            steps = [step for step in steps if step == each.step]
        yield from (f"{each.stage}.step-{step:06d}" for step in steps)
