"""Reads printed changes of a table, each with the two numbers it is the difference of.

A title rarely names the two. All readings that the table allows are tried, and the one that most
changes agree with is taken, so that what remains wrong is a wrong number.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from assay.data.reported.reading import vocabulary
from assay.data.reported.reading.columns import Column, change_of, in_percent, shares, strip_aside
from assay.data.reported.reading.draft import Draft
from assay.data.reported.reading.figures import Figure, figure
from assay.data.reported.reading.grids import Grid
from assay.data.reported.reported_record import Change

Cell = tuple[int, int]
"""Row and column of a score."""


@dataclass(frozen=True, slots=True)
class Printed:
    """A change, and the scores that it may be the change of: before and after."""

    at: Cell
    says: Decimal
    percent: bool
    choices: tuple[tuple[Cell, Cell] | None, ...]
    """One for each reading, None where a reading gives none."""


def read_changes(draft: Draft, grid: Grid, names: dict[int, str], columns: list[Column]) -> None:
    """Add the changes of a table's columns and rows of changes."""
    scores = _scores(grid, names, columns)
    for column in grid.columns:
        if column.role == "change":
            _add(draft, grid, names, scores, list(_of_column(grid, names, columns, column)))
    for row, label in enumerate(grid.labels):
        if label.role == "change":
            _add(draft, grid, names, scores, list(_of_row(grid, names, columns, row)))


def _scores(grid: Grid, names: dict[int, str], columns: list[Column]) -> dict[Cell, Decimal]:
    """The single scores of a table in percent, by row and column; averages too."""
    found: dict[Cell, Decimal] = {}
    for column in [*columns, *(c for c in grid.columns if c.role == "average")]:
        read = {row: figure(strip_aside(grid.cell(row, column.index))) for row in names}
        share = shares([r for r in read.values() if r], column.percent)
        for row, each in read.items():
            if isinstance(each, Figure) and len(each.values) == 1:
                (found[row, column.index],) = in_percent(each, share)
    return found


def _of_column(
    grid: Grid, names: dict[int, str], columns: list[Column], change: Column
) -> Iterator[Printed]:
    """A column of changes: to the baseline, the first row, the row above, or within the row."""
    before = [
        c for c in grid.columns if c.index < change.index and (c in columns or c.role == "average")
    ]
    named = [c for c in before if c.name and c.name.lower() in change.name.lower()]
    of = (named or before[-1:] or [None])[-1]
    rows = list(names)
    plain = [row for row in rows if vocabulary.CONTROL.search(names[row])]
    for row in rows:
        read = change_of(grid.cell(row, change.index))
        if of is None or read is None:
            continue
        above = [other for other in rows if other < row]
        here = (row, of.index)
        bases = [plain[:1], rows[:1], above[-1:]]
        choices = [((b[0], of.index), here) if b and b[0] != row else None for b in bases]
        inside = before[-2:] if not named else []
        choices.append(
            ((row, inside[0].index), (row, inside[1].index)) if len(inside) == 2 else None
        )
        yield Printed((row, change.index), *read, tuple(choices))


def _of_row(
    grid: Grid, names: dict[int, str], columns: list[Column], change: int
) -> Iterator[Printed]:
    """A row of changes: the last two rows above it, or the last against the baseline."""
    above = [row for row in names if row < change] or list(names)
    named = [row for row in above if names[row].lower() in grid.labels[change].name.lower()]
    plain = [row for row in above if vocabulary.CONTROL.search(names[row])]
    pairs = [above[-2:], [*plain[:1], *above[-1:]], [*above[:1], *above[-1:]], named[-2:]]
    for column in [*columns, *(c for c in grid.columns if c.role == "average")]:
        read = change_of(grid.cell(change, column.index))
        if read is not None:
            at = [
                ((p[0], column.index), (p[-1], column.index)) if len(set(p)) == 2 else None
                for p in pairs
            ]
            yield Printed((change, column.index), *read, tuple(at))


def _add(
    draft: Draft,
    grid: Grid,
    names: dict[int, str],
    scores: dict[Cell, Decimal],
    found: list[Printed],
) -> None:
    """Add the changes in the reading that most of them agree with, if any reading is likely."""
    best: tuple[int, list[Change]] = (-1, [])
    for reading in range(4):
        for relative in (False, True):
            for flip in (False, True):
                made = [
                    _change_beside(grid, names, scores, p, reading, relative, flip) for p in found
                ]
                changes = [change for change in made if change is not None]
                agree = sum(map(_agrees, changes))
                if flip and agree < 2:
                    continue  # one change of the wrong sign is a wrong change
                if len(changes) and agree > best[0]:
                    best = (agree, changes)
    agree, changes = best
    if 2 * agree >= len(changes) or len(names) == 2:
        for change in changes:
            draft.add("changes", change)


def _change_beside(
    grid: Grid,
    names: dict[int, str],
    scores: dict[Cell, Decimal],
    printed: Printed,
    reading: int,
    relative: bool,
    flip: bool,
) -> Change | None:
    """The printed change in one reading."""
    choice = printed.choices[reading]
    if choice is None or choice[0] not in scores or choice[1] not in scores:
        return None
    before, after = (choice[1], choice[0]) if flip else choice
    says = printed.says
    differ = abs(scores[after] - scores[before])
    if not printed.percent and not relative and abs(says) < 1 and differ > 10 * abs(says) > 0:
        says = says.scaleb(2)  # a change of shares
    row, column = printed.at
    of = f"{names.get(before[0], '')} → {names.get(after[0], '')}"
    title = grid.columns[after[1]].title
    return Change(
        of=f"{of} · {title}",
        before=scores[before],
        after=scores[after],
        says=says,
        relative=relative,
        line=grid.lines[row][column],
    )


def _agrees(change: Change) -> bool:
    """Whether a change is that of its numbers, to the digits printed."""
    actual = change.after - change.before
    if change.relative:
        if change.before == 0:
            return False
        actual = actual / change.before * 100
    exponents = [
        number.as_tuple().exponent for number in (change.before, change.after, change.says)
    ]
    unit = max(Decimal(1).scaleb(e) for e in exponents if isinstance(e, int))
    return abs(actual - change.says) <= (2 if change.relative else Decimal("1.5")) * unit
