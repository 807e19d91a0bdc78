"""Parquet in and out, in batches, as plain objects.

Arrow gives every struct of a column the same keys and fills the absent ones with null; reading
drops those nulls again at every depth, so a null that the writer meant is dropped too.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from assay.data.files import atomic_path
from assay.data.record import DataError, Record

BATCH_ROWS = 256
"""Rows held at once: with 24 kB a conversation, 6 MB."""


def read_parquet(path: str | Path) -> Iterator[Record]:
    """The rows of a parquet file as objects, one by one; `line` is the row number from 1.

    Raises DataError for a missing file, for one that is not parquet, and for values that JSON does
    not have (dates, bytes, NaN).
    """
    path = Path(path)
    if not path.is_file():
        raise DataError("no such file", file=path)
    try:
        file = pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise DataError(f"is not a parquet file: {error}", file=path) from error
    with file:
        rows = (row for batch in file.iter_batches(BATCH_ROWS) for row in batch.to_pylist())
        for line, row in enumerate(rows, 1):
            yield Record(str(path), line, _plain_row(row, path, line))


def write_parquet(path: str | Path, rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> None:
    """Write rows in batches, atomically. Raises pyarrow.ArrowInvalid where a value has not the
    type that `schema` says.
    """
    source = iter(rows)
    with atomic_path(path) as temporary, pq.ParquetWriter(temporary, schema) as writer:
        while batch := [dict(row) for row in islice(source, BATCH_ROWS)]:
            writer.write_batch(pa.RecordBatch.from_pylist(batch, schema=schema))


def without_nulls(value: Any) -> Any:
    """`value` without the keys whose value is None, at every depth.

    Raises TypeError for a value that JSON does not have.
    """
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    if value is None or type(value) in (str, int, bool):
        return value
    if type(value) is float and math.isfinite(value):
        return value
    raise TypeError(f"{value!r} is no JSON value")


def _plain_row(row: dict[str, Any], path: Path, line: int) -> dict[str, Any]:
    plain = {}
    for field, value in row.items():
        try:
            plain |= without_nulls({field: value})
        except TypeError as error:
            fix = "store it as text or as a number, or leave the column out"
            raise DataError(str(error), file=path, line=line, field=field, fix=fix) from error
    return plain
