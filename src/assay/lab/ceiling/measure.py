"""Measures what demonstrations can do at all on an experiment's evaluation, and whether a selector
has anything to win: the gap between the best selection of a pool and a random one.

Needs the evaluation and the frozen model; what is trained is not opened. Nothing is recorded: an
outcome that is asked again comes out of the cache of outcomes.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from assay.data.row import Row
from assay.data.splits import conversation_of
from assay.errors import nearest
from assay.experiment.experiment import Experiment
from assay.judge.intervals import Estimate, counted, grouped, score_interval
from assay.judge.paired import compare
from assay.judge.scores import ItemScores
from assay.judge.verdict import Comparison
from assay.lab.ceiling.arms_asked import (
    ORACLE,
    RANDOM,
    SIMILAR,
    ZERO,
    ArmKey,
    AskedArms,
    Plan,
    ask_arms,
)
from assay.lab.ceiling.ceiling import CeilingRequest, NoPools, first, opened
from assay.lab.monitor.observer import Observer
from assay.lab.setup.session import Session
from assay.runs.run_directory import RunDirectory
from assay.tasks.demos.demonstrations import POOL, SHOTS
from assay.tasks.demos.frozen import FROZEN, Selection, ask
from assay.tasks.demos.oracle_search import Tried
from assay.tasks.demos.outcomes import SelectionOutcome
from assay.tasks.demos.pools import right_answers
from assay.tasks.helper_model import find_helper

LEAST_GAP = 0.10
"""A smaller gap between oracle and random leaves a selector nothing to win."""
LEAST_SHOTS = 2
"""The best single and the best pair are always searched."""


@dataclass(frozen=True, slots=True)
class ArmLine:
    """One arm of the table."""

    kind: str
    shots: int
    score: Estimate
    against: str
    """The kind of the arm that it is compared with; "" for none."""
    gap: Comparison | None
    """This arm minus that one, item by item."""
    share: float | None = None
    """The share of the gap between random and oracle that it closes; None where there is none."""


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """What bounds the gap."""

    answer_in_pool: Estimate
    """Items of whose pool at least one demonstration has a right answer."""
    with_answer: Estimate | None
    """Accuracy after a single demonstration that has a right answer; None where none has."""
    without_answer: Estimate | None
    predictions: float
    """Different predictions of an item after the single demonstrations of its pool; mean."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What demonstrations can do."""

    experiment: str
    evaluation: str
    benchmark: str
    frozen: str
    """The source of the frozen model."""
    items: int
    pool: int
    draws: int
    breadth: int | None
    lines: tuple[ArmLine, ...]
    diagnostics: Diagnostics
    asked: int
    """Selections that the frozen model was asked with."""
    cpu_seconds: float
    warnings: tuple[str, ...]


def measure_demonstrations(
    experiment: Experiment, root: Path, request: CeilingRequest, observer: Observer
) -> Ceiling:
    """Measure the ceiling of an experiment in the lab at `root`.

    Raises NoPools, UnknownHelper and HelperFailed.
    """
    nowhere = RunDirectory(root, experiment.name, "ceiling")
    session = Session(experiment, nowhere, experiment.seeds[0], observer)
    name, rows = items_of(session, request)
    frozen = find_helper(session.helpers, FROZEN, "model")
    pool = min(len(row.extra[POOL]) for row in rows)
    shots = min(max(LEAST_SHOTS, *(row.extra[SHOTS] for row in rows)), pool)
    plan = Plan(shots, request.draws, request.breadth, session.seed)

    def asked(selections: Sequence[Selection]) -> list[SelectionOutcome]:
        return ask(frozen, selections)

    def done(items: int) -> None:
        observer.evaluation(name, "ceiling", items, len(rows))

    began = time.process_time()
    found = ask_arms(asked, rows, plan, done)
    lines = lines_of(rows, found, shots)
    return Ceiling(
        experiment=experiment.name,
        evaluation=name,
        benchmark=experiment.evaluate[name].benchmark or experiment.evaluate[name].data or "",
        frozen=experiment.helpers[FROZEN].source,
        items=len(rows),
        pool=pool,
        draws=request.draws,
        breadth=request.breadth,
        lines=lines,
        diagnostics=diagnostics_of(rows, found),
        asked=found.asked,
        cpu_seconds=time.process_time() - began,
        warnings=tuple(warnings_of(lines)),
    )


