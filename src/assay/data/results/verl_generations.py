"""Generations that verl dumps: `STEP.jsonl` in `trainer.validation_data_dir` or `rollout_data_dir`.

The file names no items: an item is its prompt and ground truth, and a repeat is another generation
for the same two. Of a conversation, whose outputs stand in lines of their own, the last output is
the answer, as in verl's own figures. `score` and every other column of numbers is a metric.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from assay.data.hashing import content_id
from assay.data.json_files import read_jsonl
from assay.data.raw_record import Record
from assay.data.results.foreign_result import (
    SCORE,
    Answer,
    Clusters,
    Result,
    numbered,
    score,
    score_columns,
)

KEYS = frozenset({"input", "output", "score", "step"})
OTHERS = ("input", "output", "gts", "step", "uid")


@dataclass(frozen=True, slots=True)
class _Session:
    """The lines of one generation, from the prompt to the answer."""

    first: Record
    last: Record


def read(path: Path, cluster: str | None = None) -> list[Result]:
    """One result for each metric; `cluster` is the column of sources. Raises DataError."""
    sessions = _sessions(read_jsonl(path))
    last = [session.last for session in sessions]
    for record in last:
        score(record, SCORE)
    places = list(numbered(_item(session) for session in sessions))
    sources = Clusters(cluster)
    for (item, _), record in zip(places, last, strict=True):
        sources.take(record, item, record.value)
    return [
        Result(
            run=f"{path.parent.name}/{path.stem}",
            file=str(path),
            format="verl",
            metric=metric,
            answers=tuple(
                Answer(item, n, score(r, metric), r.maybe("output", str))
                for (item, n), r in zip(places, last, strict=True)
            ),
            clusters=sources.by_item,
        )
        for metric in score_columns(last, *OTHERS, sources.key)
    ]


def _item(session: _Session) -> str:
    return content_id([session.first.need("input", str), session.first.value.get("gts")])


def _sessions(records: Iterable[Record]) -> list[_Session]:
    """Lines whose `uid` is SAMPLE_SESSION_OUTPUT belong together; any other line is by itself."""
    found: dict[tuple[str, ...], _Session] = {}
    for record in records:
        uid = record.value.get("uid")
        parts = uid.rsplit("_", 2) if isinstance(uid, str) else []
        key = tuple(parts[:2]) if len(parts) == 3 else (record.origin,)
        found[key] = _Session(found[key].first if key in found else record, record)
    return list(found.values())
