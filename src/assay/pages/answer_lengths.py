"""Tokens of answers against whether they are right: step by step in training, and of one record.

Truncated answers, whose length is the limit's, are counted apart. Reads no files and draws nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.judge.intervals import Interval, counted, grouped
from assay.runs.history import Sample
from assay.runs.records import OUTCOME, RIGHT, outcome

CUT = "length"
"""How a completion ended that was cut at the limit of tokens."""
MOST_BINS, FEWEST_IN_BIN = 6, 8


@dataclass(frozen=True, slots=True)
class Lengths:
    """The completions of one step by their outcome; truncated ones are left out of both means."""

    step: int
    right: float | None
    """Mean tokens of right completions; None where there is none."""
    wrong: float | None
    completions: int
    """Right and wrong ones, without truncated ones."""
    truncated: int


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


def lengths_of_step(step: int, samples: Iterable[Sample]) -> Lengths | None:
    """The lengths of one step's completions; None where no outcome was recorded."""
    scored = [each for each in samples if each.reward is not None]
    if not any(each.outcome for each in scored):
        return None
    ended = [each for each in scored if each.ended != CUT]
    right = [each.length for each in ended if each.outcome == RIGHT]
    wrong = [each.length for each in ended if each.outcome != RIGHT]
    return Lengths(step, _mean(right), _mean(wrong), len(ended), len(scored) - len(ended))


def _mean(values: Sequence[int]) -> float | None:
    return sum(values) / len(values) if values else None


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
