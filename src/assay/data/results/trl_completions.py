"""Completions that TRL logs with `log_completions`: `completions/completions_STEP.parquet`.

The file names no items: an item is its prompt, and a repeat is another row with the same prompt.
Every column of numbers but the step and the advantage is a reward function, and so a metric.
"""

from pathlib import Path

from assay.data.hashing import canonical_json, content_id
from assay.data.raw_record import Record
from assay.data.results.foreign_result import (
    Answer,
    Clusters,
    Result,
    numbered,
    read_rows,
    score,
    score_columns,
)

KEYS = frozenset({"step", "prompt", "completion"})
OTHERS = ("step", "prompt", "completion", "advantage", "mode")


def read(path: Path, cluster: str | None = None) -> list[Result]:
    """One result for each reward function; `cluster` is the column of sources. Raises DataError."""
    records = read_rows(path)
    places = list(numbered(content_id(r.need("prompt", str, list)) for r in records))
    sources = Clusters(cluster)
    for (item, _), record in zip(places, records, strict=True):
        sources.take(record, item, record.value)
    return [
        Result(
            run=f"{path.parent.parent.name}/{path.stem}",
            file=str(path),
            format="trl",
            metric=metric,
            answers=tuple(
                Answer(item, n, score(r, metric), _text(r))
                for (item, n), r in zip(places, records, strict=True)
            ),
            clusters=sources.by_item,
        )
        for metric in score_columns(records, *OTHERS, sources.key)
    ]


def _text(record: Record) -> str | None:
    """The completion; of a conversation, its messages."""
    completion = record.maybe("completion", str, list)
    return canonical_json(completion) if isinstance(completion, list) else completion
