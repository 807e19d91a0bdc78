"""Reads a CSV of results, wide or long, by what its columns are called; docs/audit.md lists them.

A CSV is one table, so that what is no number in a column of scores or items is an error with its
line and column rather than left alone. Lines that begin with # are read as sentences.
"""

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from assay.data.reported.reading.blocks import Line, Row, Table, plain
from assay.data.reported.reading.columns import Column, in_percent, shares, strip_aside
from assay.data.reported.reading.draft import Draft, finished, settle
from assay.data.reported.reading.figures import figure, missing, whole
from assay.data.reported.reading.grids import Grid, Place, grid_of
from assay.data.reported.reading.practice import read_practice
from assay.data.reported.reading.run_tables import (
    VERDICTS,
    cell_name,
    is_training,
    open_cells,
    read_scores,
)
from assay.data.reported.reading.sizes import read_sizes
from assay.data.reported.reading.stated_claims import read_claims
from assay.data.reported.reading.step_tables import read_training
from assay.data.reported.record_fields import MOST_DIGITS
from assay.data.reported.reported_errors import ReportedError
from assay.data.reported.reported_record import Reported
from assay.errors import nearest


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
