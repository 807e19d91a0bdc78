"""Scores, differences and places of a matrix as texts.

With `ratios` a value is a harmonic mean of ratios, else a share.
"""

from collections.abc import Iterator, Mapping

from markupsafe import Markup

from assay.judge.intervals import Interval
from assay.judge.templates import filled
from assay.judge.verdict import Comparison, explain
from assay.lab.sweep.matrix.coordinates import Place, Value
from assay.lab.sweep.matrix.model import Cell, Matrix
from assay.lab.sweep.value_names import shortest_ends
from assay.pages.charts import drawing, rect, text
from assay.pages.page import Figure
from assay.pages.words import Words, percent, points


def score_text(value: float, ratios: bool) -> str:
    """A value: a share in percent, a harmonic mean as it is."""
    return f"{value:.3f}" if ratios else percent(value)


def limits(interval: Interval, ratios: bool, w: Words) -> str:
    """The limits of a value."""
    return w.ends(interval, lambda end: score_text(end, ratios))


def change_text(value: float, ratios: bool) -> str:
    """A difference: in points, or in units of the ratio."""
    return f"{value:+.3f}".replace("-", "−") if ratios else points(value)


def change_limits(value: float, interval: Interval, ratios: bool, w: Words) -> str:
    """A difference with its limits."""
    low, high = (change_text(end, ratios) for end in (interval.low, interval.high))
    return w("table.short", difference=change_text(value, ratios), low=low, high=high)


SAME = "same weights"


def verdict_of(cell: Cell, control: str, found: Comparison) -> str:
    """The verdict of a cell against a control, or that the two are the same weights."""
    return SAME if control in cell.same_weights else found.verdict


def explained(found: Comparison, ratios: bool, w: Words) -> str:
    """A comparison in words; differences of ratios are not points, so they get their own."""
    if not ratios:
        return explain(found, w.verdicts)
    if found.verdict == "not comparable":
        return w.verdicts["not comparable"].format(confounds=w.listing.join(found.confounds))
    verdict = w(f"verdict_name.{found.verdict}")
    change = change_limits(found.difference, found.interval, ratios, w)
    line = w("matrix.ratio_verdict", verdict=verdict, change=change, p=f"{found.adjusted_p:.2g}")
    if found.family == 1:
        return line
    figures = {"level": found.interval.level * 100, "family": found.family}
    return w.semicolon.join((line, filled(w.verdicts["family interval"], figures)))


def value_text(value: Value) -> str:
    """A value on an axis."""
    return "–" if value is None else f"{value}"


def leaf_names(matrix: Matrix) -> dict[str, str]:
    """The shortest unambiguous name of each axis: the end of its dotted key."""
    return {key: ".".join(end) for key, end in shortest_ends(matrix.layout.keys).items()}


def values_text(values: Mapping[str, Value], matrix: Matrix, w: Words) -> str:
    """Values of some axes."""
    names = leaf_names(matrix)
    return w.listing.join(f"{names[key]} = {value_text(value)}" for key, value in values.items())


def place_text(place: Place, matrix: Matrix, w: Words) -> str:
    """A cell by its coordinates."""
    return values_text(matrix.layout.values(place), matrix, w)


def column_labels(matrix: Matrix, w: Words) -> list[str]:
    """The heads of the columns."""
    if matrix.layout.columns is None:
        return [w("table.score")]
    return [value_text(value) for value in matrix.columns]


WIDE, HIGH, GAP = 128.0, 62.0, 9.0
"""Least width and height of a cell, and the gap between two."""
LETTER = 7.2
"""Width of a letter of a label, on average."""
TOP = 44.0
"""Room for the labels of the columns."""
SHADES = 8
"""Steps of the colours above the lowest."""


