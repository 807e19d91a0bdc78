"""Data formats by name: `read_rows(path, "messages")`, `write_rows(path, rows, "verl")`.

A reader is a function from a path to rows; adding a format is one function and one line here, or
`FORMATS["name"] = reader` in the task that owns it. Splits, lengths and rendering come later.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from assay.data.jsonl import read_jsonl, write_jsonl
from assay.data.parquet import read_parquet, write_parquet
from assay.data.record import DataError, Record
from assay.data.row import Row
from assay.data.sources import gsm8k, messages, swift, trl, verl
from assay.data.written import Written
from assay.errors import InputError, nearest

Reader = Callable[[Path], Iterable[Row]]
Writer = Callable[[Row], Written]


class UnknownFormatError(InputError):
    """A format that nobody registered, or one that cannot be written so."""


def read_records(path: str | Path) -> Iterator[Record]:
    """The objects of a file: parquet by its ending, JSON lines otherwise. Raises DataError."""
    return read_parquet(path) if Path(path).suffix == ".parquet" else read_jsonl(path)


def record_reader(parse: Callable[[Record], Row]) -> Reader:
    """A reader of JSON lines or parquet from a function that parses one record."""

    def read(path: Path) -> Iterator[Row]:
        return map(parse, read_records(path))

    return read


FORMATS: dict[str, Reader] = {
    "messages": record_reader(messages.parse),
    "swift": record_reader(swift.parse),
    "verl": record_reader(verl.parse),
    "trl": record_reader(trl.parse),
    "gsm8k": record_reader(gsm8k.parse),
}

WRITERS: dict[str, Writer] = {
    "messages": messages.dump,
    "swift": swift.dump,
    "verl": verl.dump,
    "trl": trl.dump,
}

PARQUET_SCHEMAS = {"verl": verl.SCHEMA}
"""Formats that may be written as parquet; the others are JSON lines."""


def iter_rows(path: str | Path, format: str) -> Iterator[Row]:
    """The rows of a file one by one, in its order.

    Raises UnknownFormatError, and DataError for the first bad record, for two rows with one id (it
    names both lines) and for a file without rows.
    """
    if format not in FORMATS:
        raise UnknownFormatError(f"unknown format {format!r}", fix=nearest(format, FORMATS))
    seen: dict[str, str] = {}
    for row in FORMATS[format](Path(path)):
        if row.id in seen:
            file, _, line = row.origin.rpartition(":")
            problem = f"{row.id!r} is also the id of {seen[row.id]}"
            fix = "drop one of the two, or give them ids of their own"
            raise DataError(problem, file=file, line=int(line), field="id", fix=fix)
        seen[row.id] = row.origin
        yield row
    if not seen:
        raise DataError("holds no rows", file=path)


def read_rows(path: str | Path, format: str) -> list[Row]:
    """All rows of a file in its order. Raises what `iter_rows` raises."""
    return list(iter_rows(path, format))


def write_rows(path: str | Path, rows: Iterable[Row], format: str) -> dict[str, int]:
    """Write rows, as parquet if `path` ends so. Returns what was lost, in words, with counts.

    An empty result means that reading the file gives equal rows but for `origin`. Raises
    UnknownFormatError for a format without a writer, or one that is not written as parquet.
    """
    if format not in WRITERS:
        raise UnknownFormatError(f"cannot write format {format!r}", fix=nearest(format, WRITERS))
    losses: dict[str, int] = {}

    def records() -> Iterator[dict]:
        for row in rows:
            written = WRITERS[format](row)
            for loss in written.losses:
                losses[loss] = losses.get(loss, 0) + 1
            yield written.value

    if Path(path).suffix != ".parquet":
        write_jsonl(path, records())
    elif format in PARQUET_SCHEMAS:
        write_parquet(path, records(), PARQUET_SCHEMAS[format])
    else:
        raise UnknownFormatError(
            f"format {format!r} is not written as parquet", fix="end it in .jsonl"
        )
    return losses
