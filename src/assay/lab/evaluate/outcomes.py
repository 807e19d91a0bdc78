"""What became of the answers of one evaluation record: counts of outcomes, reasons, differences.

Counts only; what they mean for a score is `judge.missing`'s to say.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from assay.judge.verdict import FEW_UNSCORED
from assay.runs.records import read_columns

RIGHT, WRONG = "right", "wrong"
DIFFERS = "differs_from_math_verify"
"""The part by which a reward says that a judge it rests on came to another verdict."""


@dataclass(frozen=True, slots=True)
class RecordedOutcomes:
    """The answers of a record, counted; the most frequent kinds first."""

    answers: int
    outcomes: Mapping[str, int]
    """Right and wrong answers and types of errors; those without a score are not among them."""
    unscored: Mapping[str, int]
    """Why answers have no score, by kind: "endpoint: HTTP 400", whatever the server said of it."""
    differs: int | None
    """Answers with `DIFFERS`; None where no answer has that part."""

    @property
    def too_many_unscored(self) -> str:
        """The warning of more answers without a score than may be passed over; else empty."""
        missing = sum(self.unscored.values())
        if missing <= FEW_UNSCORED * self.answers:
            return ""
        why = next(iter(self.unscored))
        return (
            f"{missing} of {self.answers} answers ({missing / self.answers:.1%}, more than "
            f"{FEW_UNSCORED:.0%}) have no score, most often: {why}; no verdict is given that they "
            "could undo"
        )


def recorded_outcomes(file: Path) -> RecordedOutcomes:
    """Reads a record's columns. Raises DamagedRecord."""
    columns = read_columns(file, ["score", "error", "why", "parts"])
    lines = list(zip(columns["score"], columns["error"], columns["why"], strict=True))
    scored = Counter(kind(score, error) for score, error, _ in lines if score is not None)
    unscored = Counter(": ".join(why.split(": ")[:2]) for score, _, why in lines if score is None)
    marks = [json.loads(text).get(DIFFERS) for text in columns["parts"] if DIFFERS in text]
    differs = sum(mark == 1.0 for mark in marks) if marks else None
    return RecordedOutcomes(
        len(lines), dict(scored.most_common()), dict(unscored.most_common()), differs
    )


def kind(score: float, error: str) -> str:
    """What a scored answer counts as."""
    return error or (RIGHT if score >= 1.0 else WRONG)
