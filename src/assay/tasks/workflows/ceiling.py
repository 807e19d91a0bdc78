"""Measures what fixed workflows reach on an experiment's problems with its executor model, and
whether a policy has anything to win: the best workflow, that of each type of problem, and the best
choice per problem.

Needs the evaluation and the executor; what is trained is not opened. Nothing is recorded.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from assay.data.episode import Completion
from assay.data.row import Row
from assay.data.splits import conversation_of
from assay.experiment.experiment import Experiment
from assay.judge.intervals import Estimate, score_interval
from assay.judge.paired import compare
from assay.judge.scores import ItemScores
from assay.judge.verdict import Comparison
from assay.lab.ceiling.ceiling import CeilingRequest, NoPools, first, opened
from assay.lab.check.all_checks import tell_choices
from assay.lab.monitor.observer import Observer
from assay.lab.setup.session import Session
from assay.pages.page import Block, Bullets, Column, Line, Table
from assay.runs.run_directory import RunDirectory
from assay.tasks.helper_model import Caller, find_helper
from assay.tasks.workflows.execution import total
from assay.tasks.workflows.fixed_workflows import FIXED_SOURCES
from assay.tasks.workflows.policy_prompt import fenced
from assay.tasks.workflows.problems import PROBLEM_TYPE
from assay.tasks.workflows.rewards import EXECUTOR
from assay.tasks.workflows.run_program import Attempt, RunSettings, run_all

HINDSIGHT, CHOSEN, BY_TYPE = "best per problem, in hindsight", "best per problem", "best per type"
LEAST_GAP = 0.05
"""A smaller gap between the best workflow per type and the best of all leaves little to win."""


@dataclass(frozen=True, slots=True)
class WorkflowLine:
    """One workflow, or one way to choose among them, on the problems of a type or on all."""

    workflow: str
    problem_type: str
    """"all", or the type."""
    score: Estimate
    cost: float | None
    """Mean cost of a problem; None where a price is not known, or for a choice."""
    tokens: float | None
    """Tokens that a problem's questions and answers have, mean; None for a choice."""
    questions: float | None
    outcomes: Mapping[str, int]
    """Empty for a choice."""
    gap: Comparison | None = None
    """This line minus the best workflow of all, item by item; None for that one."""


@dataclass(frozen=True, slots=True)
class WorkflowCeiling:
    """What fixed workflows reach."""

    experiment: str
    evaluation: str
    benchmark: str
    executor: str
    """The source of the executor model."""
    items: int
    repeats: int
    best: str
    """The fixed workflow with the highest score on all items."""
    best_by_type: Mapping[str, str]
    lines: tuple[WorkflowLine, ...]
    cpu_seconds: float
    warnings: tuple[str, ...]


Attempts = Mapping[str, Sequence[Sequence[Attempt]]]
"""By workflow, repeat and item."""


def measured(
    experiment: Experiment, root: Path, request: CeilingRequest, observer: Observer
) -> tuple[WorkflowCeiling, list[Block]]:
    """The hook of the task: see `measure_workflows`, and the blocks that show it."""
    found = measure_workflows(experiment, root, request, observer)
    return found, blocks_of(found)


def measure_workflows(
    experiment: Experiment, root: Path, request: CeilingRequest, observer: Observer
) -> WorkflowCeiling:
    """Measure the fixed workflows of an experiment in the lab at `root`; `request.draws` is the
    number of repeats. Raises NoPools and UnknownHelper."""
    session = Session(experiment, RunDirectory(root, experiment.name, "ceiling"), 0, observer)
    tell_choices(session)
    name = problems_in(session, request)
    rows = first(opened(session, name).items, request.items)
    model = find_helper(session.helpers, EXECUTOR, "model")
    began = time.process_time()
    attempts = {}
    sources = sources_for(rows)
    for done, (workflow, programs) in enumerate(sources.items()):
        observer.evaluation(name, workflow, done, len(sources))
        texts = {kind: fenced(program) for kind, program in programs.items()}
        pairs = [
            [(row, Completion(texts[kind_of(row)], id=f"{row.id}#{repeat}")) for row in rows]
            for repeat in range(request.draws)
        ]
        caller = Caller(stage=f"ceiling {workflow}")
        attempts[workflow] = [run_all(each, model, RunSettings(), caller) for each in pairs]
    lines = lines_of(rows, attempts)
    spec = experiment.evaluate[name]
    return WorkflowCeiling(
        experiment=experiment.name,
        evaluation=name,
        benchmark=spec.benchmark or spec.data or "",
        executor=experiment.helpers[EXECUTOR].source,
        items=len(rows),
        repeats=request.draws,
        best=best_of(attempts, range(len(rows))),
        best_by_type=best_by_type(rows, attempts),
        lines=lines,
        cpu_seconds=time.process_time() - began,
        warnings=tuple(warnings_of(lines)),
    )


