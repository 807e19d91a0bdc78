"""Reads a CSV of reported results: one line for each score; docs/audit.md describes the columns.

Scores are percentages when the column is `percent`, shares when it is `score`. Columns that are not
named here are settings of the run.
"""

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path

from assay.data.reported.fields import MOST_DIGITS
from assay.data.reported.problems import ReportedError
from assay.data.reported.record import Mention, Open, Reported, Run, Scoring, Verdict
from assay.errors import nearest

Line = Mapping[str, str]

OWN = ("run", "percent", "score", "items", "benchmark", "control", "says")
VERDICTS: tuple[Verdict, ...] = ("better", "worse", "same")
BLANK = ("", "?", "-", "–", "n/a", "na", "null", "none")
"""A score that is one of these is left open, never 0."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A line of the file, for errors."""

    file: Path
    line: int

    def wrong(self, field: str, problem: str, fix: str | None = None) -> ReportedError:
        return ReportedError(problem, file=self.file, line=self.line, field=field, fix=fix)


@dataclass(slots=True)
class _Draft:
    """What the lines of one run came to."""

    line: int
    scores: dict[str, list[Decimal]] = field(default_factory=dict)
    items: dict[str, int] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    words: dict[str, tuple[str, _Place]] = field(default_factory=dict)
    """What is said once for each run, and where: control, says."""


def read_csv(text: str, file: Path) -> Reported:
    """The record of a CSV text. Raises ReportedError with file, line and column."""
    rows = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    names = [name.strip().lower() for name in rows.fieldnames or ()]
    column = next((name for name in ("percent", "score") if name in names), None)
    if "run" not in names or column is None:
        fix = "name the columns run and percent (or score); " + nearest("run", names or ["nothing"])
        raise ReportedError("needs a column of runs and one of scores", file=file, line=1, fix=fix)
    rows.fieldnames = names
    drafts: dict[str, _Draft] = {}
    left_open, mentions = [], []
    for row in rows:
        place = _Place(file, rows.line_num)
        if None in row or None in row.values():
            problem = "the line has not as many fields as the header"
            raise ReportedError(problem, file=file, line=place.line)
        name, cell = row["run"].strip(), row.get("benchmark", "").strip()
        if not name:
            raise place.wrong("run", "no run is named")
        draft = drafts.setdefault(name, _Draft(place.line))
        if row[column].strip().lower() in BLANK:
            left_open.append(Open(place=f"{name}, {cell}" if cell else name, line=place.line))
        else:
            value = _number(row[column], place, column)
            draft.scores.setdefault(cell, []).append(value)
        _items(draft, cell, row.get("items", "").strip(), place)
        for key in ("control", "says"):
            _once(draft, key, row.get(key, "").strip(), place)
        mentions += _settings(draft, name, row, place)
    runs = tuple(_run(name, draft, drafts) for name, draft in drafts.items())
    scoring = Scoring(unit="percent" if column == "percent" else "share")
    return Reported(
        about=file.name,
        scoring=scoring,
        runs=runs,
        mentions=tuple(mentions),
        open=tuple(left_open),
    )


def _run(name: str, draft: _Draft, runs: Mapping[str, _Draft]) -> Run:
    """The finished run; its control and verdict are looked up."""
    control, place = draft.words.get("control", ("", None))
    if place is not None and control not in runs:
        raise place.wrong("control", f"no run is named {control!r}", nearest(control, runs))
    says, place = draft.words.get("says", ("", None))
    verdict: Verdict | None = next((known for known in VERDICTS if known == says), None)
    if place is not None and verdict is None:
        raise place.wrong("says", f"unknown value {says!r}", "choose " + ", ".join(VERDICTS))
    return Run(
        name=name,
        line=draft.line,
        scores={cell: tuple(values) for cell, values in draft.scores.items()},
        items=draft.items or None,
        settings=draft.settings,
        control=control or None,
        says=verdict,
    )


def _settings(draft: _Draft, name: str, row: Line, place: _Place) -> list[Mention]:
    """Add a line's settings; those that another line gives otherwise become a mention."""
    given = {key: value.strip() for key, value in row.items() if key not in OWN and value.strip()}
    other = {key: v for key, v in given.items() if draft.settings.setdefault(key, v) != v}
    where = f"line {place.line}"
    return [Mention(of=name, place=where, settings=other, line=place.line)] if other else []


def _once(draft: _Draft, key: str, value: str, place: _Place) -> None:
    """Add what a run has one of. Raises ReportedError where two lines differ."""
    if value:
        first, _ = draft.words.setdefault(key, (value, place))
        if first != value:
            raise place.wrong(key, f"{value!r} here and {first!r} above", "give one for each run")


def _items(draft: _Draft, cell: str, text: str, place: _Place) -> None:
    """Add the items of a cell. Raises ReportedError for what is no such number, or another."""
    if not text:
        return
    if not text.isdecimal() or int(text) < 1:
        raise place.wrong("items", f"{text!r} is not a number of items")
    if draft.items.setdefault(cell, int(text)) != int(text):
        problem = f"{text} items here and {draft.items[cell]} above"
        raise place.wrong("items", problem, "give each number of items a benchmark of its own")


def _number(text: str, place: _Place, column: str) -> Decimal:
    """The number as printed."""
    shown = text.strip().removesuffix("%").strip()
    try:
        value = Decimal(shown)
    except InvalidOperation:
        raise place.wrong(column, f"{shown!r} is not a number") from None
    highest = 100 if column == "percent" else 1
    if not value.is_finite() or not 0 <= value <= highest:
        raise place.wrong(column, f"{shown!r} is no score from 0 to {highest}")
    if len(value.as_tuple().digits) > MOST_DIGITS or abs(value.adjusted()) > MOST_DIGITS:
        raise place.wrong(column, "no report prints so many digits")
    return value
