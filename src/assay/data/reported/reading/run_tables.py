"""Reads scores, counts, settings and notes from a table whose rows are runs."""

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal

from assay.data.reported.reading import vocabulary
from assay.data.reported.reading.columns import (
    Column,
    column_cells,
    in_percent,
    setting_of,
    shares,
    strip_aside,
)
from assay.data.reported.reading.draft import Draft, Note, Score
from assay.data.reported.reading.figures import (
    OPEN,
    SPREAD,
    Figure,
    clean,
    decimal,
    figure,
    missing,
    whole,
)
from assay.data.reported.reading.grids import STEP_NAME, Grid
from assay.data.reported.reading.name_forms import heading_name, tidy
from assay.data.reported.reading.printed_changes import read_changes
from assay.data.reported.reported_record import Average, Verdict

VERDICTS: dict[str, Verdict] = {
    "better": "better",
    "worse": "worse",
    "same": "same",
    "undecided": "undecided",
}


def read_scores(draft: Draft, grid: Grid, training: bool = False) -> bool:
    """Add everything that a table gives of its runs; False where it has no score.

    Of a table of a training's steps, only scores of the test are results.
    """
    columns = [c for c in _score_columns(grid) if not training or tested(grid, c)]
    if training and not columns:
        return False
    named = grid.column("run") or grid.column("benchmark") or grid.column("step")
    if is_settings(grid) or named is None or (not columns and grid.column("correct") is None):
        return read_settings(draft, grid)
    names = _row_names(grid)
    _passes(draft, grid, columns)
    for row, name in names.items():
        for column in columns or [None]:
            _score(draft, grid, row, name, column)
        _row_facts(draft, grid, row, name, columns)
    _averages(draft, grid, names, columns)
    read_changes(draft, grid, names, columns)
    return True


def _score_columns(grid: Grid) -> list[Column]:
    """The columns of scores; an average without anything to average is one."""
    found = [
        c for c in grid.columns if c.role == "score" and not re.search("train|训练", c.title, re.I)
    ]
    averages = [c for c in grid.columns if c.role == "average" and _holds_scores(grid, c)]
    return found or averages


def _passes(draft: Draft, grid: Grid, columns: list[Column]) -> None:
    """How many passes the scores are means of, where columns say so; 0 where they do not say it."""
    for column in grid.columns:
        counts = {whole(cell) for cell in column_cells(grid.table, column.index)}
        if vocabulary.MANY.fullmatch(column.title) and len(counts) == 1:
            draft.repeats = counts.pop() or draft.repeats
    means = any(vocabulary.MEAN.search(column.title) for column in columns)
    spread = any(vocabulary.DEVIATION.fullmatch(column.title) for column in grid.columns)
    if (means or spread) and draft.repeats is None:
        draft.repeats = 0


def tested(grid: Grid, column: Column) -> bool:
    """Whether a column of a training's table holds scores of a test."""
    named = vocabulary.BENCH_LIKE.search(column.title) or (
        grid.column("run") and grid.column("step")
    )
    return column.role == "score" and bool(named) and not vocabulary.NOT_TEST.search(column.title)


def _holds_scores(grid: Grid, column: Column) -> bool:
    cells = column_cells(grid.table, column.index)
    return bool(cells) and all(figure(strip_aside(cell)) is not None for cell in cells)


def _row_names(grid: Grid) -> dict[int, str]:
    """The run of each row; its rows at several steps or settings get names of their own."""
    run, step = grid.column("run"), grid.column("step")
    names: dict[int, str] = {}
    for row, label in enumerate(grid.labels):
        if label.role != "run":
            continue
        name = tidy(grid.cell(row, run.index)) if run else heading_name(grid.place.title)
        if run and not grid.turned and setting_of(run.title):
            name = f"{run.title} {name}"
        if grid.turned and label.name:
            plain = vocabulary.PARTS["score"].fullmatch(label.name)
            name = heading_name(grid.place.title) if plain else tidy(label.name)
        at = whole(grid.cell(row, step.index)) if step else None
        if step is not None and at is not None:
            name = f"{name} step {at}" if run else f"{step.title} {at}"
        if name and not _averages_seeds(grid, row):
            names[row] = name
    return _told_apart(grid, names)


