"""What the terminal shows of a matrix: a table for each layer, counts, the recommendation.

Makes rich renderables and prints nothing.
"""

from typing import Any

from rich.console import RenderableType
from rich.table import Table

from assay.lab.sweep.matrix.model import Matrix
from assay.report.matrix_view import (
    column_labels,
    layer_views,
    leaf_names,
    overlap_lines,
    recommendation_view,
    tally_lines,
)
from assay.report.words import Words, words


def matrix_shown(found: Matrix, lang: str = "en") -> list[RenderableType]:
    """One table for each layer, then sentences. Raises UnknownLanguage."""
    w = words(lang)
    return [*_tables(found, w), *_sentences(found, w)]


def _tables(found: Matrix, words: Words) -> list[Table]:
    """One table for each layer."""
    views = []
    name = leaf_names(found)[found.layout.rows]
    for layer in layer_views(found, words):
        table = Table(title=layer["title"] or None, show_lines=True)
        for label in (name, *column_labels(found, words), words("matrix.average")):
            table.add_column(label)
        for row in layer["rows"]:
            table.add_row(
                row["label"], *map(_cell_text, row["cells"]), _average_text(row["average"])
            )
        if layer["averages"]:
            averages = map(_average_text, [*layer["averages"], layer["all"]])
            table.add_row(words("matrix.average"), *averages)
        views.append(table)
    return views


def _cell_text(cell: dict[str, Any]) -> str:
    """A cell as the terminal shows it."""
    if not cell["measured"]:
        return cell["state"]
    lines = [cell["score"], cell["interval"], cell["size"]]
    change = cell["change"]
    if change is not None:
        lines += [f"{change['sign']} {change['difference']} {change['verdict']}"]
    return "\n".join(lines)


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
    return [*lines, *(f"  {line}" for line in advice["evidence"])]