def heat_maps(matrix: Matrix, w: Words) -> Iterator[Figure]:
    """One figure for each layer with its title, then the key of the colours."""
    for layer in matrix.layers:
        title = values_text(dict(zip(matrix.layout.layers, layer, strict=True)), matrix, w)
        yield Figure(_layer(matrix, layer, w), title)
    low, high = w("matrix.low"), w("matrix.high")
    start = LETTER * len(low) + 8
    shades = [rect(start + 20 * n, 4, 18, 12, f"shade{n}") for n in range(SHADES + 1)]
    end = start + 20 * (SHADES + 1) + 6
    width = end + LETTER * len(high)
    marks = [text(0, 14, low, "axis"), *shades, text(end, 14, high, "axis")]
    yield Figure(_as_wide(width, drawing(width, 20, marks, f"{low} – {high}")))


def _as_wide(width: float, figure: Markup) -> Markup:
    """A drawing of its own size: an attribute, because a strict policy forbids inline styles."""
    return Markup('<svg width="{}" ').format(round(width)) + figure.removeprefix("<svg ")


def _layer(matrix: Matrix, layer: Place, w: Words) -> Markup:
    """The cells of a layer, with score, interval and mark written in each."""
    labels, names = [value_text(row) for row in matrix.rows], leaf_names(matrix)
    first, columns = names[matrix.layout.rows], column_labels(matrix, w)
    left = LETTER * max(map(len, (*labels, first))) + 14
    wide = max(WIDE, LETTER * max(map(len, columns)) + GAP)
    width = left + len(columns) * (wide + GAP)
    marks = [text(left - 10, TOP - 8, first, "axis", "end")]
    if matrix.layout.columns:
        marks.append(text((left + width) / 2, 14, names[matrix.layout.columns], "axis", "middle"))
    for at, label in enumerate(columns):
        middle = left + at * (wide + GAP) + wide / 2
        marks.append(text(middle, TOP - 8, label, "label", "middle"))
    for down, (row, label) in enumerate(zip(matrix.rows, labels, strict=True)):
        y = TOP + down * (HIGH + GAP)
        marks.append(text(left - 10, y + HIGH / 2 + 4, label, "label", "end"))
        for at, column in enumerate(matrix.columns):
            cell = matrix.cells[(row, column, *layer)]
            marks += _cell(cell, (left + at * (wide + GAP), y, wide), matrix, w)
    height = TOP + len(labels) * (HIGH + GAP)
    return _as_wide(width, drawing(width, height, marks, w("matrix.heat")))


def _cell(cell: Cell, at: tuple[float, float, float], matrix: Matrix, w: Words) -> list[Markup]:
    """One cell `at` a place (x, y) with a width."""
    x, y, wide = at
    middle, ratios = x + wide / 2, bool(matrix.ratios_to)
    if cell.score is None or cell.interval is None:
        state = w(f"cell_state.{cell.state}")
        return [rect(x, y, wide, HIGH, "void"), text(middle, y + HIGH / 2 + 4, state, "", "middle")]
    tone, mark = _shade(cell.score, matrix), matrix.mark(cell)
    title = place_text(cell.place, matrix, w)
    drawn = [
        rect(x, y, wide, HIGH, f"shade{tone}", title),
        text(middle, y + 24, score_text(cell.score, ratios), f"value on{tone}", "middle"),
        text(middle, y + 40, limits(cell.interval, ratios, w), f"on{tone}", "middle"),
    ]
    if mark:
        drawn.append(text(middle, y + 55, w(f"matrix.mark_{mark}"), f"on{tone} bold", "middle"))
        drawn.append(rect(x - 3, y - 3, wide + 6, HIGH + 6, f"frame {mark}"))
    return drawn


def _shade(score: float, matrix: Matrix) -> int:
    """0 for the lowest score of the matrix to SHADES for the highest."""
    scores = [cell.score for cell in matrix.measured if cell.score is not None]
    low, high = min(scores), max(scores)
    return round(SHADES * (score - low) / (high - low)) if high > low else SHADES // 2