def _averages_seeds(grid: Grid, row: int) -> bool:
    """Whether a row is the mean of its run's other rows, each of one seed."""
    seed = grid.column("seed")
    return seed is not None and bool(vocabulary.MEAN.search(grid.cell(row, seed.index)))


def _told_apart(grid: Grid, names: dict[int, str]) -> dict[int, str]:
    """Rows of one name and one benchmark that differ in a setting are runs of their own."""
    keys = [c.index for c in grid.columns if c.role in ("benchmark", "seed")]
    groups: dict[tuple[str, ...], list[int]] = {}
    for row, name in names.items():
        groups.setdefault((name, *(grid.cell(row, index) for index in keys)), []).append(row)
    made = dict(names)
    for column in grid.columns:
        if column.role != "setting":
            continue
        varied = {
            names[g[0]] for g in groups.values() if len({grid.cell(r, column.index) for r in g}) > 1
        }
        for row, name in names.items():
            if name in varied and grid.cell(row, column.index):
                made[row] += f", {column.title} {clean(grid.cell(row, column.index))}"
    return made


def open_cells(grid: Grid) -> Iterator[tuple[str, int]]:
    """The scores that are to be filled in: their run and benchmark, and their line."""
    for row, name in _row_names(grid).items():
        for column in _score_columns(grid):
            if OPEN.match(clean(grid.cell(row, column.index))):
                cell = cell_name(grid, row, column)
                yield f"{name}, {cell}" if cell else name, grid.lines[row][column.index]


def cell_name(grid: Grid, row: int, column: Column | None) -> str | None:
    """What a score is of: rows and titles together; None for a row that is no score."""
    keys = []
    for each in grid.columns:
        if each.role == "benchmark":
            text = tidy(grid.cell(row, each.index))
            role = vocabulary.PARTS["ignored"].search(text) or vocabulary.PARTS["metric"].search(
                text
            )
            if role or vocabulary.PARTS["change"].fullmatch(text):
                return None
            if text and not vocabulary.PARTS["score"].fullmatch(text):
                keys.append(text)
    if column is not None:
        twice = sum(c.name == column.name for c in grid.columns if c.role == "score") > 1
        own = column.title if twice or column.role == "average" else column.name
        keys += [tidy(own)] if own and own != "%" else []
    return ", ".join(keys) or grid.place.benchmark


def _score(draft: Draft, grid: Grid, row: int, name: str, column: Column | None) -> None:
    """Add the score in one column of a row."""
    cell = cell_name(grid, row, column)
    if cell is None:
        return
    if vocabulary.PARTS["average"].fullmatch(cell) and column and column.role != "average":
        return
    text = grid.cell(row, column.index) if column else ""
    line = grid.lines[row][column.index if column else 0]
    read = figure(strip_aside(text)) if column else Figure()
    if column and read is None:
        _absent(draft, grid, row, name, cell, text, line)
        return
    assert read is not None
    share = column is not None and shares(_figures(grid, column), column.percent)
    values = in_percent(read, share)
    if any(not 0 <= value <= 100 for value in values):
        return
    right = read.count if read.count is not None else _number(grid, row, "correct", column)
    items = read.total or _number(grid, row, "items", column) or (column.items if column else None)
    lost = _number(grid, row, "excluded", column)
    asked = _most_items(grid, row, column)
    dropped = any(c.role == "excluded" and vocabulary.DROPPED.search(c.title) for c in grid.columns)
    if right is not None and (right > (items or right) or len(values) > 1):
        right = None
    if not values and right is None:
        return
    if asked is None and _counts_answered(values, right, items, lost):
        asked, items = items, (items or 0) - (lost or 0)
    score = Score(
        run=name,
        cell=cell,
        line=line,
        values=values,
        right=right,
        items=items or None,
        failed=None if dropped else lost,
        left_out=asked - items if asked and items and asked > items else lost if dropped else None,
        interval=_interval(grid, row, column, text, share),
        place=grid.place.scope,
        repeat=_is_repeat(grid),
    )
    draft.scores.append(score)
    if read.spread and not score.interval and draft.repeats is None:
        draft.repeats = 0


