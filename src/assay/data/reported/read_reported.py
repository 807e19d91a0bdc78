"""Reads reported results: a TOML record, a CSV or the pipe tables of a Markdown text.

Prose is not read: docs/audit.md shows how a model makes a record of it.
"""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from assay.data.loaded import absent
from assay.data.reported.reported_errors import NothingReported, ReportedError, validated
from assay.data.reported.reported_record import Reported
from assay.data.reported.tables import Grid, Spot, Unused, read_grid
from assay.data.reported.titles import plain
from assay.data.toml_text import TomlInvalid, key_lines, line_of, load_toml, long_integers
from assay.errors import nearest

ENDINGS = (".toml", ".csv", ".md", ".markdown")


@dataclass(frozen=True, slots=True)
class Reading:
    """A file of reported results."""

    records: tuple[Reported, ...]
    """The record of a TOML file, or one of each table."""
    unused: tuple[Unused, ...] = ()


def read_toml(text: str, file: Path) -> Reported:
    """The record of a TOML text. Raises ReportedError for the first problem, with its line."""
    return validated(toml_values(text, file), text, file)


def toml_values(text: str, file: Path) -> dict[str, Any]:
    """The values of a TOML text, decimals with their digits. Raises ReportedError."""
    try:
        # Decimal keeps the digits as printed: 15.00 is not 15.0.
        values = load_toml(text, parse_float=Decimal)
    except TomlInvalid as invalid:
        problem = f"not valid TOML: {invalid.problem}"
        raise ReportedError(problem, file=file, line=invalid.line) from None
    for path, problem, fix in long_integers(values):
        field = ".".join(map(str, path))
        line = line_of(path, key_lines(text))
        raise ReportedError(problem, file=file, line=line, field=field, fix=fix)
    return values


def read_reported(path: str | Path, items: int | None = None) -> Reading:
    """The records of a TOML, CSV or Markdown file; `items` are those of scores without a number.

    Raises ReportedError for a file that is missing, not text or not of its format, NothingReported
    where no result is recognised in it.
    """
    file = Path(path)
    if problem := absent(file):
        fix = f"name a report, a file that ends in {' or '.join(ENDINGS)}"
        raise ReportedError(problem, file=file, fix=fix)
    if file.suffix.lower() not in ENDINGS:
        fix = nearest(file.suffix, ENDINGS)
        raise ReportedError(f"reads no {file.suffix or 'file without ending'}", file=file, fix=fix)
    text = report_text(file)
    reading = _read(text, file)
    if not any(map(results, reading.records)):
        fix = "write its facts down as TOML, or let a model do so with --extract-with"
        raise NothingReported("no recognisable results", file=file, fix=fix)
    if items is None:
        return reading
    return Reading(tuple(_sized(record, items) for record in reading.records), reading.unused)


def report_text(file: Path) -> str:
    """The text of a report. Raises ReportedError."""
    if problem := absent(file):
        raise ReportedError(problem, file=file)
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ReportedError("not UTF-8 text", file=file, fix="save the file as UTF-8") from None


def _read(text: str, file: Path) -> Reading:
    if file.suffix.lower() == ".toml":
        return Reading((read_toml(text, file),))
    records: list[Reported] = []
    unused: list[Unused] = []
    grids = [_csv_grid(text)] if file.suffix.lower() == ".csv" else _markdown_grids(text)
    for grid, ragged in grids:
        record, left = read_grid(grid, file.name)
        if results(record):
            records.append(record)
            unused += [*ragged, *left]
        elif grid:
            title = " | ".join(spot.text for spot in grid[0])
            unused.append(Unused("table", title, grid[0][0].line, "unknown"))
    return Reading(tuple(records), tuple(unused))


def _markdown_grids(text: str) -> Iterator[tuple[Grid, list[Unused]]]:
    """The pipe tables of a Markdown text, each with its rows that have another length."""
    lines = text.splitlines()
    start = 0
    for number, line in enumerate(lines):
        if (
            not number
            or number < start
            or not SEPARATOR.fullmatch(line)
            or "|" not in lines[number - 1]
        ):
            continue
        end = next((n for n in range(number + 1, len(lines)) if "|" not in lines[n]), len(lines))
        body = [number - 1, *range(number + 1, end)]
        yield _square([(n + 1, _cells(lines[n])) for n in body])
        start = end


SEPARATOR = re.compile(r"[>\s]*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)+\|?\s*|\s*\|\s*:?-+:?\s*\|\s*")


def _cells(line: str) -> list[str]:
    inner = line.strip().lstrip("> ").removeprefix("|").removesuffix("|")
    return re.split(r"(?<!\\)\|", inner)


def _csv_grid(text: str) -> tuple[Grid, list[Unused]]:
    """The table of a CSV text; lines that begin with # are comments."""
    kept = "\n".join("" if line.startswith("#") else line for line in text.splitlines())
    head = next((line for line in kept.splitlines() if line.strip()), "")
    delimiter = max(",\t;", key=head.count)
    reader = csv.reader(io.StringIO(kept), delimiter=delimiter, skipinitialspace=True)
    rows = [(reader.line_num, cells) for cells in reader if any(map(str.strip, cells))]
    return _square(rows)


def _square(rows: Sequence[tuple[int, list[str]]]) -> tuple[Grid, list[Unused]]:
    spots = [[Spot(plain(text), line) for text in cells] for line, cells in rows]
    width = len(spots[0]) if spots else 0
    odd = [row for row in spots if len(row) != width]
    ragged = [Unused("row", row[0].text, row[0].line, "ragged") for row in odd if row]
    return [row for row in spots if len(row) == width], ragged


def _sized(record: Reported, items: int) -> Reported:
    if record.scoring.items is not None:
        return record
    return record.model_copy(update={"scoring": record.scoring.model_copy(update={"items": items})})


def results(found: Reported) -> int:
    """Number of results in a record: scores, readings, differences and marks."""
    counts = [{**run.right, **run.scores} for run in found.runs]
    scores = sum(len(values) for cells in counts for values in cells.values())
    readings = sum(max(len(m.values), len(m.counts)) for m in found.metrics)
    differences = sum(bool(comparison.points) for comparison in found.comparisons)
    return scores + readings + differences + len(found.ratings)