def sources_for(rows: Sequence[Row]) -> Mapping[str, Mapping[str, str]]:
    """The fixed workflows that differ on these problems: of those alike the first."""
    kinds = {kind_of(row) for row in rows}
    seen: dict[tuple[str, ...], str] = {}
    for name, programs in FIXED_SOURCES.items():
        seen.setdefault(tuple(programs[kind] for kind in sorted(kinds)), name)
    return {name: FIXED_SOURCES[name] for name in seen.values()}


def kind_of(row: Row) -> str:
    """The kind of program that a problem takes."""
    return "code" if row.extra[PROBLEM_TYPE] == "code" else "text"


def problems_in(session: Session, request: CeilingRequest) -> str:
    """The evaluation whose items are problems. Raises NoPools."""
    names = [request.evaluation] if request.evaluation else [*session.experiment.evaluate]
    for name in names:
        if name in session.experiment.evaluate:
            rows = opened(session, name).items
            if rows and all(PROBLEM_TYPE in row.extra for row in rows):
                return name
    fix = 'add [evaluate.test] with a benchmark of task = "workflows"'
    raise NoPools("no evaluation whose items are problems", field="evaluate", fix=fix)


def scores(attempts: Sequence[Sequence[Attempt]]) -> np.ndarray:
    """Scores (items, repeats); 0 where a program did not answer, NaN for an abstention."""

    def value(attempt: Attempt) -> float:
        failed = attempt.execution.outcome == "executor failure"
        return float("nan") if failed else (attempt.score or 0.0)

    return np.array([[value(each) for each in repeat] for repeat in attempts]).T


def best_of(attempts: Attempts, places: Sequence[int]) -> str:
    """The workflow with the highest mean score on the items at `places`."""
    chosen = list(places)
    return max(attempts, key=lambda name: float(np.nanmean(scores(attempts[name])[chosen])))


def best_by_type(rows: Sequence[Row], attempts: Attempts) -> dict[str, str]:
    """The best workflow of each type of problem."""
    return {kind: best_of(attempts, places) for kind, places in types_of(rows).items()}


def types_of(rows: Sequence[Row]) -> dict[str, list[int]]:
    """The places of the items of each type, sorted by type."""
    found: dict[str, list[int]] = {}
    for n, row in enumerate(rows):
        found.setdefault(row.extra[PROBLEM_TYPE], []).append(n)
    return dict(sorted(found.items()))


def lines_of(rows: Sequence[Row], attempts: Attempts) -> tuple[WorkflowLine, ...]:
    """The lines of the table: all items first, then those of each type."""
    everything = {"all": list(range(len(rows)))}
    types = types_of(rows)
    sides = everything | types if len(types) > 1 else everything
    lines = []
    for kind, places in sides.items():
        best = best_of(attempts, places)
        for name in attempts:
            lines.append(_line(rows, attempts, kind, places, name, best))
        against = _items(rows, np.nan_to_num(scores(attempts[best])), places)
        for name, values in choices(rows, attempts, kind):
            own = _items(rows, values, places)
            gap = compare(against, own)
            lines.append(WorkflowLine(name, kind, _estimate(own), None, None, None, {}, gap))
    return tuple(lines)


def choices(rows: Sequence[Row], attempts: Attempts, kind: str) -> list[tuple[str, np.ndarray]]:
    """Ways to choose with their scores (items, repeats): the best workflow of an item's type, the
    best of an item on its other repeats, and in hindsight."""
    names = [*attempts]
    values = np.stack([scores(attempts[name]) for name in names])  # workflows, items, repeats
    filled = np.nan_to_num(values, nan=0.0)
    found = []
    if kind == "all":
        by_type = best_by_type(rows, attempts)
        picked = [names.index(by_type[row.extra[PROBLEM_TYPE]]) for row in rows]
        found.append((BY_TYPE, filled[picked, np.arange(len(rows))]))
    if filled.shape[2] > 1:
        others = filled.sum(axis=2, keepdims=True) - filled
        overall = filled.mean(axis=(1, 2))[:, None, None] * 1e-6  # ties go to the better workflow
        pick = np.argmax(others + overall, axis=0)
        found.append((CHOSEN, np.take_along_axis(filled, pick[None], axis=0)[0]))
    found.append((HINDSIGHT, filled.max(axis=0)))
    return found


