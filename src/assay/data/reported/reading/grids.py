"""Turns every table so that runs are its rows, and finds the rows with items, changes or averages.

Columns of counts are recognised by their numbers: `fit | all | ratio` with 173, 320 and 54.1 % are
correct answers, items and score, whatever their titles. One wrong row in three does not prevent
that, so the audit can report it. Scores are read in `run_tables`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from assay.data.reported.reading import vocabulary
from assay.data.reported.reading.blocks import Row, Table
from assay.data.reported.reading.columns import (
    Column,
    column_cells,
    columns_of,
    role_of,
    setting_of,
    strip_aside,
    title_parts,
)
from assay.data.reported.reading.draft import known
from assay.data.reported.reading.figures import clean, figure, whole
from assay.data.reported.reading.vocabulary import Role

POINTS = 0.15
"""Points by which a percentage may differ from its counts, roundings and cut digits included."""
SHARE = re.compile(r"(?:ratio|share|rate|percentage|比例|比率|占比|百分比|\S*率)", re.I)
OPEN_ROLES = ("ignored", "score", "items", "correct", "metric")


def with_counts(table: Table, columns: list[Column]) -> list[Column]:
    """The columns, with roles for the counts behind a percentage where titles give none."""
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


STEP_NAME = re.compile(
    r"^(?:(?:global[ _]?)?(?:step|epoch|round|iter(?:ation)?|ckpt|checkpoint)[ _-]*(\d[\d,]*)"
    r"|第\s*(\d+)\s*(?:步|轮)|(\d+)\s*(?:步|轮))$",
    re.I,
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a table stands."""

    title: str
    """Its heading."""
    rated: bool
    """Whether the words around it speak of scores."""
    benchmark: str = ""
    """The benchmark that its heading or the line above it names."""
    scope: str = ""
    """What introduces it: the line with a colon above it, else its heading."""
    running: bool = False
    """Whether the words above it say that it counts from the start."""


@dataclass(frozen=True, slots=True)
class Label:
    """The first cell of a row: a run, or what the row gives of runs."""

    role: Role
    name: str


@dataclass(frozen=True, slots=True)
class Grid:
    """A table whose rows are runs."""

    place: Place
    table: Table
    columns: list[Column]
    labels: list[Label]
    turned: bool
    lines: list[list[int]]
    """The line of each cell; those of a turned table differ along a row."""

    def column(self, role: Role) -> Column | None:
        """The first column of a role."""
        return next((column for column in self.columns if column.role == role), None)

    def cell(self, row: int, index: int) -> str:
        """The text of a cell; "" where the row ends before it."""
        cells = self.table.rows[row].cells
        return cells[index] if index < len(cells) else ""


def grid_of(table: Table, place: Place) -> Grid:
    """The table with its runs as rows."""
    turned = _runs_are_columns(table)
    corner = role_of(title_parts(table.header[0])[0])
    if (
        turned
        and corner
        and corner[0] == "benchmark"
        and not re.search("metric|指标|measure", table.header[0], re.I)
    ):
        place = replace(place, rated=True)
    lines = [[row.number] * len(table.header) for row in table.rows]
    if turned:
        table, lines = _turn(table)
    run = 0 if turned else _run_index(table)
    labels = [
        _label(row.cells[run] if run is not None and run < len(row.cells) else "", turned)
        for row in table.rows
    ]
    rows = [row for row, label in zip(table.rows, labels, strict=True) if label.role == "run"]
    shown = Table(table.header, rows)
    columns = with_counts(shown, columns_of(shown, place.rated, run))
    if turned:
        columns = [_never_run(shown, column) for column in columns]
    if run is None and corner is None:
        columns[0] = replace(columns[0], role="benchmark", name="")
    return Grid(place, table, columns, labels, turned, lines)


def _never_run(table: Table, column: Column) -> Column:
    """A benchmark of which no run has a result is one all the same."""
    empty = column.role == "ignored" and column.title and not column_cells(table, column.index)
    return replace(column, role="score") if empty else column


