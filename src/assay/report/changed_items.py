"""The items on which two checkpoints scored differently: every one by its address, some with both
answers.

Answers are read from the records that the table names; text that a model wrote is only made safe
to show here, the templates escape it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.compare.table import Line, Pairing, Table
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


def flipped_section(
    table: Table, pairing: Pairing, labels: Mapping[str, str], words: Words
) -> dict[str, Any]:
    """The flips of one comparison: counts, addresses, and answers to the first of each kind."""
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
                    _example(item, (control, other), answers, labels, words)
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
    return {"item": visible(item), "sides": sides}
