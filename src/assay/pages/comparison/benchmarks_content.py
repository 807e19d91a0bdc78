"""Several benchmarks in one table: the section of a run's page, and the page of a comparison.

A cell has score, interval, ratio and verdict; the last column is the harmonic mean of the ratios.
Figures come from `compare.table`; nothing is computed here.
"""

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from assay.compare.table import BenchmarkRow, BenchmarksTable, benchmarks_table
from assay.compare.table import Line as Scored
from assay.errors import Finding
from assay.pages.comparison.comparison_page import (
    line_labels,
    mark,
    page_file,
    page_problem,
    sections,
)
from assay.pages.content import interval_text
from assay.pages.page import (
    Block,
    Cell,
    Column,
    Findings,
    Heading,
    Mark,
    Page,
    Table,
    Text,
)
from assay.pages.result_tables import checkpoint_label
from assay.pages.words import Words, number, percent, score_text, words
from assay.pages.write_page import write_page

if TYPE_CHECKING:  # gathering facts loads what a comparison does not need
    from assay.pages.facts import RunFacts

OF_EACH = ("scores", "differences", "fairness", "flips")
"""The sections of a comparison that stand below the table of all benchmarks."""
FEWEST = 2
"""Benchmarks that make a table of several."""


def run_benchmarks(facts: "RunFacts", words: Words) -> list[Block]:
    """The table of `run_table` as the run's page shows it."""
    table = run_table(facts)
    if table is None:
        return []
    labels = {row.name: checkpoint_label(row.name, words) for row in table.rows}
    return benchmark_blocks(table, labels, words)


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


def benchmark_blocks(
    table: BenchmarksTable, labels: Mapping[str, str], words: Words
) -> list[Block]:
    """The marks of the tables, the scores and ratios, and how they were made."""
    columns: list[Column | str] = [words("table.checkpoint")]
    for each, name in zip(table.tables, table.evaluations, strict=True):
        record = each.evaluation
        below = [record.benchmark] if record.benchmark != record.name else []
        if name in table.figures:
            below.append(words("benchmarks.figure", figure=percent(table.figures[name])))
        columns.append(Column(record.name, True, below))
    columns.append(Column(words("benchmarks.harmonic"), True))
    about = "benchmarks.about_figures" if table.figures else "benchmarks.about_control"
    if len(table.rows) == 1:
        about = "benchmarks.about_alone"
    marks = dict.fromkeys(filter(None, (mark(each, words) for each in table.tables)))
    return [
        *(Text(each, "warning") for each in marks),
        Table(columns, [_row(table, row, labels[row.name], words) for row in table.rows], kind=""),
        Text(words(about, control=labels[table.control]), "soft"),
    ]


def _row(table: BenchmarksTable, row: BenchmarkRow, label: str, words: Words) -> list[Cell]:
    found, own = row.harmonic, bool(table.figures) or row.name != table.control
    control = [Mark(words("compare.control"), "plain")] if row.name == table.control else []
    cells = [
        _cell(line, ratio if own else None, table.control, words)
        for line, ratio in zip(row.lines, row.ratios, strict=True)
    ]
    harmonic = Mark(f"{found.value:.3f}" if found else "–", "score")
    interval = words.ends(found.interval, "{:.3f}".format) if found and own else ""
    problem = words(f"benchmarks.{row.problem.replace(' ', '_')}") if row.problem else ""
    return [Cell(label, control, kind="head"), *cells, Cell(harmonic, [interval, problem])]


def _cell(line: Scored | None, ratio: float | None, control: str, words: Words) -> Cell:
    """Score, interval, ratio and verdict against the control."""
    if line is None:
        return Cell("–", kind="soft")
    pairings = [p for p in (line.to_control, line.to_previous) if p and p.control == control]
    verdicts = [
        Mark(words(f"verdict_name.{v}"), v) for p in pairings[:1] if (v := p.comparison.verdict)
    ]
    interval = f"{interval_text(line.interval, words)}, n {number(line.items)}"
    times = "" if ratio is None else words("benchmarks.times", ratio=f"{ratio:.3f}")
    return Cell(Mark(score_text(line.score, line.interval), "score"), [interval, times, *verdicts])


def write_benchmarks(
    table: BenchmarksTable, root: Path, page: Path | None = None, lang: str = "en"
) -> Path:
    """Write the page (.html and .md) of several benchmarks, each with its own sections below.

    Returns the HTML page. Raises what `write_comparison` raises.
    """
    w = words(lang)
    target = page_file(table.tables[0], root, page, lang, "-".join(table.evaluations))
    findings = findings_of(table)
    blocks: list[Block] = [
        *([Findings(findings)] if findings else []),
        *benchmark_blocks(table, labels_of(table, w), w),
    ]
    for each in table.tables:
        blocks.append(Heading(each.evaluation.name, 2))
        blocks += [b for part in sections(each, w, wanted=OF_EACH) for b in part.blocks]
    footer = w("compare.footer", version=version("assay-lab"))
    with page_problem(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        return write_page(Page(w, w("benchmarks.title"), blocks, footer), target)


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


def benchmarks_shown(table: BenchmarksTable, words: Words) -> list[Block]:
    """The table of several benchmarks in a terminal."""
    title = Heading(words("benchmarks.title"))
    return [title, *benchmark_blocks(table, labels_of(table, words), words)]
