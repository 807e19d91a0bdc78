"""Reads and writes parquet in batches, as plain objects, and limits how much a file may unpack to.

Arrow gives every struct of a column the same keys and fills absent ones with null; reading drops
nulls at every depth, those that the writer meant too. Arrow's JSON type, which `datasets` gives a
column of mixed types, is JSON text: it is decoded, and its nulls stay. What the columns mean is not
known here.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, time, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from assay.data.files import atomic_path
from assay.data.json_files import load_json
from assay.data.loaded import DataError, Found, Record, RecordColumns, check_file

FREE_BYTES = 64 << 20
"""That any file may unpack to."""
MOST_TIMES = 100
"""A larger file may unpack to at most this many times its size. Logs of JSON pack to a tenth."""
ENTRY_BYTES = 256
"""What a row or a member takes beside its content."""
MOST_ENTRIES = 200_000
"""Members of an archive."""


@dataclass
class UnpackBudget:
    """What one file may still unpack to."""

    file: Path
    times: int = MOST_TIMES
    free: int = FREE_BYTES
    used: int = 0

    def spend(self, content: int, entries: int = 1) -> None:
        """Count further bytes. Raises DataError beyond the budget, or for a negative number.

        Call it before unpacking, where the file states the size.
        """
        packed = self.file.stat().st_size
        allowed = max(self.free, self.times * packed)
        self.used += content + ENTRY_BYTES * entries
        if content < 0 or entries < 0 or self.used > allowed:
            problem = f"unpacks to more than {allowed >> 20} MB, from {packed / (1 << 20):.1f} MB"
            fix = "unpack it by hand and look at it; JSON lines are read line by line"
            raise DataError(problem, file=self.file, fix=fix)


BATCH_ROWS = 256
"""Rows held at once: with 24 kB a conversation, 6 MB."""
PARQUET_FREE_BYTES = 1 << 30
"""That any parquet file may unpack to, see `UnpackBudget`."""
PARQUET_MOST_TIMES = 200


def read_parquet(path: str | Path) -> Iterator[Found]:
    """The rows of a parquet file as objects, one by one; `line` is the row number from 1. A column
    of values that JSON does not have (dates, bytes, NaN) is unread, see `Record.unread`.

    Raises DataError for a missing file, for one that is not parquet, and for what `raw_rows` raises
    it for.
    """
    path = Path(path)
    yield from plain_rows(_checked_batches(path), str(path))


def plain_rows(batches: Iterable[pa.RecordBatch | pa.Table], place: str) -> Iterator[Found]:
    """The rows of batches of a file or data set `place` as objects."""
    line = 0
    for batch in batches:
        types = {field.name: field.type for field in batch.schema}
        for row in _cells(batch, Path(place)):
            line += 1
            told = set[str]()
            plain, unread = {}, {}
            for field, value in row.items():
                try:
                    if isinstance(value, list):
                        value = [_timeless(item, field, told) for item in value]
                    if value is not None:
                        plain[field] = without_nulls(value, types[field])
                except (TypeError, ValueError) as error:
                    problem = (
                        str(error) if isinstance(error, TypeError) else "holds text that is no JSON"
                    )
                    fix = "store it as text or as a number, or leave the column out"
                    unread[field] = DataError(problem, file=place, line=line, field=field, fix=fix)
            yield Record(place, line, RecordColumns(plain, unread) if unread else plain, told)


def _cells(batch: pa.RecordBatch | pa.Table, path: Path) -> list[dict[str, Any]]:
    """The rows of a batch, with Arrow's own values in a column that Python has no form of."""
    try:
        return batch.to_pylist()
    except UnicodeDecodeError as error:
        raise _damaged(error, path) from error
    except (pa.ArrowException, ValueError, OverflowError):  # nanoseconds, a year beyond Python's
        names = batch.schema.names
        rows = zip(*map(_of_column, batch.columns), strict=True)
        return [dict(zip(names, row, strict=True)) for row in rows]


