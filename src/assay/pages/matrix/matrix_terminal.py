"""The terminal view of a matrix: its tables, what is said of them, and the tables by control.

Makes rich renderables and prints nothing.
"""

from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from assay.lab.sweep.matrix.model import Matrix
from assay.pages.matrix.matrix_changes import BlockView, block_caveats, block_views
from assay.pages.matrix.matrix_training import data_view, training_views
from assay.pages.matrix.matrix_view import (
    column_labels,
    commands,
    layer_views,
    leaf_names,
    overlap_lines,
    recommendation_view,
    tally_lines,
)
from assay.pages.words import Words, words


def matrix_shown(found: Matrix, lang: str = "en") -> list[RenderableType]:
    """One table for each layer, then sentences. Raises UnknownLanguage."""
    w = words(lang)
    parts = (_tables, _commands, _blocks, _training, _sentences)
    return [shown for part in parts for shown in part(found, w)]


def _blocks(found: Matrix, words: Words) -> list[RenderableType]:
    """The tables against each control, with what must be known to read them."""
    shown = [part for block in block_views(found, words) for part in _block(block)]
    return [*shown, *(Text(line, "dim") for line in block_caveats(found, words))]


def _training(found: Matrix, words: Words) -> list[RenderableType]:
    """The epochs of every run, and what the runs learned from."""
    files = data_view(found, words)
    views = [*training_views(found, words), *([files] if files else [])]
    return [part for block in views for part in _block(block)]


def _block(block: BlockView) -> list[RenderableType]:
    return [Text(f"\n{block.title}", "bold"), *_plain_tables(block), *map(Text, block.said)]


def _plain_tables(block: BlockView) -> list[Table]:
    tables = []
    for each in block.tables:
        table = Table(*each.head, box=None, header_style="bold")
        for row in each.rows:
            table.add_row(*map(Text, row))
        tables.append(table)
    return tables


def _tables(found: Matrix, words: Words) -> list[Table]:
    """One table for each layer."""
    views = []
    name, listed = leaf_names(found)[found.layout.rows], commands(found)
    for layer in layer_views(found, words):
        table = Table(title=layer["title"] or None, show_lines=True)
        for label in (name, *column_labels(found, words), words("matrix.average")):
            table.add_column(label)
        for row in layer["rows"]:
            table.add_row(
                row["label"],
                *(_cell_text(cell, listed, words) for cell in row["cells"]),
                _average_text(row["average"]),
            )
        if layer["averages"]:
            averages = map(_average_text, [*layer["averages"], layer["all"]])
            table.add_row(words("matrix.average"), *averages)
        views.append(table)
    return views


def _cell_text(cell: dict[str, Any], commands: Sequence[str], words: Words) -> str:
    """A cell as the terminal shows it."""
    if not cell["measured"]:
        return "\n".join(filter(None, (cell["state"], _number_of(cell, commands))))
    lines = [cell["score"], cell["interval"], cell["size"]]
    lines += [line for line in (cell["dev"],) if line]
    change = cell["change"]
    if change is not None:
        lines += [f"{change['sign']} {change['difference']} {change['verdict']}"]
    if cell["mark"]:
        lines.append(words(f"matrix.mark_{cell['mark']}"))
    if number := _number_of(cell, commands):
        lines.append(number)
    return "\n".join(lines)


def _number_of(cell: dict[str, Any], commands: Sequence[str]) -> str:
    """The number of the command that fills a cell, in the list below the tables."""
    return f"({commands.index(cell['command']) + 1})" if cell["command"] else ""


def _commands(found: Matrix, words: Words) -> list[str]:
    """What fills the empty cells, numbered."""
    lines = [f"({n}) {text}" for n, text in enumerate(commands(found), 1)]
    return [words("matrix.fills"), *lines] if lines else []


def _average_text(found: dict[str, Any] | None) -> str:
    """An average as the terminal shows it."""
    if found is None:
        return "–"
    return "\n".join(filter(None, (found["score"], found["interval"], found["cells"])))


def _sentences(found: Matrix, words: Words) -> list[str]:
    """Counts, dependence and the recommendation, a line each."""
    advice = recommendation_view(found, words)
    dependent = words("matrix.dependent")
    lines = tally_lines(found.tally, found, words)
    lines += [f"{line} [{dependent}]" if yes else line for line, yes in overlap_lines(found, words)]
    if advice["chosen"]:
        asked = {key: advice[key] for key in ("setting", "model", "why")}
        lines.append(words("matrix.recommended", **asked))
    else:
        lines.append(words("matrix.not_recommended", why=advice["why"]))
    lines += [f"  {line}" for line in advice["evidence"]]
    return [*lines, advice["winner"]] if advice["winner"] else lines
