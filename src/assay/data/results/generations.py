"""Reads completions that TRL and verl write during training, as results.

TRL's `log_completions` writes `completions/completions_STEP.parquet`: an item is its prompt, a
repeat another row with it. verl writes `STEP.jsonl` into `trainer.validation_data_dir` or
`rollout_data_dir`: an item is its prompt and ground truth, and of a conversation the last output is
the answer, as in verl's own figures. Every column of numbers but step and advantage is a metric.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from assay.data.hashing import canonical_json, content_id
from assay.data.loaded import Record
from assay.data.results.foreign_result import (
    SCORE,
    Answer,
    Clusters,
    Result,
    numbered,
    read_objects,
    read_rows,
    score,
    score_columns,
)

TRL_KEYS = frozenset({"step", "prompt", "completion"})
TRL_OTHERS = ("step", "prompt", "completion", "advantage", "mode")


def read_trl(path: Path, cluster: str | None = None) -> list[Result]:
    """One result for each reward function; `cluster` is the column of sources. Raises DataError."""
    records = read_rows(path)
    items = [content_id(record.need("prompt", str, list)) for record in records]
    run = f"{path.absolute().parent.parent.name}/{path.stem}"
    made = Result(run, str(path), "trl", "", (), higher_is_better=True)
    said = [record.maybe("completion", str, list) for record in records]
    texts = [canonical_json(each) if isinstance(each, list) else each for each in said]
    return _by_metric(made, items, records, texts, TRL_OTHERS, cluster)


def _by_metric(
    made: Result,
    items: Iterable[str],
    records: Sequence[Record],
    texts: Sequence[str | None],
    others: Sequence[str],
    cluster: str | None,
) -> list[Result]:
    """One result for each column of numbers that is none of `others`; a repeat is another record
    of the same item."""
    places = list(numbered(items))
    sources = Clusters(cluster)
    for (item, _), record in zip(places, records, strict=True):
        sources.take(record, item, record.value)
    return [
        replace(
            made,
            metric=metric,
            answers=tuple(
                Answer(item, n, score(record, metric), text)
                for (item, n), record, text in zip(places, records, texts, strict=True)
            ),
            clusters=sources.by_item,
        )
        for metric in score_columns(records, *others, sources.key)
    ]


VERL_KEYS = frozenset({"input", "output", "score", "step"})
VERL_OTHERS = ("input", "output", "gts", "step", "uid")


def read_verl(path: Path, cluster: str | None = None) -> list[Result]:
    """One result for each metric; `cluster` is the column of sources. Raises DataError."""
    # Lines whose `uid` is SAMPLE_SESSION_OUTPUT belong together, from the prompt to the answer.
    sessions: dict[tuple[str, ...], tuple[Record, Record]] = {}
    for record in read_objects(path):
        uid = record.value.get("uid")
        parts = uid.rsplit("_", 2) if isinstance(uid, str) else []
        key = tuple(parts[:2]) if len(parts) == 3 else (record.origin,)
        sessions[key] = (sessions.get(key, (record,))[0], record)
    last = [record for _, record in sessions.values()]
    for record in last:
        if score(record, SCORE) is None and record.value[SCORE] is not None:
            fix = "null means that an answer has no score"
            raise record.error(SCORE, "malformed JSON: NaN is no number", fix)
    made = Result(f"{path.absolute().parent.name}/{path.stem}", str(path), "verl", "", ())
    firsts = [first for first, _ in sessions.values()]
    items = [content_id([r.need("input", str), r.value.get("gts")]) for r in firsts]
    texts = [record.maybe("output", str) for record in last]
    return _by_metric(made, items, last, texts, VERL_OTHERS, cluster)