def _runs_are_columns(table: Table) -> bool:
    """Whether a table's titles are runs or steps, and its first column names what they got."""
    titles = [title_parts(title)[0] for title in table.header]
    roles = [role_of(title) for title in titles]
    others = roles[1:]
    if sum(bool(STEP_NAME.match(clean(title))) for title in table.header[1:]) > 1:
        return True
    if not others or any(
        _holds_names(table, i) for i, r in enumerate(roles) if i and r and r[0] == "run"
    ):
        return False
    corner = roles[0][0] if roles[0] else None
    plain = any(r and r[0] in ("score", "correct") and not r[1] for r in others)
    if corner in ("run", "step", "seed"):
        return False
    first = [clean(row.cells[0]) for row in table.rows if row.cells]
    if _averaged(first) and _lean(first) <= 0:
        return True
    if plain:
        return False
    if corner == "benchmark" or vocabulary.PARAMETER.fullmatch(titles[0]):
        return True
    names = [
        title
        for title, role in zip(titles[1:], others, strict=True)
        if role is None or role[1] or vocabulary.CONTROL.fullmatch(title)
    ]
    if _set(first):
        return not any(_set([title]) for title in titles[1:])
    return _lean(names) - _lean(first) > 0 and not any(known(name) for name in names)


def _averaged(names: Sequence[str]) -> bool:
    """Whether the last of several names is an average of those above it."""
    last = role_of(title_parts(names[-1])[0]) if len(names) > 2 else None
    return last is not None and last[0] == "average"


def _set(names: Sequence[str]) -> bool:
    """Whether most names are settings, as in a table of runs with a row for each setting."""
    found = sum(bool(setting_of(title_parts(name)[0])) for name in names)
    return 2 * found > len(names)


def _holds_names(table: Table, index: int) -> bool:
    """Whether a column holds words rather than numbers of a run that is called `candidate`."""
    cells = [row.cells[index] for row in table.rows if index < len(row.cells)]
    return 2 * sum(figure(cell) is not None for cell in cells) <= len(cells)


def _lean(names: Sequence[str]) -> float:
    """How much names look like runs rather than benchmarks or metrics, from -1 to 1."""
    if not names:
        return 0.0
    runs = sum(bool(vocabulary.RUN_LIKE.search(name)) for name in names)
    other = sum(bool(vocabulary.BENCH_LIKE.search(name)) or _is_measure(name) for name in names)
    return (runs - other) / len(names)


def _is_measure(name: str) -> bool:
    role = role_of(title_parts(name)[0])
    return role is not None and role[0] in (
        "score",
        "items",
        "correct",
        "metric",
        "ignored",
        "average",
    )


def _turn(table: Table) -> tuple[Table, list[list[int]]]:
    """Rows become columns; the line of a cell stays that of its row."""
    width = len(table.header)
    rows = [row.cells + ("",) * (width - len(row.cells)) for row in table.rows]
    header = (table.header[0], *(cells[0] for cells in rows))
    number = table.rows[0].number if table.rows else 0
    turned = [
        Row(number, (table.header[i], *(cells[i] for cells in rows))) for i in range(1, width)
    ]
    lines = [number, *(row.number for row in table.rows)]
    return Table(header, turned), [lines for _ in turned]


def _run_index(table: Table) -> int | None:
    """The column that names runs: the titled one, else the first if it holds words."""
    titles = [title_parts(title)[0] for title in table.header]
    roles = [role_of(title) for title in titles]
    titled = [i for i, role in enumerate(roles) if role and role[0] == "run"]
    named = [i for i in titled if not i or _holds_names(table, i)]
    counted = [
        i
        for i in named
        if all(whole(r.cells[i]) is not None for r in table.rows if i < len(r.cells))
    ]
    if named:
        return next((i for i in named if i not in counted), named[0])
    first = [clean(row.cells[0]) for row in table.rows if row.cells]
    if roles[0] is None and first and _lean(first) < 0:
        return None
    stepped = any(role and role[0] == "step" for role in roles[1:])
    if roles[0] is not None and roles[0][0] == "ignored" and stepped:
        return None
    # Rows of a sweep are named by the setting that is swept.
    worded = roles[0] is not None and roles[0][0] == "score" and _holds_names(table, 0)
    return 0 if worded or roles[0] is None or roles[0][0] in ("setting", "ignored") else None


def _label(text: str, turned: bool) -> Label:
    """What the first cell of a row says that the row is."""
    title = title_parts(text)[0]
    role = role_of(title)
    if role is None or vocabulary.CONTROL.fullmatch(title) or STEP_NAME.match(clean(text)):
        return Label("run", clean(text))
    kind, rest = role
    if kind in ("items", "change", "spread", "average") and not (
        kind == "items" and not turned and rest
    ):
        return Label(kind, rest)
    if turned and kind in ("correct", "excluded", "notes", "setting", "ignored"):
        return Label(kind, rest)
    # `base acc` is the run `base`.
    return Label("run", rest if turned and kind == "score" and rest else clean(text))
