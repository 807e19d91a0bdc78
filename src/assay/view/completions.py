"""All completions of a run: those of its training steps and the answers of evaluations.

They are read from the run's own parquet files when they are first asked for, and again only where a
file is new or another one; texts stay in memory, tokens do not. Nothing is written.
"""

import json
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from statistics import fmean
from threading import Lock
from typing import Any
from urllib.parse import urlencode

import pyarrow.compute
import pyarrow.parquet as pq

from assay.data.files import stamp
from assay.data.row import Message
from assay.errors import InputError
from assay.runs.history import ANSWER, SAMPLE, History
from assay.runs.records import (
    OUTCOME,
    EvaluationRecord,
    check_types,
    outcome,
    reading,
    stored_messages,
)
from assay.runs.run_directory import RunDirectory
from assay.runs.run_files import DamagedFile

pc: Any = pyarrow.compute
"""Its functions are made when it is imported, unseen by a type checker."""
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
        changed, pairs = replace(self, **changes), dict[str, str]()
        for each in fields(Filter):
            if (value := getattr(changed, each.name)) != each.default:
                pairs[each.name] = f"{value:g}" if isinstance(value, float) else str(value)
        return urlencode(pairs)


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


@dataclass(frozen=True)
class CompletionFile:
    """A file of completions: a step of a stage, or a checkpoint's answers of an evaluation."""

    file: Path
    stage: str = ""
    step: int | None = None
    record: EvaluationRecord | None = None
    checkpoint: str = ""


Kept = Mapping[str, Any]
"""What is kept of a completion: `id`, `row` (or the item), `number` (the sample or the repeat),
`text` (of a conversation all that was said), `score` (or the reward), `outcome`, `length` in
tokens, `advantage`, `why`."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The completions of one file."""

    place: CompletionFile
    lines: Sequence[Kept]


@dataclass(frozen=True, slots=True)
class FilteredCompletions:
    """What a filter keeps."""

    count: int
    unscored: int
    mean: float | None
    """Of the scores; None without any."""
    lines: Sequence[tuple[CompletionFile, Kept]]
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
        lines = [
            (each.place, line)
            for each in self.stored(answers)[0]
            if wanted(each.place, where)
            for line in each.lines
            if passes(line, where)
        ]
        scores = [line["score"] for _, line in lines if line["score"] is not None]
        page = lines[(where.page - 1) * where.size : where.page * where.size]
        mean = fmean(scores) if scores else None
        return FilteredCompletions(len(lines), len(lines) - len(scores), mean, page)


def read_completions(file: Path) -> list[Kept]:
    """The completions of a step's samples or of a record. Raises DamagedFile."""
    with reading(file), pq.ParquetFile(file, page_checksum_verification=True) as source:
        names = ANSWER if ANSWER["row"] in source.schema_arrow.names else SAMPLE
        count = "completion_tokens" if names is ANSWER else "tokens"
        wanted = ["sample_id", *names.values(), "why", count, OUTCOME, "messages"]
        table = source.read(columns=wanted)  # of those that it has
        check_types(table.schema)
    if names is SAMPLE:
        lengths = pc.list_value_length(table["tokens"])
        table = table.set_column(table.schema.get_field_index("tokens"), "tokens", lengths)
    return [kept(line, names, line[count]) for line in table.to_pylist()]


def kept(line: Mapping[str, Any], names: Mapping[str, str], length: int | None) -> Kept:
    """What is kept of a line; a length of 0 is that of text alone, and not known."""
    score = line[names["reward"]]
    texts = [text for each in stored_messages(line.get("messages")) for text in said_in(each)]
    return {
        **{name: line[names[name]] for name in ("row", "number")},
        "id": line["sample_id"],
        "text": "\n".join(texts) if texts else line[names["text"]],
        "score": score,
        "outcome": outcome(score, line.get("error") or "", line.get(OUTCOME)),
        "length": length or None,
        "advantage": line.get("advantage"),
        "why": line["why"],
    }


def said_in(message: Message) -> Iterator[str]:
    """The texts of a message: its thoughts, its words, its calls."""
    yield from filter(None, (message.reasoning, message.content))
    for call in message.tool_calls:
        yield f"{call.name} {json.dumps(call.arguments, ensure_ascii=False)}"


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


def passes(line: Kept, where: Filter) -> bool:
    """Whether a completion passes what is asked of itself."""
    return (
        between(line["score"], where.score_from, where.score_to)
        and between(line["length"], where.length_from, where.length_to)
        and where.outcome in ("", line["outcome"])
        and where.row in ("", line["row"])
        and where.text.casefold() in line["text"].casefold()
    )


def between(value: float | None, low: float | None, high: float | None) -> bool:
    """Whether a value lies in a range, its ends included; what is not known, only in all."""
    if value is None:
        return low is None and high is None
    return (low is None or value >= low) and (high is None or value <= high)