def _of_column(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    try:
        return column.to_pylist()
    except (pa.ArrowException, ValueError, OverflowError):
        return [cell if cell.is_valid else None for cell in column]


def raw_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a parquet file with whatever values they have.

    Raises what `read_parquet` raises.
    """
    for batch in _checked_batches(path):
        yield from _cells(batch, path)


def _checked_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """The batches of a file, each once it is known to be not too large.

    Raises DataError for a missing or a damaged file, for a value that Python has no form of, and
    for a file that unpacks to more than PARQUET_FREE_BYTES and PARQUET_MOST_TIMES its size: a
    column of one value takes up nothing in the file, and in memory as much as there are rows.
    """
    check_file(path)
    try:
        opened = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        problem = " ".join(str(error).split())
        raise DataError(f"is not a parquet file: {problem}", file=path) from error
    with opened as file:
        about = file.metadata
        groups = [about.row_group(n).total_byte_size for n in range(about.num_row_groups)]
        UnpackBudget(path, PARQUET_MOST_TIMES, PARQUET_FREE_BYTES).spend(
            sum(groups), about.num_rows
        )
        budget = UnpackBudget(path, PARQUET_MOST_TIMES, PARQUET_FREE_BYTES)
        batches = file.iter_batches(BATCH_ROWS)
        while True:
            try:
                batch = next(batches, None)
            except (pa.ArrowException, OSError) as error:
                raise _damaged(error, path) from error
            if batch is None:
                return
            budget.spend(sum(map(_bytes_of, batch.columns)), len(batch))
            yield batch


def _damaged(error: Exception, path: Path) -> DataError:
    return DataError(f"is a damaged parquet file: {' '.join(str(error).split())}", file=path)


def _bytes_of(column: pa.Array) -> int:
    """What the values of a column take, each value of a dictionary as often as it stands there."""
    if not isinstance(column, pa.DictionaryArray):
        return column.nbytes
    values = column.dictionary
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return column.nbytes + values.nbytes * len(column) // max(1, len(values))
    lengths = pc.take(pc.call_function("binary_length", [values]), column.indices)
    return pc.call_function("sum", [lengths]).as_py() or 0


def write_parquet(path: str | Path, rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> None:
    """Write rows in batches, atomically. Raises pyarrow.ArrowInvalid where a value has not the
    type that `schema` says.
    """
    source = iter(rows)
    with atomic_path(path) as temporary, pq.ParquetWriter(temporary, schema) as writer:
        while batch := [dict(row) for row in islice(source, BATCH_ROWS)]:
            writer.write_batch(pa.RecordBatch.from_pylist(batch, schema=schema))


def without_nulls(value: Any, kind: pa.DataType | None = None) -> Any:
    """`value` without the keys whose value is None, at every depth; JSON text by its Arrow type
    `kind` as what it says, whole.

    Raises TypeError for a value that JSON does not have, ValueError for text that is no JSON.
    """
    if value is None or type(value) in (str, int, bool):
        return load_json(value) if value is not None and isinstance(kind, pa.JsonType) else value
    if isinstance(value, dict):
        kinds = {field.name: field.type for field in getattr(kind, "fields", ())}
        return {
            key: without_nulls(item, kinds.get(key))
            for key, item in value.items()
            if item is not None
        }
    if isinstance(value, list):
        inner = getattr(kind, "value_type", None)
        return [without_nulls(item, inner) for item in value]
    if type(value) is float and math.isfinite(value):
        return value
    kind = value if isinstance(value, float) else type(value).__name__
    raise TypeError(f"holds {kind}, which JSON does not have")


def _timeless(value: Any, field: str, told: set[str]) -> Any:
    """An object of a list, such as a message, without the keys that hold a date or a time."""
    times = (
        {k for k, item in value.items() if isinstance(item, TIMES)} if type(value) is dict else ()
    )
    told.update(f"{field} hold {key!r}, a time, which is not read" for key in times)
    return {k: item for k, item in value.items() if k not in times} if times else value


TIMES = (date, time, timedelta)
