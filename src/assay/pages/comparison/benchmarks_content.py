"""Several benchmarks in one table: the section of a run's page, and the page of a comparison.

A cell has score, interval, ratio and verdict; the last column is the harmonic mean of the ratios.
Figures come from `compare.benchmarks_table`; nothing is computed here.
"""

import os
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from assay.compare.benchmarks_table import BenchmarkRow, BenchmarksTable, benchmarks_table
from assay.compare.table import Line
from assay.judge.findings import Finding
from assay.judge.intervals import Interval
from assay.pages.comparison.comparison_content import (
    finding_rows,
    line_labels,
    mark,
    page_file,
    page_problem,
    write_comparison,
)
from assay.pages.content import STYLES, Section, interval_text, pairing_view
from assay.pages.result_tables import checkpoint_label
from assay.pages.templating import write_pages
from assay.pages.words import Words, number, percent, score_text, words

if TYPE_CHECKING:  # gathering facts loads what a comparison does not need
    from assay.pages.facts import RunFacts

FEWEST = 2
"""Benchmarks that make a table of several."""


def run_benchmarks(facts: "RunFacts", words: Words) -> Section | None:
    """The table of `run_table` as the run's page shows it."""
    table = run_table(facts)
    if table is None:
        return None
    labels = {row.name: checkpoint_label(row.name, words) for row in table.rows}
    return benchmarks_section(table, labels, words)


def run_table(facts: "RunFacts") -> BenchmarksTable | None:
    """The checkpoints of a run on all its benchmarks, each by its first reporting evaluation.

    None where no checkpoint but the control was measured on two benchmarks or more.
    """
    tables = {}
    for found in facts.reported:
        if found.table is not None:
            tables.setdefault(found.table.evaluation.benchmark, found.table)
    if len(tables) < FEWEST:
        return None
    table = benchmarks_table(list(tables.values()))
    return table if any(None not in row.lines for row in table.rows[1:]) else None


def benchmarks_section(table: BenchmarksTable, labels: Mapping[str, str], words: Words) -> Section:
    """The table as a page shows it."""
    columns = [
        {
            "name": each.evaluation.name,
            "benchmark": each.evaluation.benchmark,
            "figure": percent(table.figures[name]) if name in table.figures else "",
        }
        for each, name in zip(table.tables, table.evaluations, strict=True)
    ]
    about = "benchmarks.about_figures" if table.figures else "benchmarks.about_control"
    if len(table.rows) == 1:
        about = "benchmarks.about_alone"
    return {
        "about": words(about, control=labels[table.control]),
        "columns": columns,
        "rows": [_row(table, row, labels[row.name], words) for row in table.rows],
        "marks": list(dict.fromkeys(filter(None, (mark(each, words) for each in table.tables)))),
    }


def _row(table: BenchmarksTable, row: BenchmarkRow, label: str, words: Words) -> Section:
    found, own = row.harmonic, bool(table.figures) or row.name != table.control
    return {
        "label": label,
        "control": row.name == table.control,
        "cells": [
            _cell(line, ratio if own else None, table.control, words)
            for line, ratio in zip(row.lines, row.ratios, strict=True)
        ],
        "harmonic": f"{found.value:.3f}" if found else "–",
        "interval": _limits(found.interval, words) if found and own else "",
        "problem": words(f"benchmarks.{row.problem.replace(' ', '_')}") if row.problem else "",
    }


def _limits(interval: Interval, words: Words) -> str:
    """The limits of a harmonic mean, in as many digits as itself."""
    return words("table.interval_text", low=f"{interval.low:.3f}", high=f"{interval.high:.3f}")


def _cell(line: Line | None, ratio: float | None, control: str, words: Words) -> Section | None:
    """Score, interval, ratio and verdict against the control; None where it was not measured."""
    if line is None:
        return None
    against = (pair for pair in (line.to_control, line.to_previous) if pair is not None)
    return {
        "score": score_text(line.score, line.interval),
        "interval": interval_text(line.interval, words),
        "items": number(line.items),
        "ratio": "" if ratio is None else words("benchmarks.times", ratio=f"{ratio:.3f}"),
        "against": pairing_view(next((p for p in against if p.control == control), None), words),
    }


def write_benchmarks(
    table: BenchmarksTable, root: Path, page: Path | None = None, lang: str = "en"
) -> Path:
    """Write the page (.html and .md) of several benchmarks and, beside it, that of each.

    Returns the HTML page. Raises what `write_comparison` raises.
    """
    w = words(lang)
    target = page_file(table.tables[0], root, page, lang, "-".join(table.evaluations))
    own = [target.parent / f"{target.stem}-{n}.html" for n in range(1, len(table.tables) + 1)]
    pages = [
        write_comparison(each, root, file, lang)
        for each, file in zip(table.tables, own, strict=True)
        if len(each.lines) > 1
    ]
    values = {
        "w": w,
        "version": version("assay-lab"),
        "title": w("benchmarks.title"),
        "benchmarks": benchmarks_section(table, labels_of(table, w), w),
        "findings": finding_rows(findings_of(table), w),
        "pages": [
            (each.evaluation.name, os.path.relpath(file, target.parent))
            for each, file in zip(table.tables, pages, strict=False)
        ],
    }
    with page_problem(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        return write_pages(target, "benchmarks", values)


def findings_of(table: BenchmarksTable) -> list[Finding]:
    """Runs left out and warnings of all benchmarks, each once."""
    every = [each for one in table.tables for each in (*one.left_out, *one.findings)]
    return list(dict.fromkeys(every))


def labels_of(table: BenchmarksTable, words: Words) -> dict[str, str]:
    """The names of all rows, as the tables of the benchmarks show them."""
    found = {}
    for each in table.tables:
        found = {**line_labels(each, words), **found}
    return found


def benchmarks_shown(table: BenchmarksTable, words: Words) -> list[RenderableType]:
    """The table of several benchmarks in a terminal."""
    return section_shown(benchmarks_section(table, labels_of(table, words), words), words)


def section_shown(section: Section | None, words: Words) -> list[RenderableType]:
    """The section in a terminal; nothing without one."""
    if section is None:
        return []
    view = RichTable(box=None, header_style="bold")
    view.add_column(words("table.checkpoint"))
    for column in section["columns"]:
        figure = f" ({column['figure']})" if column["figure"] else ""
        view.add_column(Text(column["name"] + figure))
    view.add_column(words("benchmarks.harmonic"))
    for row in section["rows"]:
        harmonic = " ".join(filter(None, (row["harmonic"], row["interval"], row["problem"])))
        view.add_row(Text(row["label"]), *map(_cell_text, row["cells"]), Text(harmonic))
    marks = [Text(said, "yellow") for said in section["marks"]]
    return [Text(words("benchmarks.title"), "bold"), view, *marks, Text(section["about"], "dim")]


def _cell_text(cell: Section | None) -> Text:
    if cell is None:
        return Text("–", "dim")
    text = Text.assemble((cell["score"], "bold"), f" ({cell['interval']})")
    if cell["ratio"]:
        text.append(f" {cell['ratio']}")
    if cell["against"]:
        text.append(f" {cell['against']['verdict']}", STYLES.get(cell["against"]["kind"], ""))
    return text
