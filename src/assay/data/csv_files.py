"""Reads CSV files as objects of text; errors name the line.

Quoted fields may hold the delimiter and line breaks. An empty cell is absent, as a null of parquet
is. What the columns mean is not known here.
"""

import csv
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from assay.data.json_files import PACKED, raw_lines
from assay.data.loaded import DataError, Found, Record, check_file

Encoding = Literal["utf-8", "latin-1", "cp1252", "gb18030"]
"""In all of these a line ends where the byte of a line feed is."""
ENDINGS = {".csv": ",", ".tsv": "\t"}
"""How the names of such files end, with the delimiter that each has by itself."""
LONGEST_FIELD = 1 << 28
"""Characters of one field; Python's own limit is 131 072, less than one long conversation."""


@dataclass(frozen=True, slots=True)
class CsvOptions:
    """How a file is written."""

    delimiter: str | None = None
    """None: by the file's ending, else a comma."""
    quote: str = '"'
    header: tuple[str, ...] | None = None
    """The names of the columns where the file's first line does not hold them."""
    encoding: Encoding = "utf-8"
    any_header: bool = False
    """Whether a column may have no name or that of another, of which the last then counts."""


def is_csv(path: Path) -> bool:
    """Whether the file is one by the end of its name."""
    return _ending(path) in ENDINGS


def _ending(path: Path) -> str:
    return (Path(path.stem) if path.suffix.lower() in PACKED else path).suffix.lower()


def read_csv(path: Path, options: CsvOptions | None = None) -> Iterator[Found]:
    """The rows of a file as objects, one by one, or what is wrong with one of more or fewer fields
    than the header; `line` is the one that a row begins on.

    Raises DataError for a missing file, bytes of another encoding, a quote that is not closed, and
    a header with an empty or a double name.
    """
    options = options or CsvOptions()
    check_file(path)
    rows = _rows(path, options)
    header = options.header
    if header is None:
        _, header = next(rows, (1, ()))
    doubles = [name for name, count in Counter(header).items() if count > 1]
    if not header or (not options.any_header and ("" in header or doubles)):
        nameless = not header or "" in header
        problem = "a column has no name"
        problem = problem if nameless else f"two columns are called {doubles[0]!r}"
        fix = "name the columns in the first line, or in csv.header"
        raise DataError(problem, file=path, line=1, field="header", fix=fix)
    for line, cells in rows:
        if len(cells) != len(header):
            problem = f"has {len(cells)} fields, and there are {len(header)} columns"
            fix = "quote a field that holds the delimiter; csv.delimiter sets it"
            yield DataError(problem, file=path, line=line, fix=fix)
            continue
        value = {name: cell for name, cell in zip(header, cells, strict=True) if cell != ""}
        yield Record(str(path), line, value)


def _rows(path: Path, options: CsvOptions) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The rows that are not blank, each with the line it begins on."""
    csv.field_size_limit(LONGEST_FIELD)
    delimiter = options.delimiter or ENDINGS.get(_ending(path), ",")
    lines = _lines(path, options.encoding)
    reader = csv.reader(lines, delimiter=delimiter, quotechar=options.quote, strict=True)
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            fix = "double a quote that is part of a field"
            raise DataError(f"malformed CSV: {error}", file=path, line=line, fix=fix) from error
        if cells:
            yield line, tuple(cells)


def _lines(path: Path, encoding: Encoding) -> Iterator[str]:
    for line, raw in raw_lines(path):
        try:
            yield raw.decode("utf-8-sig" if encoding == "utf-8" and line == 1 else encoding)
        except UnicodeDecodeError as error:
            problem = f"byte {error.start + 1} is not {encoding.upper()}"
            fix = "save the file as UTF-8, or set csv.encoding"
            raise DataError(problem, file=path, line=line, fix=fix) from error