def _is_repeat(grid: Grid) -> bool:
    """Whether rows are single passes, not means of them."""
    seed = grid.column("seed")
    return seed is not None and len(set(column_cells(grid.table, seed.index))) > 1


def _absent(draft: Draft, grid: Grid, row: int, name: str, cell: str, text: str, line: int) -> None:
    """A cell that says that there is no result; one to be filled in is counted elsewhere."""
    if missing(text) and not OPEN.match(clean(text)):
        draft.scores.append(
            Score(run=name, cell=cell, line=line, absent=True, place=grid.place.scope)
        )


def _figures(grid: Grid, column: Column) -> list[Figure]:
    cells = [
        grid.cell(row, column.index) for row, label in enumerate(grid.labels) if label.role == "run"
    ]
    if grid.column("benchmark") is None and grid.turned:
        # A turned table has one unit for all, not one for each row that it had.
        cells = [
            grid.cell(row, c.index) for c in _score_columns(grid) for row in range(len(grid.labels))
        ]
    return [read for cell in cells if (read := figure(strip_aside(cell)))]


def _number(grid: Grid, row: int, role: vocabulary.Role, column: Column | None) -> int | None:
    """A count that stands in the row, in the row of its kind, or beside its benchmark."""
    wanted = column.name if column else ""
    own = [c for c in grid.columns if c.role == role]
    fitting = [c for c in own if c.name == wanted] or [c for c in own if not c.name]
    given = [found for c in fitting if (found := _count(grid.cell(row, c.index))) is not None]
    if given:
        # Of items asked and items scored, the second are what a score is of.
        return min(given) if role == "items" else given[0]
    if role == "items":
        counted = [c for c in grid.columns if c.role == "correct" and c.name in ("", wanted)]
        read = [figure(grid.cell(row, c.index)) for c in counted]
        return next(
            (each.total for each in read if each and each.total), _of_rows(grid, row, role, column)
        )
    return _of_rows(grid, row, role, column)


def _counts_answered(
    values: Sequence[Decimal], right: int | None, items: int | None, lost: int | None
) -> bool:
    """Whether a score is the right ones of the items that were answered, not of all."""
    if not (values and right and items and lost and lost < items):
        return False
    unit = Decimal(1).scaleb(values[0].as_tuple().exponent)  # type: ignore[arg-type]
    of_all, of_answered = (Decimal(100 * right) / n for n in (items, items - lost))
    return abs(values[0] - of_all) > unit >= abs(values[0] - of_answered)


def _most_items(grid: Grid, row: int, column: Column | None) -> int | None:
    """The items that were asked, where another column says how many of them were scored."""
    wanted = column.name if column else ""
    own = [c for c in grid.columns if c.role == "items" and c.name in ("", wanted)]
    given = [found for c in own if (found := _count(grid.cell(row, c.index))) is not None]
    return max(given) if len(given) > 1 else None


def _count(text: str) -> int | None:
    """A whole number, or the count of `82/200`."""
    read = figure(text)
    return read.count if read and read.count is not None else whole(text)


def _of_rows(grid: Grid, row: int, role: vocabulary.Role, column: Column | None) -> int | None:
    """A count that a row of its own gives for each column."""
    if column is None:
        return None
    name = grid.labels[row].name
    for other, label in enumerate(grid.labels):
        if label.role == role and label.name in ("", name):
            found = whole(grid.cell(other, column.index))
            if found is not None:
                return found
    return None


def _interval(grid: Grid, row: int, column: Column | None, text: str, share: bool) -> tuple:
    """The two limits that stand with a score, in percent."""
    shown = ""
    if column is not None and (beside := SPREAD.search(clean(text))):
        shown = beside[0]
    for each in grid.columns:
        if each.role == "spread" and re.search(r"ci|95|interval|区间", each.title, re.I):
            shown = shown or grid.cell(row, each.index)
    limits = [
        decimal(n)
        for n in re.findall(r"\d+(?:\.\d+)?", re.sub(r"95\s*%\s*(?:CI)?", "", clean(shown)))
    ]
    if len(limits) != 2 or limits[0] >= limits[1]:
        return ()
    return tuple(limit.scaleb(2) if share and max(limits) <= 1 else limit for limit in limits)


