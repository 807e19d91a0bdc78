"""Reads reported results from Markdown, CSV or TOML, chosen by the file's ending.

Markdown logs and CSV comments may be Chinese or English; text that is not recognised is skipped,
because a wrong reading is worse than none. Tables and lists come first: sentences are read by the
runs and benchmarks these name. A CSV is one table, wide or long, so a cell of its score or item
columns that is not a number is an error with its line and column. docs/audit.md describes the
columns and the TOML record.
"""

import csv
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from assay.data.reported.reading.blocks import Line, Row, Section, Table, leaves, plain, sections
from assay.data.reported.reading.columns import Column, in_percent, shares, strip_aside
from assay.data.reported.reading.draft import Draft, finished, known, settle
from assay.data.reported.reading.figures import figure, missing, whole
from assay.data.reported.reading.grids import Grid, Place, grid_of
from assay.data.reported.reading.lists import read_asides, read_lists, read_open, read_rates
from assay.data.reported.reading.practice import read_practice
from assay.data.reported.reading.run_tables import (
    VERDICTS,
    cell_name,
    is_training,
    open_cells,
    read_scores,
)
from assay.data.reported.reading.sizes import SIZE, read_sizes
from assay.data.reported.reading.stated_claims import read_claims
from assay.data.reported.reading.step_tables import read_training
from assay.data.reported.reading.vocabulary import CUMULATIVE
from assay.data.reported.reported_errors import NothingReported, ReportedError, validated
from assay.data.reported.reported_record import MOST_DIGITS, Reported
from assay.data.toml_text import TomlInvalid, key_lines, line_of, load_toml, long_integers
from assay.errors import nearest

RATED = re.compile(
    r"accura|(?<![a-z])acc(?![a-z])|pass@|(?<![a-z])score|percent|%|success|exact match|正确率"
    r"|准确率|得分|通过率|成功率|百分",
    re.I,
)

NOT_RUNNING = re.compile(r"(?<![a-z])(?:not|no|never|rather than)(?![a-z])|不是|非累|并非", re.I)


def read_markdown(text: str, file: Path) -> Reported:
    """The record of a Markdown text; empty where nothing is recognised."""
    found = sections(text)
    title = next((section.title for section in found if section.path), "")
    draft = Draft(title or file.name, text)
    for section in found:
        for table in section.tables:
            read_table(draft, table, place_of(section, table))
    read_lists(draft, found)
    draft.tableless = not draft.scores
    for section in found:
        read_rates(draft, section)
    settle(draft)
    lines = [(line.text, line.number) for section in found for line in section.lines]
    read_asides(draft, found)
    places = [(section.title, section.texts) for section in found]
    read_sizes(draft, [*places, *(place for section in found for place in _introduced(section))])
    read_practice(draft, lines)
    read_claims(draft, lines)
    for section in found:
        read_open(draft, section)
    for section in leaves(found):
        if section.path and section.empty:
            draft.left_open(section.title, 1, section.line)
    return finished(draft)


def _introduced(section: Section) -> Iterator[tuple[str, list[Line]]]:
    """The lines with a colon of a section that introduce something, and what says its size."""
    for line in section.paragraphs:
        if line.text.endswith((":", "：")):
            yield line.text, [line] if SIZE.search(line.text) else section.texts


def read_table(draft: Draft, table: Table, place: Place) -> None:
    """Add what a table gives: readings of a training, else scores and settings of runs."""
    if not table.header or not table.rows:
        return
    grid = grid_of(table, place)
    training = is_training(grid) and read_training(draft, grid)
    read_scores(draft, grid, training)


def place_of(section: Section, table: Table) -> Place:
    """The heading of a table, and the words above it."""
    first = table.rows[0].number if table.rows else 0
    above = [line for line in section.lines if line.number < first][-1:]
    around = " ".join([*section.path[-2:], *(line.text for line in above)])
    named = known(section.title) or known(above[0].text if above else "")
    title = section.title
    return Place(
        title=title,
        scope=section.scope(first),
        rated=bool(RATED.search(around)),
        benchmark=named[0].name if len(named) == 1 else "",
        running=bool(CUMULATIVE.search(around)) and not NOT_RUNNING.search(around),
    )


@dataclass(frozen=True, slots=True)
class _Place:
    """A line of the file, for errors."""

    file: Path
    line: int

    def wrong(self, field: str, problem: str, fix: str | None = None) -> ReportedError:
        return ReportedError(problem, file=self.file, line=self.line, field=field, fix=fix)


def read_csv(text: str, file: Path) -> Reported:
    """The record of a CSV text. Raises ReportedError with file, line and column."""
    table, remarks = _table(text, file)
    grid = grid_of(table, Place("", rated=False))
    training = is_training(grid)
    _check(grid, file, training)
    draft = Draft(file.name, text)
    if training:
        read_training(draft, grid)
    read_scores(draft, grid, training)
    for name, line in open_cells(grid):
        draft.left_open(name, 1, line)
    settle(draft)
    _check_controls(draft, grid, file)
    lines = [(line.text, line.number) for line in remarks]
    read_sizes(draft, [("", remarks)])
    read_practice(draft, lines)
    read_claims(draft, lines)
    return finished(draft)


