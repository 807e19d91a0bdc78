"""Tables of scores: a condition's own matrix, columns that are conditions, rows that are runs.

A column of scores holds percentages (or marks of what is open); shares and bare numbers count only
where the title names a score. Columns of changes are kept as changes of the two columns before.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from assay.data.reported.known import known
from assay.data.reported.markdown import words
from assay.data.reported.markdown.blocks import Row, Section, Table
from assay.data.reported.markdown.draft import Draft, compare, name_condition
from assay.data.reported.markdown.names import Condition, condition, heading_name
from assay.data.reported.record import Change


@dataclass(frozen=True, slots=True)
class Column:
    """A column of scores: its title and the condition that the title fixes."""

    index: int
    title: str
    condition: Condition


@dataclass(frozen=True, slots=True)
class Score:
    """A score of a table: whose it is, of what, and where."""

    run: str
    cell: str
    value: Decimal
    line: int
    items: int | None


def read_scores(draft: Draft, section: Section, table: Table) -> bool:
    """Add the scores of a table; False where it has none."""
    columns = [
        Column(i, title, condition([title]))
        for i, title in enumerate(table.header)
        if i and not words.CHANGE.search(title) and _holds_scores(table, i)
    ]
    if not columns:
        return False
    for row in table.rows:
        found = [_score(draft, section, table, column, row) for column in columns]
        scores = [score for score in found if score is not None]
        for score in scores:
            draft.score(score.run, score.cell, (score.value,), score.line, score.items)
        _changes(draft, table, row, scores)
    _comparisons(draft, section, table, columns)
    return True


def score_value(text: str, title: str = "") -> Decimal | None:
    """A score in percent with its printed digits; None for what is none."""
    if match := words.PERCENT.match(text):
        value = words.decimal(match[1])
        return value if 0 <= value <= 100 and text[0] not in "+-−" else None
    if not (words.SCORING.match(title) or known(title)):
        return None
    if words.SHARE.match(text):
        return Decimal(text).scaleb(2)
    if match := words.BARE.match(text):
        value = words.decimal(match[1])
        return value if 0 <= value <= 100 and "." in text else None
    return None


def _holds_scores(table: Table, index: int) -> bool:
    """Whether a column has a score and nothing but scores and what is open."""
    cells = [row.cells[index] for row in table.rows if index < len(row.cells)]
    title = table.header[index]
    scores = [
        score_value(c, _title(table, row, title)) for c, row in zip(cells, table.rows, strict=False)
    ]
    is_open = [words.OPEN_CELL.match(c) or c in ("", "-", "–") for c in cells]
    all_known = all(s is not None or o for s, o in zip(scores, is_open, strict=True))
    return all_known and any(score is not None for score in scores)


def _title(table: Table, row: Row, title: str) -> str:
    """The text that names what a cell scores: the row's where columns are runs."""
    return row.cells[0] if words.CELL_COLUMN.match(table.header[0]) else title


def _score(draft: Draft, section: Section, table: Table, column: Column, row: Row) -> Score | None:
    """The score in one column of a row."""
    if column.index >= len(row.cells):
        return None
    value = score_value(row.cells[column.index], _title(table, row, column.title))
    if value is None:
        return None
    first = table.header[0]
    keys, items = _keys(table, row)
    if words.RUN_COLUMN.match(first):
        run, cell = heading_name(row.cells[0]), _scored(column.title)
    elif words.CELL_COLUMN.match(first) and not column.condition:
        run, cell = heading_name(column.title), _scored(row.cells[0])
    elif column.condition:
        run, cell = _named(draft, section, column, row.number), ", ".join(keys)
    else:
        run = _named(draft, section, column, row.number)
        cell = ", ".join([*keys, column.title])
    draft.run(run, row.number)
    return Score(run, cell, value, row.number, items)


def _named(draft: Draft, section: Section, column: Column, line: int) -> str:
    """The condition that headings and the column's title fix, else the heading."""
    fixed = condition([*section.path, *([column.title] if column.condition else [])])
    return name_condition(draft, fixed, line) if fixed else heading_name(section.title)


def _keys(table: Table, row: Row) -> tuple[list[str], int | None]:
    """What the columns before the scores say of a row, and its number of items."""
    keys, items = [], None
    for title, cell in zip(table.header, row.cells, strict=False):
        if words.OPEN_CELL.match(cell) or score_value(cell) is not None:
            break
        if words.ITEM_COLUMN.match(title) and cell.isdecimal() and int(cell):
            items = int(cell)
        numeric = re.fullmatch(r"[\d.]+", cell)
        keys.append(f"{title} {cell}" if numeric else cell)
    return keys, items


def _scored(title: str) -> str:
    """What is scored, without the word for the score."""
    match = words.SCORING.match(title)
    return ((match[1] or match[2] or "") if match else title).strip() or title


def _changes(draft: Draft, table: Table, row: Row, scores: Sequence[Score]) -> None:
    """The printed change of a row with two scores."""
    if len(scores) != 2 or scores[0].cell != scores[1].cell:
        return
    for title, cell in zip(table.header, row.cells, strict=False):
        match = words.PERCENT.match(cell)
        if words.CHANGE.search(title) and match:
            before, after = scores
            draft.add(
                "changes",
                Change(
                    of=f"{before.run} → {after.run} · {before.cell}",
                    before=before.value,
                    after=after.value,
                    says=words.decimal(match[1]),
                    line=row.number,
                ),
            )


def _comparisons(draft: Draft, section: Section, table: Table, columns: Sequence[Column]) -> None:
    """Columns that are conditions stand in a table to be compared with the first of them."""
    if len(columns) < 2 or not all(column.condition for column in columns):
        return
    line = table.rows[0].number
    control = _named(draft, section, columns[0], line)
    for column in columns[1:]:
        other = _named(draft, section, column, line)
        before, after = columns[0].condition, column.condition
        vary = tuple(sorted(k.lower() for k in after if before.get(k) != after[k]))
        compare(draft, other, control, line, vary)