def _row_facts(draft: Draft, grid: Grid, row: int, name: str, columns: list[Column]) -> None:
    """Settings, notes, control and verdict that stand in a row."""
    for column in grid.columns:
        text = clean(grid.cell(row, column.index))
        line = grid.lines[row][column.index]
        if not text or missing(text):
            continue
        if column.role == "setting" and setting_of(column.title):
            draft.settings.append((name, column.name, text, line))
        elif column.role == "notes":
            cell = cell_name(grid, row, columns[0] if len(columns) == 1 else None) or ""
            draft.notes.append(Note(name, cell if grid.column("benchmark") else "", text, line))
        elif column.role == "control":
            draft.controls.setdefault(name, text)
        elif column.role == "says" and text.lower() in VERDICTS:
            cell = cell_name(grid, row, columns[0]) if grid.column("benchmark") else None
            draft.says[name, cell or ""] = VERDICTS[text.lower()]
        elif column.role == "says":
            draft.notes.append(Note(name, "", text, line))


def _averages(draft: Draft, grid: Grid, names: dict[int, str], columns: list[Column]) -> None:
    """Averages of the scores that stand in their row, or in the rows above them."""
    found = [c for c in grid.columns if c.role == "average" and c not in columns]
    cells = [cell_name(grid, row, c) for row in names for c in columns]
    of = tuple(
        dict.fromkeys(cell for cell in cells if cell and not vocabulary.NOT_TEST.search(cell))
    )
    for column in found if len(of) > 1 else ():
        for row, name in names.items():
            read = figure(strip_aside(grid.cell(row, column.index)))
            if read and len(read.values) == 1:
                (value,) = in_percent(read, shares(_figures(grid, column), column.percent))
                says = Average(
                    run=name,
                    name=column.title,
                    of=of,
                    says=value,
                    line=grid.lines[row][column.index],
                )
                draft.averages.append(says)
    _average_rows(draft, grid, names, columns)


def _average_rows(draft: Draft, grid: Grid, names: dict[int, str], columns: list[Column]) -> None:
    """A long table's lines for the average of a run's benchmarks."""
    bench = grid.column("benchmark")
    if bench is None:
        return
    for row, name in names.items():
        label = tidy(grid.cell(row, bench.index))
        if not vocabulary.PARTS["average"].fullmatch(label):
            continue
        of = tuple(
            dict.fromkeys(
                s.cell for s in draft.scores if s.run == name and s.place == grid.place.scope
            )
        )
        for column in columns[:1]:
            read = figure(strip_aside(grid.cell(row, column.index)))
            if read and len(read.values) == 1 and len(of) > 1:
                (value,) = in_percent(read, shares(_figures(grid, column), column.percent))
                says = Average(
                    run=name, name=label, of=of, says=value, line=grid.lines[row][column.index]
                )
                draft.averages.append(says)


def is_settings(grid: Grid) -> bool:
    """Whether a table is one of parameters, each with a value or a value for each run."""
    return vocabulary.PARAMETER.fullmatch(clean(grid.table.header[0])) is not None


def read_settings(draft: Draft, grid: Grid) -> bool:
    """A table of settings of its runs, without scores."""
    found = False
    for row, name in _row_names(grid).items():
        if vocabulary.VALUE.fullmatch(name):
            name = heading_name(grid.place.title)
        for column in grid.columns:
            text = clean(grid.cell(row, column.index))
            if column.role == "setting" and column.name and text and not missing(text):
                draft.settings.append((name, column.name, text, grid.lines[row][column.index]))
                found = True
    return found


def is_training(grid: Grid) -> bool:
    """Whether the rows of a table are steps of a training rather than runs."""
    stepped = grid.column("step") is not None
    named = [label.name for label in grid.labels if label.role == "run" and label.name]
    named_steps = bool(named) and all(STEP_NAME.match(name) for name in named)
    measured = [c for c in grid.columns if c.role == "metric"]
    corner = grid.table.header[0]
    return (stepped and (bool(measured) or grid.place.running)) or (
        named_steps and (bool(measured) or bool(re.search("metric|指标", corner, re.I)))
    )
