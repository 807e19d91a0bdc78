"""Picks a few items to show: gained, lost or unchanged between the control and the last checkpoint.

Questions are read from the experiment's own sources, because records keep answers only.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from assay.compare.table import Pairing
from assay.data.hashing import canonical_json
from assay.data.row import Row
from assay.errors import AssayError
from assay.lab.setup.prepare import rows_by_id
from assay.pages.facts import RunFacts
from assay.pages.page import Answer, Block, Line, Mark, Question, Text
from assay.pages.result_tables import checkpoint_label
from assay.pages.words import Words, flat, number, visible
from assay.runs.records import FACTS, transcript
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import experiment_of
from assay.tasks.task import BenchmarkOptions, benchmark, task

LONGEST = 3000
"""Characters of a text that a page shows."""
SHOWN = 3
KINDS = ("gained", "lost", "unchanged")


BADGES = {"gained": "better", "lost": "worse", "unchanged": "plain"}


def example_blocks(facts: RunFacts, words: Words) -> list[Block]:
    """Three items by kind of change with both answers, the control against the last checkpoint;
    nothing if only the control was measured."""
    table = facts.main.table if facts.main else None
    if table is None or table.lines[-1].to_control is None:
        return []
    last = table.lines[-1]
    pairings = [p for p in (last.to_control, last.to_previous) if p is not None]
    answers = {
        name: {a["item_id"]: a for a in facts.answers(table.evaluation, name) if a["repeat"] == 0}
        for name in (last.name, *(p.control for p in pairings))
    }
    missing, rows = [], {}
    try:
        rows = item_rows(facts.run, table.evaluation.name)
    except AssayError as error:
        missing = [Text(words("page.no_questions", why=visible(str(error))), "warning")]
    other = checkpoint_label(last.name, words)
    shown = []
    for kind, before, item in pick(pairings, answers[last.name]):
        title = (Mark(words(f"kind.{kind}"), BADGES[kind]), " ", Mark(item))
        sides = ((checkpoint_label(before, words), before), (other, last.name))
        both = [(label, answers[name][item]) for label, name in sides]
        shown += question_blocks(title, rows.get(item), both, words)
    return [*missing, *shown]


def question_blocks(
    title: Line,
    row: Row | None,
    sides: Sequence[tuple[str, Mapping[str, Any] | None]],
    words: Words,
) -> list[Block]:
    """A question with its answers side by side; nothing where one of them is not there."""
    answers = [answer_view(label, line, words) for label, line in sides if line is not None]
    question, gold = asked(row)
    whole = Question(title, question, answers, gold, words("page.gold"))
    return [whole] if len(answers) == len(sides) else []


def answer_view(label: str, line: Mapping[str, Any], words: Words) -> Answer:
    """A line of a record as an answer with its score."""
    if line["score"] is None:
        result = words("answer.abstained", why=visible(line["why"]) or "–")
    elif line["error"]:
        error = visible(line["error"])
        result = words("answer.error", score=number(line["score"]), error=error)
    else:
        result = words("answer.scored", score=number(line["score"]))
    length = "answer.truncated" if line["ended"] == "length" else "answer.tokens"
    # A model behind an endpoint has the counts of its server, where that gives any.
    tokens = line["completion_tokens"]
    note = words(length, tokens="?" if tokens is None else number(tokens))
    said = transcript(line["messages"]) if line.get("messages") else line["output"]
    noted = json.loads(line.get(FACTS) or "{}").items()
    facts = tuple((flat(name), shortened(str(value))) for name, value in noted)
    return Answer(label, result, shortened(said), facts, f"{line['sample_id']} · {note}")


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


def _gold_text(row: Row) -> str:
    """The gold answer as the data has it."""
    if row.gold is None:
        target = row.messages[-1]
        return target.content if target.role == "assistant" else ""
    return row.gold if isinstance(row.gold, str) else canonical_json(row.gold)
