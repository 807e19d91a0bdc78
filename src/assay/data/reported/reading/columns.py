"""Finds what each column of a table holds: its role by title and cells, its unit and its items.

A title with known words decides; otherwise the cells do. Values are not read here.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from assay.data.reported.reading import vocabulary
from assay.data.reported.reading.blocks import Table
from assay.data.reported.reading.figures import (
    Figure,
    clean,
    decimal,
    figure,
    missing,
    signed,
    whole,
)
from assay.data.reported.reading.vocabulary import Role

SIZED = re.compile(
    r"(?<![A-Za-z])n\s*=\s*(\d[\d,]*)|(?<![\d.])(\d[\d,]*)\s*(?:items?|questions?|problems?|题"
    r"|条)|^(\d[\d,]*)$",
    re.I,
)
UNIT = re.compile(
    r"^(?:%|％|pct|percent|in %|↑|↓|0-100|0-1|百分比|单位.*|higher is better)$",
    re.I,
)
INSIDE = re.compile(r"[(（\[【]([^()（）\[\]【】]*)[)）\]】]")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    index: int
    role: Role
    name: str
    """What its title says beside the role: a benchmark or a run; the title itself without one."""
    items: int | None = None
    """Items that its title gives, as in `GSM8K (n=200)`."""
    percent: bool = False
    title: str = ""


def title_parts(title: str) -> tuple[str, int | None, bool]:
    """A title without unit and size, its items, and whether it says percent."""
    shown = clean(title)
    percent = (
        "%" in shown
        or "％" in shown
        or "百分比" in shown
        or bool(re.search("percent|pct", shown, re.I))
    )
    items, kept = None, []
    for inside in INSIDE.findall(shown):
        size = SIZED.search(inside.strip())
        if size:
            items = int(decimal(next(group for group in size.groups() if group)))
        elif (
            not vocabulary.WHOLE["items"].fullmatch(inside.strip())
            and not UNIT.match(inside.strip())
            and not vocabulary.PARTS["spread"].search(inside)
        ):
            kept.append(inside.strip())
    bare = re.sub(r"_", " ", INSIDE.sub(" ", shown))
    bare = re.sub(r"[,，;；]?\s*[%％]$", "", bare.strip()).strip(" :：,，")
    size = re.search(r"[,，]?\s*(?<![A-Za-z])n\s*=\s*(\d+)$", bare, re.I)
    if size:
        items, bare = int(size[1]), bare[: size.start()].strip()
    return " ".join([bare, *kept]).strip() or ("%" if percent else ""), items, percent


def role_of(title: str) -> tuple[Role, str] | None:
    """The role that a title's words give, and the rest of it; None where they say nothing."""
    if not title:
        return None
    for role, pattern in vocabulary.WHOLE.items():
        if pattern.fullmatch(title):
            return role, ""
    if setting_of(title):
        return "setting", setting_of(title)
    for role, pattern in vocabulary.PARTS.items():
        if match := pattern.search(title):
            rest = (title[: match.start()] + " " + title[match.end() :]).strip(" -–:：/·_,，()（）")
            return role, re.sub(r"\s+", " ", rest)
    for role in ("correct", "items", "excluded"):
        pattern = vocabulary.WHOLE[role]
        head, _, tail = title.rpartition(" ")
        if head and pattern.fullmatch(tail):
            return role, head
        head, _, tail = title.partition(" ")
        if tail and pattern.fullmatch(head) and not vocabulary.RUN_LIKE.search(head):
            return role, tail
    return None


def setting_of(title: str) -> str:
    """The key of the setting that a title names; "" where it names none."""
    text = clean(title).replace("_", " ").strip(" :：")
    return next(
        (key for key, pattern in vocabulary.SETTINGS.items() if pattern.fullmatch(text)), ""
    )


def columns_of(table: Table, rated: bool, run: int | None) -> list[Column]:
    """The columns of a table of which one names runs; `rated`: the text around speaks of scores."""
    found = [_column(table, index, rated) for index in range(len(table.header))]
    if run is not None:
        found[run] = replace(found[run], role="run", name="")
    found = [_beside_runs(table, column, run) for column in found]
    return found if run is None else _told_by_test(table, found, run)


def _told_by_test(table: Table, columns: list[Column], run: int) -> list[Column]:
    """Where runs have several rows, a column of words that differs between these rows names the
    test set, whatever its title."""
    if any(column.role in ("benchmark", "seed", "step", "setting") for column in columns):
        return columns
    rows = [row.cells for row in table.rows if run < len(row.cells)]
    if len({cells[run] for cells in rows}) == len(rows):
        return columns
    for column in columns:
        words_only = column.role == "ignored" and all(
            map(_is_word, column_cells(table, column.index))
        )
        pairs = {(cells[run], cells[column.index]) for cells in rows if column.index < len(cells)}
        if words_only and len(pairs) == len(rows):
            told = replace(column, role="benchmark", name="")
            return [told if each is column else each for each in columns]
    return columns


