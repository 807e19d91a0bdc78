"""Picks a few items to show: gained, lost or unchanged between the control and the last checkpoint.

Questions are read from the experiment's own sources, because records keep answers only.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.compare.table import Pairing, Table
from assay.data.hashing import canonical_json
from assay.data.row import Row
from assay.errors import AssayError
from assay.lab.setup.prepare import rows_by_id
from assay.pages.facts import RunFacts
from assay.pages.words import flat, visible
from assay.runs.records import FACTS, transcript
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import experiment_of
from assay.tasks.task import BenchmarkOptions, benchmark, task

LONGEST = 3000
"""Characters of a text that a page shows."""
SHOWN = 3
KINDS = ("gained", "lost", "unchanged")


@dataclass(frozen=True, slots=True)
class Answer:
    """One completion as a page shows it."""

    sample_id: str
    text: str
    score: float | None
    error: str
    why: str
    ended: str
    tokens: int | None
    facts: tuple[tuple[str, str], ...] = ()
    """Name and value of what the reward noted."""


@dataclass(frozen=True, slots=True)
class Example:
    """One item, answered before and after."""

    control: str
    """The checkpoint that answered before."""
    kind: str
    """gained, lost or unchanged."""
    item: str
    question: str
    """The last user message; empty where it could not be read."""
    gold: str
    before: Answer
    after: Answer


@dataclass(frozen=True, slots=True)
class Examples:
    """The examples of a page."""

    control: str
    other: str
    shown: tuple[Example, ...]
    problem: str = ""
    """Why the questions are missing; "" if they are not."""


def examples(facts: RunFacts, table: Table) -> Examples | None:
    """Three items by kind of change, the control against the last checkpoint.

    None if only the control was measured.
    """
    last = table.lines[-1]
    if last.to_control is None:
        return None
    pairings = [p for p in (last.to_control, last.to_previous) if p is not None]
    answers = {
        name: {a["item_id"]: a for a in facts.answers(table.evaluation, name) if a["repeat"] == 0}
        for name in (last.name, *(p.control for p in pairings))
    }
    problem, rows = "", {}
    try:
        rows = item_rows(facts.run, table.evaluation.name)
    except AssayError as error:
        problem = str(error)
    after = answers[last.name]
    shown = [
        _example(control, kind, item, rows.get(item), answers[control][item], after[item])
        for kind, control, item in pick(pairings, after)
    ]
    return Examples(table.control.name, last.name, tuple(shown), problem)


def pick(
    pairings: Sequence[Pairing], after: Mapping[str, Mapping[str, Any]]
) -> list[tuple[str, str, str]]:
    """Three of (kind, control, item), fewer only where there are fewer items.

    The first item of each kind, against the control if it has one; where a kind has none, further
    items of the others. Among the unchanged, those that are still wrong come first.
    """
    ranked: list[tuple[int, str, str, str]] = []
    taken: set[str] = set()
    for kind in KINDS:
        found = [(p.control, item) for p in pairings for item in _of_kind(p, kind, after)]
        for rank, (control, item) in enumerate(found[:SHOWN]):
            if item not in taken:
                taken.add(item)
                ranked.append((rank, kind, control, item))
    chosen = sorted(ranked, key=lambda entry: entry[0])[:SHOWN]
    return sorted((entry[1:] for entry in chosen), key=lambda e: KINDS.index(e[0]))


def _of_kind(pairing: Pairing, kind: str, after: Mapping[str, Mapping[str, Any]]) -> Sequence[str]:
    items = getattr(pairing.flips, kind)
    if kind != "unchanged":
        return items
    return sorted(items, key=lambda item: after[item]["score"] != 0)


def item_rows(run: RunDirectory, evaluation: str) -> Mapping[str, Row]:
    """The items of an evaluation by id, from their source; empty for one that the experiment file
    does not name. Raises what reading the source raises.
    """
    experiment = experiment_of(run)
    spec = experiment.evaluate.get(evaluation)
    if spec is None:
        return {}
    skill = task(experiment.task, run.root)
    if spec.benchmark is not None:
        options = BenchmarkOptions(spec.options, run.root)
        rows: Sequence[Row] = benchmark(skill, spec.benchmark, options).items
    else:
        return rows_by_id(experiment, (spec.data or "").partition(".")[0], run.root)
    return {row.id: row for row in rows}


def asked(row: Row | None) -> tuple[str, str]:
    """The question of an item, its last user message, and the accepted answer; "" where unknown."""
    if row is None:
        return "", ""
    questions = [m.content for m in row.messages if m.role == "user"]
    return shortened(questions[-1]) if questions else "", shortened(_gold_text(row))


def shortened(text: str) -> str:
    """Text safe to show, cut where it is long, saying how much is missing."""
    text = visible(text)
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]} … (+{len(text) - LONGEST:,})"


def _example(
    control: str,
    kind: str,
    item: str,
    row: Row | None,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
) -> Example:
    return Example(control, kind, item, *asked(row), _answer(before), _answer(after))


def _gold_text(row: Row) -> str:
    """The gold answer as the data has it."""
    if row.gold is None:
        target = row.messages[-1]
        return target.content if target.role == "assistant" else ""
    return row.gold if isinstance(row.gold, str) else canonical_json(row.gold)


def _answer(line: Mapping[str, Any]) -> Answer:
    said = transcript(line["messages"]) if line.get("messages") else line["output"]
    return Answer(
        sample_id=line["sample_id"],
        text=shortened(said),
        score=line["score"],
        error=line["error"],
        why=visible(line["why"]),
        ended=line["ended"],
        tokens=line["completion_tokens"],
        facts=tuple(
            (flat(name), shortened(str(value)))
            for name, value in json.loads(line.get(FACTS) or "{}").items()
        ),
    )
