"""Reads a CSV of reported results: one line for each score; docs/audit.md describes the columns.

Scores are percentages when the column is `percent`, shares when it is `score`. Columns that are not
named here are settings of the run.
"""

import csv
import io
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from assay.data.reported.problems import ReportedError
from assay.data.reported.record import Reported, Run, Scoring, Verdict
from assay.errors import nearest

Line = Mapping[str, str]

OWN = ("run", "percent", "score", "items", "benchmark", "control", "says")
VERDICTS: tuple[Verdict, ...] = ("better", "worse", "same")
BLANK = ("", "?", "-", "–", "n/a", "na", "null", "none")
"""A score that is one of these is left open, never 0."""


def read_csv(text: str, file: Path) -> Reported:
    """The record of a CSV text. Raises ReportedError with file, line and column."""
    rows = csv.DictReader(io.StringIO(text.removeprefix("\ufeff")), skipinitialspace=True)
    names = [name.strip().lower() for name in rows.fieldnames or ()]
    if "run" not in names or not {"percent", "score"} & set(names):
        fix = "name the columns run and percent (or score); " + nearest("run", names or ["nothing"])
        raise ReportedError("needs a column of runs and one of scores", file=file, line=1, fix=fix)
    unit = "percent" if "percent" in names else "share"
    rows.fieldnames = names
    table: dict[str, dict[str, Any]] = {}
    for row in rows:
        _add(table, row, "percent" if unit == "percent" else "score", file, rows.line_num)
    runs = tuple(Run(**run) for run in table.values())
    controls = {run.control for run in runs if run.control}
    if controls - {run.name for run in runs}:
        missing = sorted(controls - {run.name for run in runs})[0]
        fix = nearest(missing, table)
        raise ReportedError(f"no run is named {missing!r}", file=file, field="control", fix=fix)
    return Reported(about=file.name, scoring=Scoring(unit=unit), runs=runs)


def _add(table: dict[str, dict[str, Any]], row: Line, column: str, file: Path, line: int) -> None:
    """Add one line to its run."""
    if None in row or None in row.values():
        raise ReportedError("the line has not as many fields as the header", file=file, line=line)
    name = row["run"].strip()
    if not name:
        raise ReportedError("no run is named", file=file, line=line, field="run")
    new = {"name": name, "line": line, "scores": {}, "items": {}, "settings": {}, "finished": True}
    run = table.setdefault(name, new)
    cell = row.get("benchmark", "").strip()
    if row[column].strip().lower() in BLANK:
        run["finished"] = bool(run["scores"])
    else:
        value = _number(row[column].removesuffix("%"), file, line, column)
        run["scores"][cell] = (*run["scores"].get(cell, ()), value)
        run["finished"] = True
    if row.get("items", "").strip():
        run["items"][cell] = _items(row["items"], file, line)
    if row.get("control", "").strip():
        run["control"] = row["control"].strip()
    if row.get("says", "").strip():
        run["says"] = _verdict(row["says"].strip(), file, line)
    own = {k: v.strip() for k, v in row.items() if k not in OWN and v.strip()}
    run["settings"] |= own


def _number(text: str, file: Path, line: int, column: str) -> Decimal:
    """The number as printed."""
    try:
        value = Decimal(text.strip())
    except InvalidOperation:
        problem = f"{text.strip()!r} is not a number"
        raise ReportedError(problem, file=file, line=line, field=column) from None
    if not value.is_finite():
        raise ReportedError(f"{text.strip()!r} is no score", file=file, line=line, field=column)
    return value


def _items(text: str, file: Path, line: int) -> int:
    """A number of items."""
    if not text.strip().isdecimal() or int(text) < 1:
        problem = f"{text.strip()!r} is not a number of items"
        raise ReportedError(problem, file=file, line=line, field="items")
    return int(text)


def _verdict(text: str, file: Path, line: int) -> Verdict:
    """What the report says of the run."""
    for verdict in VERDICTS:
        if text == verdict:
            return verdict
    fix = "choose " + ", ".join(VERDICTS)
    raise ReportedError(f"unknown value {text!r}", file=file, line=line, field="says", fix=fix)
