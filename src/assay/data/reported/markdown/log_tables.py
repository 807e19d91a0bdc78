"""Tables of a training log: metrics by step, a row for each step, settings, marks, conditions."""

from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise

from assay.data.reported.markdown import words
from assay.data.reported.markdown.blocks import Section, Table
from assay.data.reported.markdown.draft import Draft, name_condition
from assay.data.reported.markdown.names import (
    condition,
    condition_name,
    heading_name,
    setting_name,
    setting_value,
)
from assay.data.reported.record import (
    Change,
    Identity,
    Meaning,
    Metric,
    Quotient,
    Rating,
    Reading,
)

Cell = tuple[Decimal | None, int | None, int | None]
"""A reading: its value, its count and the trials it is of."""


def read_settings(draft: Draft, section: Section, table: Table) -> bool:
    """A table of parameters and values under the heading of a condition."""
    if len(table.header) != 2 or not words.SETTING_COLUMN.match(table.header[0]):
        return False
    fixed = condition(section.path)
    if fixed:
        run = draft.runs[name_condition(draft, fixed, section.line)]
        for row in table.rows:
            if len(row.cells) == 2:
                run.settings.setdefault(setting_name(row.cells[0]), setting_value(row.cells[1]))
    return True


def read_conditions(draft: Draft, section: Section, table: Table) -> bool:
    """A table whose rows are conditions and whose columns name their data or base."""
    if not words.CONDITION_COLUMN.match(table.header[0]):
        return False
    named = [(i, setting_name(title)) for i, title in enumerate(table.header) if i]
    wanted = [(i, name) for i, name in named if name in words.SETTING_NAMES]
    for row in table.rows:
        fixed = condition(row.cells[:1])
        if fixed and wanted:
            run = draft.runs[name_condition(draft, fixed, row.number)]
            for index, name in wanted:
                if index < len(row.cells):
                    run.settings.setdefault(name, setting_value(row.cells[index]))
    return bool(wanted)


def read_marks(draft: Draft, section: Section, table: Table) -> bool:
    """A table of stars; the overall mark is looked for in the lines of the report."""
    marks = [cell for row in table.rows for cell in row.cells if words.STARS.match(cell)]
    if len(marks) < 2:
        return False
    counts = tuple(Decimal(len(mark)) for mark in marks)
    for line in section.lines:
        if match := words.OVERALL.search(line.text):
            name, says = heading_name(section.title), words.decimal(match[1])
            draft.add("ratings", Rating(name=name, marks=counts, says=says, line=line.number))
    return True


def read_training(draft: Draft, section: Section, table: Table) -> bool:
    """A table with a row for each step and a column for each metric."""
    steps = [row.cells[0] for row in table.rows]
    if not words.STEP_COLUMN.match(table.header[0]) or not all(s.isdecimal() for s in steps):
        return False
    columns: dict[str, str] = {}
    for index, title in enumerate(table.header):
        values = [_number(row.cells[index]) for row in table.rows if index < len(row.cells)]
        known = [value for value in values if value is not None]
        if index and len(known) == len(steps) > 0:
            name = title if title not in draft.metrics else f"{title} ({_place(section)})"
            line, order = table.rows[0].number, tuple(map(int, steps))
            draft.metrics[name] = Metric(
                name=name, steps=order, values=tuple(known), meaning=meaning_of(title), line=line
            )
            columns[title] = name
    _identity(draft, columns, table.rows[0].number)
    return bool(columns)


def _place(section: Section) -> str:
    """The condition or heading that a table stands under."""
    return condition_name(condition(section.path)) or heading_name(section.title)


def _identity(draft: Draft, columns: dict[str, str], line: int) -> None:
    """The total, policy loss, KL and its coefficient, where a table has all four."""
    roles: dict[str, str] = {}
    for title, name in columns.items():
        for role, pattern in words.LOSS_ROLES.items():
            if pattern.match(title):
                roles.setdefault(role, name)
    if roles.keys() == words.LOSS_ROLES.keys():
        draft.add("identities", Identity(**roles, line=line))


