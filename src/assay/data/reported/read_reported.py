"""Reads reported results: a TOML record, or the tables of a CSV or Markdown file.

A table is read by the names of its columns alone; text around it and its cells' words are not
interpreted. docs/audit.md has a prompt with which an assistant turns a report into a record.
"""

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from assay.data.loaded import absent
from assay.data.reported.reported_record import Reported
from assay.data.toml_text import KeyPath, key_lines, line_of, load_toml, written_path
from assay.errors import InputError, nearest

ENDINGS = (".toml", ".csv", ".md", ".markdown")
ROLES = ("run", "benchmark", "score", "items", "right", "control", "says")
"""What a column of a table may be; `score`, `items` and `right` also of one benchmark, as in
`score.gsm8k`, and `setting.NAME`."""
ROLE = re.compile(rf"{'|'.join(ROLES)}|(score|items|right|setting)\..+")
SCORED = ("score", "right")
NUMBER = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*%?")
MISSING = re.compile(r"[-–—]*|n/?a", re.IGNORECASE)
SEPARATOR = re.compile(r"[>\s]*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*")

Rows = Sequence[tuple[int, list[str]]]
"""Line and cells of each row; the first holds the titles."""


@dataclass(frozen=True, slots=True)
class ReportFile:
    """A file of reported results."""

    records: tuple[Reported, ...]
    """The record of a TOML file, or one of each table."""
    skipped: tuple[int, ...] = ()
    """Lines of the tables without the columns."""


def read_toml(text: str, file: Path) -> Reported:
    """The record of a TOML text. Raises InputError for the first problem, with its line."""
    try:
        # Decimal keeps the digits as printed: 15.00 is not 15.0.
        values = load_toml(text, parse_float=Decimal)
    except InputError as invalid:
        problem = f"not valid TOML: {invalid.problem}"
        raise InputError(problem, file=file, line=invalid.line) from None
    lines = key_lines(text)
    return _checked(values, file, lambda path: line_of(path, lines))


def read_reported(
    path: str | Path,
    items: int | None = None,
    columns: Mapping[str, str] | None = None,
    control: str = "",
) -> ReportFile:
    """The records of a TOML, CSV or Markdown file.

    `items` are those of scores without a number. For tables, `columns` maps roles to titles, where
    these are not the roles themselves, and `control` is the run that others are compared with.
    Raises InputError for a file that is missing, not text, not of its format or without a result.
    """
    file = Path(path)
    if problem := absent(file):
        fix = f"name a report, a file that ends in {' or '.join(ENDINGS)}"
        raise InputError(problem, file=file, fix=fix)
    ending = file.suffix.lower()
    if ending not in ENDINGS:
        fix = nearest(file.suffix, ENDINGS)
        raise InputError(f"reads no {file.suffix or 'file without ending'}", file=file, fix=fix)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("not UTF-8 text", file=file, fix="save the file as UTF-8") from None
    if ending == ".toml":
        reading = ReportFile((read_toml(text, file),))
    else:
        reading = _tables(text, file, columns or {}, control)
    if not any(map(results, reading.records)):
        fix = "write its facts down as TOML: docs/audit.md has a prompt for an assistant"
        raise InputError("no recognisable results", file=file, fix=fix)
    if items is None:
        return reading
    return ReportFile(tuple(_sized(record, items) for record in reading.records), reading.skipped)


def _tables(text: str, file: Path, columns: Mapping[str, str], control: str) -> ReportFile:
    """One record of each table that has the columns."""
    for role in columns:
        if not ROLE.fullmatch(role):
            fix = nearest(role, (*ROLES, "score.BENCHMARK", "setting.NAME"))
            raise InputError("is no role of a column", field=role, fix=fix)
    records, skipped, titles = [], [], dict[str, int]()
    tables = [_csv_rows(text)] if file.suffix.lower() == ".csv" else _markdown_rows(text)
    for rows in filter(None, tables):
        own = {title: place for place, title in enumerate(rows[0][1])}
        named = columns or {title: title for title in own if ROLE.fullmatch(title)}
        scored = "run" in named and any(role.startswith(SCORED) for role in named)
        if scored and own.keys() >= {*named.values()}:
            if twice := [t for t in named.values() if rows[0][1].count(t) > 1]:
                problem, fix = f"two columns have the title {twice[0]!r}", "rename one"
                raise InputError(problem, file=file, line=rows[0][0], fix=fix)
            places = {role: own[title] for role, title in named.items()}
            records.append(_record(rows, places, file, control))
        else:
            skipped.append(rows[0][0])
            titles |= own
    if not records and titles:
        wanted = ", ".join(columns.values()) or "run and score"
        fix = f"map them with --column ROLE=TITLE; titles: {', '.join(titles)}"
        raise InputError(f"no table has the columns {wanted}", file=file, fix=fix)
    return ReportFile(tuple(records), tuple(skipped))


