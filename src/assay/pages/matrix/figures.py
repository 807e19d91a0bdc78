"""Scores, differences and places of a matrix as texts.

With `ratios` a value is a harmonic mean of ratios, else a share.
"""

from collections.abc import Mapping

from assay.judge.intervals import Interval
from assay.judge.templates import filled
from assay.judge.verdict import Comparison, explain
from assay.lab.sweep.matrix.coordinates import Place, Value
from assay.lab.sweep.matrix.model import Cell, Matrix
from assay.lab.sweep.value_names import shortest_ends
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