def _table(text: str, file: Path) -> tuple[Table, list[Line]]:
    """The rows of a CSV, and its lines of remarks."""
    lines = text.splitlines()
    remarks = [
        Line(n, plain(line.lstrip("# "))) for n, line in enumerate(lines, 1) if line.startswith("#")
    ]
    kept = "\n".join("" if line.startswith("#") else line for line in lines)
    head = next((line for line in kept.splitlines() if line.strip()), "")
    delimiter = max(",\t;", key=head.count)
    reader = csv.reader(io.StringIO(kept), delimiter=delimiter, skipinitialspace=True)
    rows = [
        Row(reader.line_num, tuple(plain(c) for c in cells))
        for cells in reader
        if any(map(str.strip, cells))
    ]
    if not rows:
        raise ReportedError("needs a column of runs and one of scores", file=file, line=1, fix=FIX)
    header, *rest = rows
    for row in rest:
        if len(row.cells) != len(header.cells):
            problem = "the line has not as many fields as the header"
            raise ReportedError(problem, file=file, line=row.number)
    return Table(header.cells, rest), remarks


FIX = "name one column model, method or run, and one accuracy, score or percent"


def _check(grid: Grid, file: Path, training: bool) -> None:
    """Refuse a table without runs or scores, and cells that are not what their column says."""
    scored = [c for c in grid.columns if c.role in ("score", "average", "correct")]
    named = grid.column("run") or grid.column("benchmark") or grid.column("step")
    if not training and (named is None or not scored):
        first = grid.table.header[0] or "nothing"
        line = min((lines[0] for lines in grid.lines), default=2) - 1 if not grid.turned else 1
        raise ReportedError(
            f"needs a column of runs and one of scores, has {first!r}",
            file=file,
            line=max(line, 1),
            fix=FIX,
        )
    for row, label in enumerate(grid.labels):
        run = grid.column("run")
        place = _Place(file, grid.lines[row][0])
        if run is not None and not grid.cell(row, run.index).strip():
            raise place.wrong(grid.table.header[run.index].lower(), "no run is named")
        for column in grid.columns if label.role == "run" and not training else ():
            _check_cell(grid, row, column, _Place(file, grid.lines[row][column.index]))


def _check_cell(grid: Grid, row: int, column: Column, place: _Place) -> None:
    text, title = grid.cell(row, column.index), grid.table.header[column.index].lower()
    if column.role == "items" and not missing(text) and not whole(text):
        raise place.wrong(title, f"{text!r} is not a number of items")
    if column.role != "score" or missing(text) or cell_name(grid, row, column) is None:
        return
    read = figure(strip_aside(text))
    if read is None:
        raise place.wrong(title, f"{text!r} is not a number")
    cells = [figure(strip_aside(grid.cell(r, column.index))) for r in range(len(grid.labels))]
    share = shares([each for each in cells if each], column.percent)
    for value in read.values:
        if len(value.as_tuple().digits) > MOST_DIGITS or abs(value.adjusted()) > MOST_DIGITS:
            raise place.wrong(title, "no report prints so many digits")
    if any(not 0 <= value <= 100 for value in in_percent(read, share)):
        raise place.wrong(title, f"{text!r} is no score from 0 to 100")


def _check_controls(draft: Draft, grid: Grid, file: Path) -> None:
    """Refuse a control that is no run, and a verdict that is none."""
    for column in grid.columns:
        for row in range(len(grid.labels)):
            text = grid.cell(row, column.index).strip()
            place = _Place(file, grid.lines[row][column.index])
            if column.role == "control" and text and text not in draft.run_names():
                raise place.wrong(
                    "control", f"no run is named {text!r}", nearest(text, draft.run_names())
                )
            if column.title.lower() == "says" and text and text.lower() not in VERDICTS:
                raise place.wrong(
                    "says", f"unknown value {text!r}", "choose " + ", ".join(VERDICTS)
                )


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


READERS: dict[str, Callable[[str, Path], Reported]] = {
    ".toml": read_toml,
    ".csv": read_csv,
    ".md": read_markdown,
    ".markdown": read_markdown,
}


def read_reported(path: str | Path, items: int | None = None) -> Reported:
    """The record of a TOML, CSV or Markdown file; `items` are those of scores without a number.

    Raises ReportedError for a file that is missing, not text or not of its format, NothingReported
    where no result is recognised in it.
    """
    file = Path(path)
    if not file.is_file():
        raise ReportedError("no such file", file=file)
    reader = READERS.get(file.suffix.lower())
    if reader is None:
        fix = nearest(file.suffix, READERS)
        raise ReportedError(f"reads no {file.suffix or 'file without ending'}", file=file, fix=fix)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ReportedError("not UTF-8 text", file=file, fix="save the file as UTF-8") from None
    found = reader(text, file)
    if not results(found):
        fix = "docs/audit.md shows what is recognised; or write the facts down as TOML"
        raise NothingReported("no recognisable results", file=file, fix=fix)
    if items is not None and found.scoring.items is None:
        scoring = found.scoring.model_copy(update={"items": items})
        found = found.model_copy(update={"scoring": scoring})
    return found


def results(found: Reported) -> int:
    """Number of results in a record: scores, readings, differences and marks."""
    counts = [{**run.right, **run.scores} for run in found.runs]
    scores = sum(len(values) for cells in counts for values in cells.values())
    readings = sum(max(len(m.values), len(m.counts)) for m in found.metrics)
    differences = sum(bool(comparison.points) for comparison in found.comparisons)
    return scores + readings + differences + len(found.ratings)
