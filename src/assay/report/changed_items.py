"""The items on which two checkpoints scored differently: every one by its address, some with the
question, the accepted answer and both answers.

Answers are read from the records that the table names, questions from the source of the items. Text
that a model wrote is only made safe to show here, the templates escape it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.compare.table import Line, Pairing, Table
from assay.data.row import Row
from assay.errors import AssayError
from assay.report.examples import asked, item_rows
from assay.report.words import Words, number, visible
from assay.runs.records import read_columns

SHOWN = 2
"""Items of each kind that are shown with both answers."""
LONGEST = 2000
"""Characters of an answer that are shown."""


@dataclass(frozen=True, slots=True)
class Given:
    """One answer of a record."""

    text: str
    score: float | None


@dataclass(frozen=True, slots=True)
class Questions:
    """The items of an evaluation by id."""

    rows: Mapping[str, Row]
    problem: str = ""
    """Why they could not be read."""


def questions_of(table: Table) -> Questions:
    """The items that changed, as the control's source has them; none where nothing changed or no
    source is known.
    """
    pairings = [line.to_control for line in table.lines if line.to_control is not None]
    run = table.control.run
    if run is None or not any(p.flips.gained or p.flips.lost for p in pairings):
        return Questions({})
    try:
        return Questions(item_rows(run, table.evaluation.name))
    except AssayError as error:
        return Questions({}, str(error))


def changed_section(
    table: Table,
    pairing: Pairing,
    labels: Mapping[str, str],
    questions: Questions,
    words: Words,
) -> dict[str, Any]:
    """The changed items of one comparison: counts, addresses, the first of each kind in full."""
    lines = {line.name: line for line in table.lines}
    control, other = lines[pairing.control], lines[pairing.other]
    kinds = {"gained": pairing.flips.gained, "lost": pairing.flips.lost}
    shown = [item for items in kinds.values() for item in items[:SHOWN]]
    answers = {line.name: _answers(line, shown) for line in (control, other)}
    return {
        "what": words(
            "table.against", other=labels[pairing.other], control=labels[pairing.control]
        ),
        "unchanged": number(len(pairing.flips.unchanged)),
        "kinds": [
            {
                "kind": kind,
                "name": words(f"kind.{kind}"),
                "count": number(len(items)),
                "items": [visible(item) for item in items],
                "address": other.address,
                "examples": [
                    _example(item, questions, (control, other), answers, labels, words)
                    for item in items[:SHOWN]
                    if all(item in answers[line.name] for line in (control, other))
                ],
            }
            for kind, items in kinds.items()
        ],
    }


def _answers(line: Line, items: Sequence[str]) -> dict[str, Given]:
    """The first repeat of some items of a record; none of a file that another tool wrote."""
    if line.file is None or not line.address or not items:
        return {}
    found = read_columns(line.file, ["item_id", "repeat", "output", "score"])
    wanted, answers = set(items), {}
    for item, repeat, output, score in zip(*found.values(), strict=True):
        if item in wanted and repeat == 0:
            answers[item] = Given(output, score)
    return answers


def _example(
    item: str,
    questions: Questions,
    lines: tuple[Line, Line],
    answers: Mapping[str, Mapping[str, Given]],
    labels: Mapping[str, str],
    words: Words,
) -> dict[str, Any]:
    sides = []
    for line in lines:
        given = answers[line.name][item]
        text = visible(given.text)
        cut = text if len(text) <= LONGEST else f"{text[:LONGEST]} …"
        score = words("answer.scored", score=number(given.score))
        address = f"assay show '{line.address}{visible(item)}'"
        sides.append({"label": labels[line.name], "score": score, "text": cut, "show": address})
    question, gold = asked(questions.rows.get(item))
    return {"item": visible(item), "question": question, "gold": gold, "sides": sides}
