"""All completions of a run in columns: those of its training steps and the answers of evaluations.

They are read from the run's own parquet files when they are first asked for, and again only where a
file is new or another one; texts stay in memory, tokens do not. Nothing is written.
"""

import json
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from assay.data.episode import FULL_SCORE
from assay.data.files import stamp
from assay.data.row import Message
from assay.errors import InputError
from assay.runs.history import ANSWER, SAMPLE, History
from assay.runs.records import (
    ABSTAINED,
    OUTCOME,
    RIGHT,
    WRONG,
    EvaluationRecord,
    check_types,
    reading,
    stored_messages,
)
from assay.runs.run_directory import RunDirectory
from assay.runs.run_files import DamagedFile

PAGE, MOST = 50, 500
"""Completions of one page: as a rule, and at most."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter; what is empty keeps everything."""

    stage: str = ""
    step_from: float | None = None
    step_to: float | None = None
    evaluation: str = ""
    """The folder of its records."""
    checkpoint: str = ""
    score_from: float | None = None
    score_to: float | None = None
    length_from: float | None = None
    length_to: float | None = None
    outcome: str = ""
    row: str = ""
    """A row or an item."""
    text: str = ""
    """Any text that the completion holds, in capitals or not."""
    page: int = 1
    size: int = PAGE

    def address(self, **changes: Any) -> str:
        """The filter as the query of an address, with changes."""
        changed, plain = replace(self, **changes), Filter()
        pairs = {
            each.name: _written(value)
            for each in fields(Filter)
            if (value := getattr(changed, each.name)) != getattr(plain, each.name)
        }
        return urlencode(pairs)