def _items(rows: Sequence[Row], values: np.ndarray, places: Sequence[int]) -> ItemScores:
    ids = tuple(rows[n].id for n in places)
    clusters = tuple(conversation_of(rows[n]) for n in places)
    return ItemScores(ids, values[list(places)], None if clusters == ids else clusters)


def _estimate(own: ItemScores) -> Estimate:
    return Estimate(own.mean, score_interval(own), len(own.item_ids), own.sources)


def _line(
    rows: Sequence[Row],
    attempts: Attempts,
    kind: str,
    places: Sequence[int],
    name: str,
    best: str,
) -> WorkflowLine:
    own = _items(rows, scores(attempts[name]), places)
    executions = [repeat[n].execution for repeat in attempts[name] for n in places]
    cost = total(each.cost for each in executions)
    calls = [each.calls for each in executions]
    tokens = [sum(c.prompt_tokens + c.completion_tokens for c in each) for each in calls]
    asked = [sum(c.questions for c in each) for each in calls]
    gap = None
    if name != best:
        gap = compare(_items(rows, scores(attempts[best]), places), own)
    return WorkflowLine(
        name,
        kind,
        _estimate(own),
        None if cost is None else cost / len(executions),
        float(np.mean(tokens)),
        float(np.mean(asked)),
        dict(Counter(each.outcome for each in executions).most_common()),
        gap,
    )


def warnings_of(lines: Sequence[WorkflowLine]) -> list[str]:
    """What makes the problems a poor task for a policy."""
    said = []
    fixed = [line for line in lines if line.problem_type == "all" and line.outcomes]
    chosen = [line for line in lines if line.problem_type == "all" and line.workflow == BY_TYPE]
    best = max(line.score.value for line in fixed)
    if not 0.1 <= best <= 0.8:
        said.append(
            f"the best fixed workflow reaches {best:.1%}: take problems that the executor solves "
            "between 10 % and 80 %, or another executor"
        )
    for line in chosen:
        if line.score.value - best < LEAST_GAP:
            said.append(
                f"choosing by type adds {(line.score.value - best) * 100:.1f} points to the best "
                "fixed workflow: only a choice per problem could win more"
            )
    failures = sum(line.outcomes.get("executor failure", 0) for line in fixed)
    if failures:
        said.append(f"{failures} programs have no score, because the executor failed")
    return said


HEADS = (
    *("workflow", "problems", "solved", "95% interval", "to the best", "questions", "tokens"),
    *("cost", "other outcomes"),
)
USUAL = ("solved", "wrong")


def blocks_of(found: WorkflowCeiling) -> list[Block]:
    """The table and what the choices are."""
    times = f", {found.repeats} times each" if found.repeats > 1 else ""
    title = f"{found.benchmark}: {found.items} problems{times}, executor {found.executor}"
    columns = [Column(head, right=place > 1) for place, head in enumerate(HEADS)]
    types = ", ".join(f"{kind}: {name}" for kind, name in found.best_by_type.items())
    per_problem = ["best per problem: chosen by the other repeats of the problem"]
    sentences = [
        f"best of all: {found.best}; by type: {types}",
        "best per type and best per problem are chosen on these problems: they flatter",
        *(per_problem if found.repeats > 1 else []),
        "in hindsight: the best workflow of each problem and repeat, an upper bound that luck "
        "raises",
        "questions, tokens and cost: of a problem, mean",
        f"{found.cpu_seconds:.0f} CPU-seconds",
    ]
    return [Table(columns, [_cells(line) for line in found.lines], title), Bullets(sentences)]


def _cells(line: WorkflowLine) -> list[Line]:
    """The cells of a line, as HEADS; those of how often and how much are blank for a choice."""
    gap, limits, cost = "best", "", ""
    if line.gap is not None:
        low, high = line.gap.interval.low * 100, line.gap.interval.high * 100
        gap = f"{line.gap.difference * 100:+.1f} ({low:+.1f} to {high:+.1f})"
    if line.score.interval is not None:
        limits = f"{line.score.interval.low:.1%} to {line.score.interval.high:.1%}"
    if line.questions is not None:
        cost = "N/A" if line.cost is None else f"{line.cost:.3g}"
    others = [f"{count} {name}" for name, count in line.outcomes.items() if name not in USUAL]
    return [
        line.workflow,
        line.problem_type,
        f"{line.score.value:.1%}",
        limits,
        gap,
        "" if line.questions is None else f"{line.questions:.1f}",
        "" if line.tokens is None else f"{line.tokens:.0f}",
        cost,
        ", ".join(others),
    ]