def _record(rows: Rows, places: Mapping[str, int], file: Path, control: str) -> Reported:
    """The record of a table; rows that repeat a run and benchmark are repeats of its score, and
    what one says of a score is a comparison with the run's control."""
    runs, claims = dict[str, dict[str, Any]](), list[dict[str, Any]]()
    named = [role.partition(".")[2] for role in places if role.startswith(SCORED)]
    for line, cells in rows[1:]:
        if len(cells) != len(rows[0][1]):
            problem = f"has {len(cells)} cells, and there are {len(rows[0][1])} columns"
            raise InputError(problem, file=file, line=line)
        texts = {r: text for r, n in places.items() if not MISSING.fullmatch(text := cells[n])}
        name = cells[places["run"]]
        run = runs.setdefault(name, {"name": name, "line": line, "settings": {}})
        run["settings"] |= {r[8:]: text for r, text in texts.items() if r.startswith("setting.")}
        run |= {"control": texts["control"]} if "control" in texts else {}
        benchmarks = [cell or texts.get("benchmark", "") for cell in dict.fromkeys(named)]
        for cell in benchmarks:
            for role, key in (("score", "scores"), ("right", "right"), ("items", "items")):
                text = texts.get(f"{role}.{cell}", texts.get(role))
                if text is None:
                    continue
                match = NUMBER.fullmatch(text)
                if match is None or (role != "score" and "." in match[1]):
                    raise InputError(f"{text!r} is no number", file=file, line=line, field=role)
                value = Decimal(match[1]) if role == "score" else int(match[1])
                of = run.setdefault(key, {})
                of[cell] = value if role == "items" else [*of.get(cell, ()), value]
        against, says = run.get("control", control), texts.get("says")
        if against and says:
            claim = {"run": name, "control": against, "says": says.lower(), "line": line}
            claims.append({**claim, "cells": [*filter(None, benchmarks)]})
    tables = {"runs": [*runs.values()], "comparisons": claims}
    lines: dict[KeyPath, int] = {
        (name, n): part["line"] for name in tables for n, part in enumerate(tables[name])
    }
    values = {"about": file.name, "scoring": {"control": control}, **tables}
    return _checked(values, file, lambda path: lines.get(path[:2]))


def _markdown_rows(text: str) -> Iterator[Rows]:
    """The pipe tables of a Markdown text."""
    lines = text.splitlines()
    for number, line in enumerate(lines[1:], 1):
        if "|" in lines[number - 1] and "-" in line and SEPARATOR.fullmatch(line):
            end = next((n for n in range(number + 1, len(lines)) if "|" not in lines[n]), None)
            body = [number - 1, *range(number + 1, len(lines) if end is None else end)]
            yield [(n + 1, _cells(lines[n])) for n in body]


def _cells(line: str) -> list[str]:
    inner = line.strip().lstrip("> ").removeprefix("|").removesuffix("|")
    return [cell.strip(" *`").replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", inner)]


def _csv_rows(text: str) -> Rows:
    """The table of a CSV text; lines that begin with # are comments."""
    lines = ["" if line.startswith("#") else line for line in text.splitlines()]
    reader = csv.reader(lines, skipinitialspace=True)
    rows = ((reader.line_num, [*map(str.strip, cells)]) for cells in reader)
    return [row for row in rows if any(row[1])]


def _sized(record: Reported, items: int) -> Reported:
    if record.scoring.items is not None:
        return record
    return record.model_copy(update={"scoring": record.scoring.model_copy(update={"items": items})})


def results(reported: Reported) -> int:
    """Number of results in a record: scores, readings, differences and marks."""
    counts = [{**run.right, **run.scores} for run in reported.runs]
    scores = sum(len(values) for cells in counts for values in cells.values())
    readings = sum(max(len(m.values), len(m.counts)) for m in reported.metrics)
    differences = sum(bool(comparison.points) for comparison in reported.comparisons)
    return scores + readings + differences + len(reported.ratings)


def _checked(
    values: Mapping[str, Any], file: Path, line_of: Callable[[KeyPath], int | None]
) -> Reported:
    """The record of plain values. Raises InputError for the first of pydantic's problems, in one
    line with its place and its fix."""
    try:
        return Reported.model_validate(values)
    except ValidationError as invalid:
        errors = [(_written(error, values), error) for error in invalid.errors(include_url=False)]
    path, error = min(errors, key=lambda each: line_of(each[0]) or 0)
    kind, context, message = error["type"], error.get("ctx", {}), error["msg"]
    problem, fix = message[:1].lower() + message[1:], None
    if kind == "refused":
        problem, fix = context["problem"], context["fix"] or None
    elif kind == "extra_forbidden":
        problem, fix = "unknown key", "docs/audit-record.toml has every key"
    elif kind != "missing":
        problem += f", got {error['input']!r}"
    field = ".".join(map(str, path)) or None
    raise InputError(problem, file=file, line=line_of(path), field=field, fix=fix)


def _written(error: ErrorDetails, values: Mapping[str, Any]) -> KeyPath:
    """The place of a problem, as it is written."""
    path = written_path(error["loc"], values, missing=error["type"] == "missing")
    return (*path, *error.get("ctx", {}).get("path", ()))