def _written(value: str | float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def read_filter(query: Mapping[str, str]) -> Filter:
    """The filter of an address. Raises InputError for a value that its field cannot have."""
    values: dict[str, Any] = {}
    for each in fields(Filter):
        text = query.get(each.name, "").strip()
        if text:
            values[each.name] = text if each.type is str else _number(each.name, text, each.type)
    values["size"] = min(values.get("size", PAGE), MOST)
    return Filter(**values)


def _number(name: str, text: str, kind: Any) -> float | int:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    whole = kind is not int or (number.is_integer() and 1 <= number <= 10_000_000)
    if not math.isfinite(number) or not whole:
        raise InputError(f"{text!r} is no such number", field=name, fix="for example 1")
    return int(number) if kind is int else number


pc: Any = pyarrow.compute
"""Its functions are made when it is imported, unseen by a type checker."""
COLUMNS = pa.schema(
    [
        ("id", pa.string()),
        ("row", pa.string()),
        ("number", pa.int32()),
        ("text", pa.string()),
        ("score", pa.float64()),
        ("outcome", pa.string()),
        ("length", pa.int32()),
        ("advantage", pa.float64()),
        ("why", pa.string()),
    ]
)
"""What is kept of a completion. `row` is the row or the item, `number` the sample or the repeat,
`text` of a conversation all that was said, `score` the reward or the score, `length` in tokens."""


@dataclass(frozen=True)
class CompletionFile:
    """A file of completions: a step of a stage, or a checkpoint's answers of an evaluation."""

    file: Path
    stage: str = ""
    step: int | None = None
    record: EvaluationRecord | None = None
    checkpoint: str = ""


@dataclass(frozen=True)
class Stored:
    """The completions of one file."""

    place: CompletionFile
    table: pa.Table

    @cached_property
    def outcomes(self) -> frozenset[str]:
        """The outcomes that it has."""
        return frozenset(pc.unique(self.table["outcome"]).to_pylist())


@dataclass(frozen=True, slots=True)
class FilteredCompletions:
    """What a filter keeps."""

    count: int
    unscored: int
    mean: float | None
    """Of the scores; None without any."""
    lines: Sequence[tuple[CompletionFile, Mapping[str, Any]]]
    """One page of it."""


@dataclass
class Completions:
    """The completions of one run, read once by whoever asks first."""

    run: RunDirectory
    _stored: dict[Path, tuple[Hashable, Stored]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def places(self, answers: bool) -> list[CompletionFile]:
        """The files of all steps, or of all answers, in order."""
        history = History(self.run)
        if answers:
            return [
                CompletionFile(
                    record.file(self.run.evaluations, name), record=record, checkpoint=name
                )
                for record in history.evaluations
                for name in history.measured(record)
            ]
        return [
            CompletionFile(self.run.samples(stage, step), stage, step)
            for stage in history.experiment.stage
            for step in history.sampled(stage)
        ]

    def stored(self, answers: bool) -> tuple[list[Stored], list[DamagedFile]]:
        """The completions of all files, and why some cannot be read."""
        stored: list[Stored] = []
        damaged: list[DamagedFile] = []
        with self._lock:
            for place in self.places(answers):
                try:
                    stored.append(self._read(place))
                except DamagedFile as error:  # one damaged file must not hide the others
                    damaged.append(error)
        return stored, damaged

    def _read(self, place: CompletionFile) -> Stored:
        written = stamp(place.file)
        known = self._stored.get(place.file)
        if known is None or known[0] != written:
            known = written, Stored(place, read_completions(place.file))
            self._stored[place.file] = known
        return known[1]

    def find(self, where: Filter, answers: bool) -> FilteredCompletions:
        """The completions that a filter keeps, one page of them. Raises InputError."""
        own = [each for each in self.stored(answers)[0] if wanted(each.place, where)]
        table = pa.concat_tables([COLUMNS.empty_table(), *(each.table for each in own)])
        kept = pc.indices_nonzero(pc.fill_null(_test(table, where), False))
        scores = table["score"].take(kept)
        page = kept.slice((where.page - 1) * where.size, where.size)
        places = places_of(own, page.to_pylist())
        return FilteredCompletions(
            len(kept),
            scores.null_count,
            pc.mean(scores).as_py(),
            list(zip(places, table.take(page).to_pylist(), strict=True)),
        )


def read_completions(file: Path) -> pa.Table:
    """The columns of a step's samples or of a record. Raises DamagedFile."""
    with reading(file), pq.ParquetFile(file, page_checksum_verification=True) as source:
        there = source.schema_arrow.names
        names = ANSWER if ANSWER["row"] in there else SAMPLE
        count = "completion_tokens" if names is ANSWER else "tokens"
        wanted = ["sample_id", *names.values(), "why", count]
        wanted += [name for name in (OUTCOME, "messages") if name in there]
        table = source.read(columns=wanted)
        check_types(table.schema)
        column = {name: table[name] for name in table.schema.names}
    empty = pa.nulls(len(table), pa.string())
    length = column[count] if names is ANSWER else pc.list_value_length(column[count])
    length = pc.if_else(pc.equal(length, 0), None, length)  # not known of what is text alone
    values = {
        "id": column["sample_id"],
        **{name: column[names[name]] for name in ("row", "number")},
        "text": spoken(column[names["text"]], column["messages"])
        if "messages" in column
        else column[names["text"]],
        "score": column[names["reward"]],
        "length": length,
        "advantage": column.get("advantage", pa.nulls(len(table), pa.float64())),
        "why": column["why"],
        "outcome": outcomes(
            column[names["reward"]], column.get("error", empty), column.get(OUTCOME, empty)
        ),
    }
    return pa.table([values[name] for name in COLUMNS.names], schema=COLUMNS)


def spoken(texts: Any, conversations: Any) -> Any:
    """Texts; of a conversation all that was said, by the model, its calls and the tools."""
    parts = []
    for text, stored in zip(texts.to_pylist(), conversations.to_pylist(), strict=True):
        lines = (
            [] if stored is None else [text for m in stored_messages(stored) for text in said_in(m)]
        )
        parts.append("\n".join(lines) if lines else text)
    return pa.array(parts, pa.string())


def said_in(message: Message) -> Iterator[str]:
    """The texts of a message: its thoughts, its words, its calls."""
    yield from filter(None, (message.reasoning, message.content))
    for call in message.tool_calls:
        yield f"{call.name} {json.dumps(call.arguments, ensure_ascii=False)}"


def outcomes(scores: Any, errors: Any, judged: Any) -> Any:
    """What became of each answer, as `runs.records.outcome` says it of one."""
    right = pc.if_else(pc.greater_equal(scores, FULL_SCORE), RIGHT, WRONG)
    filled = [pc.if_else(pc.equal(names, ""), None, names) for names in (errors, judged)]
    return pc.if_else(pc.is_null(scores), ABSTAINED, pc.coalesce(*filled, right))


def wanted(place: CompletionFile, where: Filter) -> bool:
    """Whether a filter lets completions of this file through at all."""
    key = place.record.key if place.record else ""
    return (
        where.stage in ("", place.stage)
        and where.evaluation in ("", key)
        and (where.checkpoint in ("", place.checkpoint) or not key)
        and (place.step is None or where.step_from is None or place.step >= where.step_from)
        and (place.step is None or where.step_to is None or place.step <= where.step_to)
    )


def _test(table: pa.Table, where: Filter) -> Any:
    """Which lines pass what is asked of their own columns."""
    tests = [
        between(table["score"], where.score_from, where.score_to),
        between(table["length"], where.length_from, where.length_to),
        pc.equal(table["outcome"], where.outcome) if where.outcome else None,
        pc.equal(table["row"], where.row) if where.row else None,
        pc.match_substring(table["text"], where.text, ignore_case=True) if where.text else None,
    ]
    mask = pa.chunked_array([pa.repeat(True, len(table))])
    for test in tests:
        if test is not None:
            mask = pc.and_(mask, test)
    return mask


def between(values: Any, low: float | None, high: float | None) -> Any:
    """Which values lie in a range, its ends included; None for a range without ends."""
    ends = [] if low is None else [pc.greater_equal(values, low)]
    ends += [] if high is None else [pc.less_equal(values, high)]
    return pc.and_(*ends) if len(ends) == 2 else ends[0] if ends else None


def places_of(own: Sequence[Stored], lines: Sequence[int]) -> list[CompletionFile]:
    """The file of each of some lines of the table that `own` make up."""
    ends, end = [], 0
    for each in own:
        end += len(each.table)
        ends.append((end, each.place))
    return [next(place for end, place in ends if line < end) for line in lines]