def _is_word(cell: str) -> bool:
    return figure(cell) is None


def _beside_runs(table: Table, column: Column, run: int | None) -> Column:
    """What a column is in a table that names runs in another one."""
    if run in (None, column.index):
        return column
    title = column.title.lower()
    if column.role == "step" and not _varies(table, run, column.index):
        return replace(column, role="setting", name="epochs" if "epoch" in title else "steps")
    if column.role == "run":
        # `run` beside `model`, holding 1, 2, 3, counts repeats.
        counted = all(whole(cell) is not None for cell in column_cells(table, column.index))
        return replace(column, role="seed" if counted else "setting", name=title)
    return replace(column, role="ignored") if title == "rank" else column


def _varies(table: Table, run: int, step: int) -> bool:
    """Whether a run stands in the table at several steps."""
    rows = {
        (row.cells[run], row.cells[step]) for row in table.rows if max(run, step) < len(row.cells)
    }
    return len(rows) > len({name for name, _ in rows})


def column_cells(table: Table, index: int) -> list[str]:
    """The cells of a column, without those where nothing was measured."""
    cells = [row.cells[index] for row in table.rows if index < len(row.cells)]
    return [cell for cell in cells if not missing(cell)]


def _column(table: Table, index: int, rated: bool) -> Column:
    title, items, percent = title_parts(table.header[index])
    cells = column_cells(table, index)
    known = role_of(title)
    counts = bool(cells) and all(map(_is_count, cells))
    if counts and (known is None or known[0] == "correct") and vocabulary.COUNTED.search(title):
        return Column(
            index, "correct", vocabulary.COUNTED.sub("", title).strip(), items, percent, title
        )
    if known is None:
        scored = index > 0 and _looks_scored(title, cells, percent or rated)
        return Column(index, "score" if scored else "ignored", title, items, percent, title)
    role, rest = known
    if index == 0 and role == "score" and cells and not any(map(_is_score, cells)):
        role, rest = "run", ""
    whole_numbers = any(whole(cell) is not None for cell in cells)
    scored = bool(cells) and all(map(_is_score, cells))
    if role in ("items", "correct", "excluded", "step") and cells and not whole_numbers:
        # `correct` with percentages is a score; `epoch` with words names the run.
        other: Role = "run" if role == "step" else "ignored"
        role = "score" if scored and role != "excluded" else other
    if role == "correct" and percent:
        role = "score"
    if role in ("run", "benchmark") and index and scored and not whole_numbers:
        role, rest = "score", title
    return Column(index, role, rest, items, percent, title)


def _is_count(cell: str) -> bool:
    """Whether a cell is a count of a total and nothing else."""
    read = figure(cell)
    return read is not None and read.count is not None and not read.values


def _is_score(cell: str) -> bool:
    return figure(strip_aside(cell)) is not None


def _looks_scored(title: str, cells: Sequence[str], rated: bool) -> bool:
    """Whether cells under a title that says nothing are scores: rates, or decimals to 100."""
    found = [figure(strip_aside(cell)) for cell in cells]
    figures = [each for each in found if each is not None]
    if not figures or len(figures) < len(found):
        return False
    if all(each.rated for each in figures):
        return True
    values = [value for each in figures for value in each.values]
    inside = all(0 <= value <= 100 for value in values)
    places = [_places(value) for value in values]
    if vocabulary.BENCH_LIKE.search(title) or rated:
        return inside and (any(places) or vocabulary.BENCH_LIKE.search(title) is not None)
    shares = all(value <= 1 for value in values)
    return inside and min(places) >= (3 if shares else 1) and len(set(places)) == 1


def _places(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    return -exponent if isinstance(exponent, int) else 0


ASIDE = re.compile(r"(?<=[\d%％)）])\s*[(（][^\d()（）+±−-][^()（）]*[)）]$")


def strip_aside(cell: str) -> str:
    """A cell without words in parentheses after its number."""
    return ASIDE.sub("", clean(cell))


def in_percent(read: Figure, share: bool) -> tuple[Decimal, ...]:
    """The printed values in percent; a share is moved by two digits, never rounded."""
    return tuple(value.scaleb(2) if share and not read.percent else value for value in read.values)


def shares(figures: Sequence[Figure], percent: bool) -> bool:
    """Whether bare numbers of one column are shares: none is above 1 and none says percent."""
    bare = [value for each in figures if not each.percent for value in each.values]
    return bool(bare) and not percent and all(value <= 1 for value in bare)


def change_of(cell: str) -> tuple[Decimal, bool] | None:
    """The change that a cell prints, and whether it has a percent sign."""
    return signed(strip_aside(cell))
