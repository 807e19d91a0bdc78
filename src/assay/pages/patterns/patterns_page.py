"""Writes the pages of a run's patterns, `patterns.html` and `patterns.md`, and shows them on a
terminal.

The templates escape all text of models; the words are made in `patterns_content`.
"""

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from assay.lab.patterns.find_patterns import Patterns
from assay.pages.patterns.patterns_content import Section, patterns_section
from assay.pages.templating import write_pages
from assay.pages.words import Words, in_language, visible, words
from assay.runs.run_directory import RunDirectory

STYLES = {"better": "green", "worse": "red"}


def write_patterns(found: Patterns, run: RunDirectory, lang: str = "en") -> Path:
    """Write both pages into the run's folder; returns the HTML page. Raises UnknownLanguage."""
    w = words(lang)
    values = {
        "w": w,
        "run": found.run,
        "version": version("assay-lab"),
        "patterns": patterns_section(found, w),
    }
    return write_pages(in_language(run.path / "patterns.html", lang), "patterns", values)


def patterns_shown(found: Patterns, lang: str = "en") -> list[RenderableType]:
    """The same for a terminal, without programs and trees."""
    w = words(lang)
    section = patterns_section(found, w)
    kinds = section["kinds"]
    trees = w("patterns.kind_tree")
    return [
        Text(visible(section["title"]), "bold"),
        *map(visible, section["about"]),
        "",
        *(Text(f"– {line}") for line in section["shown"]),
        "",
        pattern_table([kind for kind in kinds if kind["name"] != trees], w),
        "",
        choice_table(w("patterns.by_type"), section["by_type"], w),
        "",
        choice_table(w("patterns.by_difficulty"), section["by_difficulty"], w),
        Text(section["difficulty_about"], "dim"),
        "",
        *section["adapts"],
        "",
        best_table(section["best"], w),
    ]


def table_of(title: str, heads: Sequence[str]) -> Table:
    """An empty table; the first column is text, the others are figures."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None)
    for place, head in enumerate(heads):
        table.add_column(visible(head), justify="right" if place else "left", header_style="dim")
    return table


def pattern_table(kinds: Sequence[Section], w: Words) -> Table:
    """The patterns under the headings of their kinds."""
    names = ("pattern", "high", "low", "programs", "reward", "difference", "p", "verdict", "more")
    table = table_of(w("patterns.table"), [w(f"patterns.{name}") for name in names])
    for kind in kinds:
        table.add_row(Text(kind["name"], "bold"))
        for row in kind["rows"]:
            limits = f"{row['difference']} ({row['interval']})" if row["interval"] else "–"
            counts = (row["high"], row["low"], row["programs"], row["reward"])
            said = Text(row["said"], STYLES.get(row["verdict"], "dim"))
            table.add_row(f"  {row['label']}", *counts, limits, row["p"], said, row["more"])
    return table


def choice_table(title: str, view: Section, w: Words) -> Table:
    """The shares of a table of choices with the verdicts that there are."""
    table = table_of(title, [w("patterns.choice"), *view["columns"]])
    for row in view["rows"]:
        cells = [choice_cell(cell, w) for cell in row["cells"]]
        table.add_row(f"{row['label']} ({row['kind']})", *cells)
    return table


def choice_cell(cell: Section | None, w: Words) -> Text:
    """The share of a cell with its interval, then what it is worth where that has a verdict."""
    if cell is None:
        return Text(w("patterns.absent"), "dim")
    shown = f"{cell['share']} ({cell['interval']})" if cell["interval"] else cell["share"]
    style = STYLES.get(cell["verdict"])
    return Text(f"{shown}\n{cell['effect']}", style) if style else Text(shown)


def best_table(best: Sequence[Section], w: Words) -> Table:
    """The choice made most on each type against the best beside it."""
    names = ("problem_type", "chosen", "pays", "difference", "best_verdict")
    table = table_of(w("patterns.best"), [w(f"patterns.{name}") for name in names])
    for row in best:
        limits = f"{row['difference']} ({row['interval']})" if row["interval"] else "–"
        said = w.semicolon.join(filter(None, (row["verdict"], row["rare"])))
        table.add_row(Text(row["type"]), row["chosen"], row["other"], limits, said)
    return table
