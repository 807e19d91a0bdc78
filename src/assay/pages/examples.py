"""Questions with their answers side by side.

Questions are read from the experiment's own sources, because records keep answers only.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from assay.data.hashing import canonical_json
from assay.data.row import Row
from assay.lab.data.prepare import rows_by_id
from assay.pages.page import Answer, Block, Line, SideBySide
from assay.pages.words import Words, flat, number, visible
from assay.runs.records import FACTS, transcript
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import experiment_of
from assay.tasks.task import BenchmarkOptions, benchmark, task

LONGEST = 3000
"""Characters of a text that a page shows."""


def question_blocks(
    title: Line,
    row: Row | None,
    sides: Sequence[tuple[str, Mapping[str, Any] | None]],
    words: Words,
) -> list[Block]:
    """A question with its answers side by side; nothing where one of them is not there."""
    answers = [answer_view(label, line, words) for label, line in sides if line is not None]
    question, gold = question_and_gold(row)
    whole = SideBySide(title, question, answers, gold, words("page.gold"))
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
    text = transcript(line["messages"]) if line.get("messages") else line["output"]
    noted = json.loads(line.get(FACTS) or "{}").items()
    facts = tuple((flat(name), shortened(str(value))) for name, value in noted)
    return Answer(label, result, shortened(text), facts, f"{line['sample_id']} · {note}")


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


def question_and_gold(row: Row | None) -> tuple[str, str]:
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
