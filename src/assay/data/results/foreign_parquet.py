"""Parquet files of other tools, whose columns may hold NaN, as records."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from assay.data.parquet import raw_rows
from assay.data.raw_record import DataError, Record


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