def read_steps(draft: Draft, section: Section, table: Table) -> bool:
    """A table with a row for each metric and a column for each step."""
    found = [(i, words.STEP.match(title)) for i, title in enumerate(table.header)]
    steps = {i: int(match[1] or match[2]) for i, match in found if match}
    if len(steps) < 2:
        return False
    for row in table.rows:
        cells = [reading(row.cells[i]) for i in steps if i < len(row.cells)]
        if len(cells) == len(steps) and None not in cells and row.cells[0]:
            readings = [cell for cell in cells if cell is not None]
            metric = _metric(row.cells[0], tuple(steps.values()), readings, row.number)
            metric = metric.model_copy(update={"reads": _reads(row.cells)})
            draft.metrics.setdefault(metric.name, metric)
            _change(draft, table, row.cells, metric)
    _since_the_start(draft, [row.cells[0] for row in table.rows])
    return True


def reading(text: str) -> Cell | None:
    """A percentage with or without its counts, an amount of money, or a number."""
    if match := words.RATE.search(text):
        return words.decimal(match[1]), int(match[2]), int(match[3])
    if text.isdecimal():
        return None, int(text), None
    value = _number(text)
    return None if value is None else (value, None, None)


def _metric(name: str, steps: tuple[int, ...], cells: Sequence[Cell], line: int) -> Metric:
    """The readings of a row; what is missing in one of them is left out in all."""
    columns = [tuple(column) for column in zip(*cells, strict=True)]
    values, counts, totals = (() if None in column else column for column in columns)
    meaning = meaning_of(name)
    if counts and not totals:
        meaning = "count"
    return Metric(
        name=name,
        steps=steps,
        values=values,
        counts=counts,
        totals=totals,
        meaning=meaning,
        line=line,
        cumulative=bool(words.TOTAL.match(name)),
    )


def meaning_of(name: str) -> Meaning | None:
    """What a metric's name says that it measures."""
    return next((meaning for pattern, meaning in words.MEANINGS if pattern.search(name)), None)


def _reads(cells: Sequence[str]) -> Reading | None:
    """What the words in a row's last cell conclude."""
    return next((reads for pattern, reads in words.TRENDS if pattern.search(cells[-1])), None)


def _change(draft: Draft, table: Table, cells: Sequence[str], metric: Metric) -> None:
    """The printed change of a row, of its last reading against its first."""
    shown = metric.values or tuple(map(Decimal, metric.counts))
    for title, cell in zip(table.header, cells, strict=False):
        says = _number(cell)
        if words.CHANGE.search(title) and says is not None and len(shown) == 2:
            before, after = shown
            part = Change(of=metric.name, before=before, after=after, says=says, line=metric.line)
            draft.add("changes", part)


def _since_the_start(draft: Draft, names: Sequence[str]) -> None:
    """Rates whose trials are a running count of the same table are counts since the start."""
    metrics = [draft.metrics[name] for name in names if name in draft.metrics]
    running = [m for m in metrics if m.counts and not m.totals and _rises(m.counts)]
    for metric in metrics:
        trials = [m for m in running if m.counts == metric.totals]
        if trials:
            draft.metrics[metric.name] = metric.model_copy(update={"cumulative": True})
            _quotients(draft, metrics, trials[0])


def _quotients(draft: Draft, metrics: Sequence[Metric], count: Metric) -> None:
    """A total and an average of the same thing, over the running count of the table."""
    for total in metrics:
        for average in metrics:
            whole, mean = words.TOTAL.match(total.name), words.AVERAGE.match(average.name)
            if whole and mean and whole[1] == mean[1] and total.values and average.values:
                part = Quotient(
                    value=average.name, total=total.name, count=count.name, line=average.line
                )
                draft.add("quotients", part)


def _rises(counts: Sequence[int]) -> bool:
    return all(before < after for before, after in pairwise(counts))


def _number(text: str) -> Decimal | None:
    """A number, percentage or amount of money, signed or not."""
    sign = "-" if text[:1] in "-−" else ""
    bare = text.lstrip("+-−")
    for pattern in (words.PERCENT, words.MONEY, words.BARE):
        if match := pattern.match(bare):
            return words.decimal(sign + match[1])
    return None
