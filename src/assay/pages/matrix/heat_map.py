"""Draws a layer of a matrix as a heat map: colour by score, the winner and its rivals marked.

Scores and marks come from the matrix, colours from the page's style. The table beside it says more
about each cell.
"""

from markupsafe import Markup

from assay.lab.sweep.matrix.coordinates import Place
from assay.lab.sweep.matrix.model import Cell, Matrix
from assay.pages.charts import drawing, rect, text
from assay.pages.matrix.matrix_view import (
    column_labels,
    leaf_names,
    limits,
    mark_of,
    place_text,
    score_text,
    shade,
    value_text,
)
from assay.pages.words import Words

WIDE, HIGH, GAP = 128.0, 62.0, 9.0
"""Least width and height of a cell, and the gap between two."""
LETTER = 7.2
"""Width of a letter of a label, on average."""
TOP = 44.0
"""Room for the labels of the columns."""


def heat_map(matrix: Matrix, layer: Place, words: Words) -> Markup:
    """The cells of a layer, with score, interval and mark written in each."""
    labels = [value_text(row) for row in matrix.rows]
    names = leaf_names(matrix)
    first = names[matrix.layout.rows]
    left = LETTER * max(map(len, (*labels, first))) + 14
    marks = [text(left - 10, TOP - 8, first, "axis", "end")]
    columns = column_labels(matrix, words)
    wide = max(WIDE, LETTER * max(map(len, columns)) + GAP)
    width = left + len(columns) * (wide + GAP)
    if matrix.layout.columns:
        middle = (left + width) / 2
        marks.append(text(middle, 14, names[matrix.layout.columns], "axis", "middle"))
    for at, label in enumerate(columns):
        place = left + at * (wide + GAP) + wide / 2
        marks.append(text(place, TOP - 8, label, "label", "middle"))
    for down, (row, label) in enumerate(zip(matrix.rows, labels, strict=True)):
        y = TOP + down * (HIGH + GAP)
        marks.append(text(left - 10, y + HIGH / 2 + 4, label, "label", "end"))
        for at, column in enumerate(matrix.columns):
            cell = matrix.cells[(row, column, *layer)]
            marks += _cell(cell, (left + at * (wide + GAP), y, wide), matrix, words)
    height = TOP + len(labels) * (HIGH + GAP)
    figure = drawing(width, height, marks, words("matrix.heat"))
    frame = Markup('<div style="width:{}px">{}</div>')
    return frame.format(round(width), figure)


def _cell(cell: Cell, at: tuple[float, float, float], matrix: Matrix, words: Words) -> list[Markup]:
    """One cell `at` a place (x, y) with a width."""
    x, y, wide = at
    middle = x + wide / 2
    if cell.score is None or cell.interval is None:
        state = words(f"cell_state.{cell.state}")
        return [rect(x, y, wide, HIGH, "void"), text(middle, y + HIGH / 2 + 4, state, "", "middle")]
    tone, mark = shade(cell.score, matrix), mark_of(cell, matrix)
    shown, title = score_text(cell.score, matrix), place_text(cell.place, matrix, words)
    drawn = [
        rect(x, y, wide, HIGH, f"shade{tone}", title),
        text(middle, y + 24, shown, f"value on{tone}", "middle"),
        text(middle, y + 40, limits(cell.interval, matrix, words), f"on{tone}", "middle"),
    ]
    if mark:
        drawn.append(text(middle, y + 55, words(f"matrix.mark_{mark}"), f"on{tone} said", "middle"))
        drawn.append(rect(x - 3, y - 3, wide + 6, HIGH + 6, f"frame {mark}"))
    return drawn
