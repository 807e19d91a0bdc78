"""The neutral form of results that another tool wrote, and the file reading that its readers share.

A reader gives one `Result` for each run, benchmark and metric of a file. A value may be NaN, which
is no score, in JSON as in parquet; members of a zip are read into memory within limits and never
written, so their names cannot leave a folder. Comparing and judging results is done in `compare`
and `judge`.
"""

import json
import math
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from assay.data.hashing import sha256_text
from assay.data.json_files import begins_array, jsonl_lines, read_array
from assay.data.loaded import JSON_NAMES, DataError, Record, sound
from assay.data.parquet import MOST_ENTRIES, Budget, raw_rows
from assay.errors import Finding, nearest

CLUSTER = "cluster"
"""Where a file names the source of an item, unless another key is asked for."""
ROUNDING = 1e-6
"""How far the order in which a tool adds may move a mean."""
SCORE = "score"
"""The metric that is meant where a file has several and none is named."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer to one item."""

    item: str
    repeat: int
    score: float | None
    """None where the tool has no score: it abstained, or the answer failed."""
    output: str | None = None
    """What the model wrote, where the file has it."""
    error: str = ""
    """What went wrong according to the tool; the tool may have given a score all the same."""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A place where a file says of its own rows what they do not."""

    file: str
    field: str
    stated: Any
    counted: Any
    """What the rows say."""


Found = Iterator[tuple[str, Any, Any]]
"""Contradictions of one file: field, what it states and what the rows say."""


@dataclass(frozen=True)
class Result:
    """One run on one benchmark by one metric. An empty text means that the file does not say."""

    run: str
    file: str
    format: str
    metric: str
    answers: tuple[Answer, ...]
    benchmark: str = ""
    checker: str = ""
    """What gave the scores: a tool and its scorer."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What the file carries of the run's settings, in the parts of a manifest."""
    configured: bool = False
    """Whether `settings` hold the configuration of the tool, so that fairness can be checked."""
    questions: Mapping[str, str] = field(default_factory=dict)
    """Fingerprint of the question by item, so that one id cannot stand for two questions."""
    clusters: Mapping[str, str] = field(default_factory=dict)
    """The source that an item came from, by item; items of one source are not independent."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """The task of each item, where the run is on several."""
    left_out: tuple[str, ...] = ()
    """What the file was made to hold as well and has no scores of, by name."""
    not_numbers: Mapping[str, str] = field(default_factory=dict)
    """What the file has beside its metrics that is no number, by name: where, and what it is."""
    unfinished: str = ""
    """Why this is not the whole run, where the file says so."""
    higher_is_better: bool | None = None
    """Of the metric, by the tool's own words; None where it says nothing."""
    contradictions: tuple[Contradiction, ...] = ()
    """Everything in which what the tool wrote about this run does not follow from its rows."""
    reads_answers: bool = True
    """Whether equal answers to an item have equal scores. False where the file says that a model
    judged them, or something other than the answer was looked at."""
    remarks: tuple[Finding, ...] = ()
    """What was found in reading the rows."""


def score(record: Record, name: str) -> float | None:
    """A score: a finite number, true or false; None for null and NaN.

    Raises DataError for anything else, and where the record has no such field.
    """
    if name not in record.value:
        raise record.error(name, "missing", nearest(name, record.value))
    return number(record, name, record.value[name])


def number(record: Record, name: str, value: Any) -> float | None:
    """The same for a value that was found elsewhere in the record."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if not isinstance(value, int | float):
        found = JSON_NAMES.get(type(value), type(value).__name__)
        raise record.error(name, f"is {found}, not a number", "a score is a number, or empty")
    if math.isinf(value):
        raise record.error(name, f"is {value}, not a finite number")
    return float(value)


def is_score(value: Any) -> bool:
    """Whether `number` takes the value."""
    return value is None or (isinstance(value, int | float) and not math.isinf(value))


def differ(stated: Any, counted: float) -> bool:
    """Whether a summary is a number, and another one than the rows make; NaN is no number."""
    known = isinstance(stated, int | float) and math.isfinite(stated) and not math.isnan(counted)
    return known and not math.isclose(stated, counted, rel_tol=ROUNDING, abs_tol=ROUNDING)


def score_columns(records: Iterable[Record], *others: str) -> list[str]:
    """The columns that hold scores and nothing else; `others` are never scores."""
    rows = [record.value for record in records]
    names = dict.fromkeys(name for row in rows for name in row if name not in others)
    columns = {name: [row.get(name) for row in rows] for name in names}
    return [
        name
        for name, values in columns.items()
        if all(map(is_score, values)) and any(value is not None for value in values)
    ]


def numbered(items: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Each item with the number of times that it came before: its repeat."""
    seen: Counter[str] = Counter()
    for item in items:
        yield item, seen[item]
        seen[item] += 1


