"""Loads what one arm of a comparison was measured to be: scores, answers, where they lie.

Every column is read once. Whether two arms may be compared is `fairness`'s, what comes of it
`judged_table`'s.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from assay.judge.identity import is_fallback
from assay.judge.scores import ItemScores
from assay.runs.measurements import NotMeasured, measured_checkpoints
from assay.runs.records import CLUSTER, EvaluationRecord, read_columns, scores_of
from assay.runs.run_directory import RunDirectory

COLUMNS = ("item_id", "repeat", "output", "score", "parts", "error")


@dataclass(frozen=True)
class Measured:
    """A checkpoint's scores and answers."""

    name: str
    scores: ItemScores
    outputs: Mapping[tuple[str, int], str]
    """The text of every answer, by item and repeat."""
    judged: Sequence[tuple[float | None, str, str]] = ()
    """Score, error type and parts (JSON) of every answer."""
    address: str = ""
    """With an item's id behind it, what `assay show` takes."""
    file: Path | None = None
    seeds: tuple[ItemScores, ...] = ()
    """The scores of each training seed, where there are several: `scores` has them as repeats, and
    everything else is the newest run's."""

    @cached_property
    def answers(self) -> list[tuple[float | None, str, Mapping[str, float]]]:
        """Score, error type and parts of every answer."""
        parts = parts_by_text(text for _, _, text in self.judged)
        return [(score, error, parts[text]) for score, error, text in self.judged]

    @property
    def fallbacks(self) -> int:
        """Answers that were scored by a fallback metric."""
        texts = [text for _, _, text in self.judged]
        marked = marked_fallback(texts)
        return sum(text in marked for text in texts)


def parts_by_text(texts: Iterable[str]) -> dict[str, Mapping[str, float]]:
    """What the JSON texts of parts stand for; few different ones stand for thousands of answers."""
    return {text: json.loads(text) for text in set(texts)}


def marked_fallback(texts: Iterable[str]) -> set[str]:
    """The texts of parts that say that a fallback metric made the score."""
    return {text for text, parts in parts_by_text(texts).items() if is_fallback(parts)}


def load_measured(
    run: RunDirectory, record: EvaluationRecord, checkpoint: str, name: str
) -> Measured:
    """One finished record. Raises NotMeasured where there is none, DamagedRecord."""
    if not record.finished(run, checkpoint):
        known = ", ".join(measured_checkpoints(run, record)) or "none"
        problem = f"{run}: {record.name} of {checkpoint} has no finished record"
        raise NotMeasured(problem, fix=f"finished are: {known}")
    file = record.file(run.evaluations, checkpoint)
    found = read_columns(file, COLUMNS, [CLUSTER])
    places = list(zip(found["item_id"], found["repeat"], strict=True))
    return Measured(
        name=name,
        scores=scores_of(
            found["item_id"],
            found["repeat"],
            found["score"],
            found.get(CLUSTER),
            part=record.part(checkpoint),
        ),
        outputs=dict(zip(places, found["output"], strict=True)),
        judged=list(zip(found["score"], found["error"], found["parts"], strict=True)),
        address=f"{run}:{record.key}/{checkpoint}/",
        file=file,
    )


def agreement(control: Measured, other: Measured) -> float | None:
    """Share of the answers that both gave in the same words; None where one kept none."""
    both = control.outputs.keys() & other.outputs.keys()
    same = sum(control.outputs[key] == other.outputs[key] for key in both)
    return same / len(both) if both else None


def identical(measured: Iterable[Measured]) -> list[tuple[Measured, Measured]]:
    """Pairs of arms that gave the same answer to every item in every repeat."""
    first: dict[tuple[object, ...], Measured] = {}
    pairs = []
    for each in measured:
        signature = tuple(sorted(each.outputs.items()))
        if signature and signature in first:
            pairs.append((first[signature], each))
        first.setdefault(signature, each)
    return pairs
