"""Tokens of a record's answers against whether they are right, as a table.

Truncated answers, whose length is the limit's, are counted apart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.judge.intervals import Interval, counted, grouped
from assay.pages.content import interval_text
from assay.pages.facts import RunFacts
from assay.pages.page import Block, Column, Table, Text
from assay.pages.result_tables import checkpoint_label
from assay.pages.words import Words, number, percent
from assay.runs.records import OUTCOME, RIGHT, outcome

CUT = "length"
"""How a completion ended that was cut at the limit of tokens."""
MOST_BINS, FEWEST_IN_BIN = 6, 8
MOST_RECORDS = 4
"""Checkpoints whose answers are shown by length: the control and the last ones."""


@dataclass(frozen=True, slots=True)
class LengthBin:
    """The scored answers of one range of lengths."""

    low: int
    high: int
    """Tokens, both included."""
    share: float
    """Of right answers."""
    interval: Interval
    answers: int


@dataclass(frozen=True, slots=True)
class LengthsOfRecord:
    """The share of right answers by length, truncated answers apart."""

    checkpoint: str
    bins: tuple[LengthBin, ...]
    truncated: LengthBin | None
    """None where none was truncated."""


def lengths_of_record(
    checkpoint: str, answers: Sequence[Mapping[str, Any]]
) -> LengthsOfRecord | None:
    """The scored answers of a record by their tokens, in bins of about equal numbers.

    None where there are too few for two bins, or an endpoint did not count tokens.
    """
    scored = [a for a in answers if a["score"] is not None and a["completion_tokens"] is not None]
    ended = sorted((a for a in scored if a["ended"] != CUT), key=lambda a: a["completion_tokens"])
    bins = tuple(map(_bin, _parted(ended)))
    if len(bins) < 2:
        return None
    cut = [a for a in scored if a["ended"] == CUT]
    return LengthsOfRecord(checkpoint, bins, _bin(cut) if cut else None)


def _parted(answers: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Sorted answers in up to MOST_BINS parts; answers of one length are in one part."""
    count = min(MOST_BINS, len(answers) // FEWEST_IN_BIN)
    parts: list[list[Mapping[str, Any]]] = []
    for place, answer in enumerate(answers):
        same = parts and parts[-1][-1]["completion_tokens"] == answer["completion_tokens"]
        if not parts or (place * count // len(answers) >= len(parts) and not same):
            parts.append([])
        parts[-1].append(answer)
    if len(parts) > 1 and len(parts[-1]) < FEWEST_IN_BIN:
        rest = parts.pop()
        parts[-1] += rest
    return parts


def _bin(answers: Sequence[Mapping[str, Any]]) -> LengthBin:
    """Wilson's interval; robust to clusters where an item was answered several times."""
    right = [float(outcome(a["score"], a["error"], a.get(OUTCOME)) == RIGHT) for a in answers]
    items = [a["item_id"] for a in answers]
    share = sum(right) / len(right)
    single = len(set(items)) == len(items)
    found = counted(share, len(right)) if single else grouped(right, items, (0.0, 1.0))
    assert found.interval is not None
    lengths = [a["completion_tokens"] for a in answers]
    return LengthBin(min(lengths), max(lengths), share, found.interval, len(answers))


def length_blocks(facts: RunFacts, words: Words) -> list[Block]:
    """The answers of the main evaluation by length, by checkpoint."""
    table = facts.main.table if facts.main else None
    if table is None:
        return []
    lines = table.lines
    shown = lines if len(lines) <= MOST_RECORDS else (lines[0], *lines[1 - MOST_RECORDS :])
    rows = [
        (checkpoint_label(line.name, words), *row)
        for line in shown
        if (found := lengths_of_record(line.name, facts.answers(table.evaluation, line.name)))
        for row in _rows(found, words)
    ]
    if not rows:
        return []
    heads = [words("table.checkpoint"), words("figure.range"), Column(words("figure.share"), True)]
    heads += [words("table.interval"), Column("n", True)]
    return [Text(words("figure.bins_about"), "soft"), Table(heads, rows)]


def _rows(found: LengthsOfRecord, words: Words) -> list[Sequence[str]]:
    bins = [(f"{each.low}–{each.high}", each) for each in found.bins]
    if found.truncated is not None:
        bins.append((words("figure.cut"), found.truncated))
    return [
        (name, percent(e.share), interval_text(e.interval, words), number(e.answers))
        for name, e in bins
    ]