class Places:
    """Remembers where each answer was read, so that a second one of the same name is refused."""

    def __init__(self) -> None:
        self._seen: dict[tuple[Any, ...], int] = {}

    def take(self, record: Record, field: str, *key: Any, fix: str) -> None:
        """Note the answer of a record. Raises DataError where an earlier line holds it too."""
        if key in self._seen:
            problem = f"{key[0]!r} is also the item of line {self._seen[key]}"
            raise record.error(field, problem, fix)
        self._seen[key] = record.line


class Clusters:
    """Gathers the source of each item, which must be the same wherever the item stands."""

    def __init__(self, key: str | None) -> None:
        self.key = key or CLUSTER
        self.by_item: dict[str, str] = {}
        self._named = True if key is not None else None

    def take(self, record: Record, item: str, table: Mapping[str, Any] | None) -> None:
        """Note the source that a table of the record names under the key.

        Raises DataError where an item has two, where a record names none that was asked for, or one
        does and another does not, and where it is no text or number.
        """
        value = (table or {}).get(self.key)
        if self._named is None:
            self._named = value is not None
        if value is None and not self._named:
            return
        if not isinstance(value, str | int | float) or not self._named:
            problem = f"is no source of item {item!r}, or other records name none"
            raise record.error(self.key, problem, nearest(self.key, table or {}))
        known = self.by_item.setdefault(item, str(value))
        if known != str(value):
            problem = f"item {item!r} is in {known!r} and in {str(value)!r}"
            raise record.error(self.key, problem, "an item has one source")


def read_text(path: Path) -> str:
    """The text of a file. Raises DataError for a missing one and for bytes that are not UTF-8."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DataError(str(error.strerror).lower(), file=path) from error
    except UnicodeDecodeError as error:
        problem = f"byte {error.start + 1} is not UTF-8"
        raise DataError(problem, file=path, fix="save the file as UTF-8") from error


def read_objects(path: Path) -> Iterator[Record]:
    """The objects of JSON lines or of one JSON array, with NaN and Infinity as floats.

    Raises DataError for a missing file and the first bad object.
    """
    return sound((read_array if begins_array(path) else jsonl_lines)(path, constants="floats"))


def fingerprint(value: Any) -> str:
    """The sha256 of a question, equal for equal values; NaN is a value like any other."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return sha256_text(text)


def read_rows(path: Path) -> list[Record]:
    """The rows of a file; `line` is the row number from 1. Raises DataError for a damaged file."""
    return [Record(str(path), number, row) for number, row in enumerate(raw_rows(path), 1)]


def read_columns(path: Path) -> list[str]:
    """The names of the columns. Raises DataError for a damaged file."""
    try:
        return pq.read_schema(path).names
    except (pa.ArrowException, OSError) as error:
        problem = " ".join(str(error).split())
        raise DataError(f"is a damaged parquet file: {problem}", file=path) from error


PIECE = 1 << 20
ZSTANDARD = 93
"""The number of the method in the zip format (APPNOTE 4.4.5)."""
TORN = (zlib.error, struct.error, pa.ArrowException, EOFError)
"""What unpacking raises where bytes are missing or changed."""
LOCAL_HEADER = struct.Struct("<26x2H")
"""The header before the bytes of a member: 26 bytes, then the lengths of its name and extras."""


def read_members(path: Path, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """The members whose name is wanted, in the order of the archive.

    Raises DataError for a damaged archive, for a compression or an encryption that cannot be read,
    and, before anything is unpacked, for more members or bytes than `parquet.Budget` allows.
    """
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as stream:
            members = [member for member in archive.infolist() if wanted(member.filename)]
            if len(members) > MOST_ENTRIES:
                problem = f"holds {len(members)} members, more than {MOST_ENTRIES}"
                raise DataError(problem, file=path)
            budget = Budget(path)
            for member in members:
                budget.spend(member.file_size)
            return {m.filename: _read(archive, stream, m) for m in members}
    except (zipfile.BadZipFile, RuntimeError, OSError, *TORN) as error:
        problem = " ".join(str(error).split())
        raise DataError(f"is a damaged zip: {problem}", file=path) from error


def _read(archive: zipfile.ZipFile, stream: BinaryIO, member: zipfile.ZipInfo) -> bytes:
    if member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with archive.open(member) as unpacked:
            # Read at once, a member is unpacked whole whatever size it claims.
            return b"".join(iter(lambda: unpacked.read(PIECE), b""))
    if member.compress_type != ZSTANDARD:
        raise NotImplementedError(f"compression {member.compress_type} is not read")
    stream.seek(member.header_offset)
    name, extra = LOCAL_HEADER.unpack(stream.read(LOCAL_HEADER.size))
    stream.seek(name + extra, 1)
    packed = stream.read(member.compress_size)
    content = pa.decompress(packed, member.file_size, codec="zstd", asbytes=True)
    if zlib.crc32(content) != member.CRC:
        raise zipfile.BadZipFile(f"bad CRC-32 of {member.filename}")
    return content
