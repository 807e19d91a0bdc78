"""Columns of counts told by their numbers: of two columns, the one over the other is a third.

`fit | all | ratio` with 173, 320 and 54.1 % are right ones, items and score, whatever they are
called. One wrong row in three does not hide it, so that the audit can say that it is wrong.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

from assay.data.reported.reading.blocks import Table
from assay.data.reported.reading.columns import Column, strip_aside
from assay.data.reported.reading.figures import figure, whole

POINTS = 0.15
"""Points by which a percentage may differ from its counts, roundings and cut digits included."""
SHARE = re.compile(r"(?:ratio|share|rate|percentage|比例|比率|占比|百分比|\S*率)", re.I)
OPEN_ROLES = ("ignored", "score", "items", "correct", "metric")


def with_counts(table: Table, columns: list[Column]) -> list[Column]:
    """The columns, with the counts behind an untold percentage told."""
    if any(column.role in ("items", "correct") for column in columns):
        return columns
    open_ = [column for column in columns[1:] if column.role in OPEN_ROLES]
    for score in [column for column in open_ if column.role != "metric"]:
        shown = [_percentage(row.cells, score) for row in table.rows]
        for part, all_of in permutations([c for c in open_ if c is not score], 2):
            rows = [(_count(r.cells, part), _count(r.cells, all_of)) for r in table.rows]
            if _agree(shown, rows):
                return [_told(c, part, all_of, score) for c in columns]
        for both in [c for c in open_ if c is not score]:
            if _agree(shown, [_of_total(row.cells, both) for row in table.rows]):
                return [_told(c, both, None, score) for c in columns]
    return columns


def _told(column: Column, part: Column, all_of: Column | None, score: Column) -> Column:
    if column is score:
        return replace(column, role="score", name=_benchmark(score))
    name = _benchmark(score)
    if column is part:
        return replace(column, role="correct", name=name)
    return replace(column, role="items", name=name) if column is all_of else column


def _benchmark(score: Column) -> str:
    """The benchmark that a title names; none where it says `ratio`."""
    return "" if score.role != "score" or SHARE.fullmatch(score.name) else score.name


def _agree(shown: Sequence[float | None], rows: Sequence[tuple[int | None, int | None]]) -> bool:
    """Whether most percentages are the counts beside them; two rows at least."""
    known = [
        abs(value - 100 * count / total) <= POINTS
        for value, (count, total) in zip(shown, rows, strict=True)
        if value is not None and count is not None and total and count <= total
    ]
    return sum(known) > 1 and 3 * sum(known) >= 2 * len(shown)


def _percentage(cells: Sequence[str], column: Column) -> float | None:
    read = figure(strip_aside(cells[column.index])) if column.index < len(cells) else None
    return float(read.values[0]) if read and len(read.values) == 1 and read.count is None else None


def _count(cells: Sequence[str], column: Column) -> int | None:
    return whole(cells[column.index]) if column.index < len(cells) else None


def _of_total(cells: Sequence[str], column: Column) -> tuple[int | None, int | None]:
    read = figure(cells[column.index]) if column.index < len(cells) else None
    return (read.count, read.total) if read and not read.values else (None, None)