def items_of(session: Session, request: CeilingRequest) -> tuple[str, tuple[Row, ...]]:
    """The evaluation's name and items. Raises NoPools, and SplitError for more items than are."""
    tables = session.experiment.evaluate
    if request.evaluation is not None and request.evaluation not in tables:
        problem = f"no evaluation {request.evaluation!r}"
        raise NoPools(problem, field="evaluate", fix=nearest(request.evaluation, tables))
    for name in [request.evaluation] if request.evaluation else tables:
        rows = opened(session, name).items
        if rows and all(POOL in row.extra for row in rows):
            return name, first(rows, request.items)
    fix = 'add [evaluate.test] with a benchmark of task = "demos"'
    raise NoPools("no evaluation whose items pick demonstrations", field="evaluate", fix=fix)


def lines_of(rows: Sequence[Row], found: AskedArms, shots: int) -> tuple[ArmLine, ...]:
    """The lines of the table: zero-shot, then the other arms by the number of shots."""
    scores = {key: scores_of(rows, tried) for key, tried in found.arms.items()}
    lines = [_line(scores, (ZERO, 0), None)]
    for shot in range(1, shots + 1):
        lines.append(_line(scores, (RANDOM, shot), (ZERO, 0)))
        lines += [_line(scores, (kind, shot), (RANDOM, shot)) for kind in (SIMILAR, ORACLE)]
    return tuple(lines)


def _line(scores: dict[ArmKey, ItemScores], key: ArmKey, against: ArmKey | None) -> ArmLine:
    own = scores[key]
    score = Estimate(own.mean, score_interval(own), len(own.item_ids), own.sources)
    if against is None:
        return ArmLine(*key, score, "", None)
    share = None
    if against[0] == RANDOM:
        low, high = scores[against].mean, scores[ORACLE, key[1]].mean
        share = (own.mean - low) / (high - low) if high > low else None
    return ArmLine(*key, score, against[0], compare(scores[against], own), share)


def scores_of(rows: Sequence[Row], tried: Sequence[Sequence[Tried]]) -> ItemScores:
    """The accuracy of an arm by item, its draws as repeats."""
    values = [[each.outcome.accuracy.score for each in of_item] for of_item in tried]
    clusters = tuple(conversation_of(row) for row in rows)
    ids = tuple(row.id for row in rows)
    return ItemScores(ids, np.array(values), None if clusters == ids else clusters)


def diagnostics_of(rows: Sequence[Row], found: AskedArms) -> Diagnostics:
    """What the single demonstrations of the pools say."""
    helpful = [frozenset(right_answers(row)) for row in rows]
    sides: dict[bool, tuple[list[float], list[str]]] = {True: ([], []), False: ([], [])}
    for row, numbers, singles in zip(rows, helpful, found.singles, strict=True):
        for each in singles:
            values, groups = sides[each.picks[0] in numbers]
            values.append(each.outcome.accuracy.score)
            groups.append(conversation_of(row))
    with_answer, without = (
        grouped(*sides[side], (0.0, 1.0)) if sides[side][0] else None for side in (True, False)
    )
    different = [len({each.outcome.prediction for each in singles}) for singles in found.singles]
    share = sum(map(bool, helpful)) / len(rows)
    return Diagnostics(counted(share, len(rows)), with_answer, without, float(np.mean(different)))


def warnings_of(lines: Sequence[ArmLine]) -> list[str]:
    """Gaps between oracle and random that leave a selector little to win."""
    said = []
    for line in lines:
        if line.kind != ORACLE or line.gap is None:
            continue
        gap, low = line.gap.difference, line.gap.interval.low
        many = f"{line.shots} shot" + "s" * (line.shots > 1)
        if gap < LEAST_GAP:
            said.append(
                f"{many}: oracle - random is {gap * 100:.1f} points, less than "
                f"{LEAST_GAP * 100:.0f}: a selector has nothing to win here (take a larger pool, "
                "another task or another frozen model)"
            )
        elif low < LEAST_GAP:
            said.append(
                f"{many}: oracle - random may be as little as {low * 100:.1f} points (measure more "
                "items)"
            )
    return said
