"""Reads tables of a training as metrics: rows or columns of steps with loss, KL and reward."""

import re
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise, permutations

from assay.data.reported.reading import vocabulary
from assay.data.reported.reading.columns import change_of, strip_aside
from assay.data.reported.reading.draft import Draft
from assay.data.reported.reading.figures import clean, decimal, figure, signed, whole
from assay.data.reported.reading.grids import STEP_NAME, Grid
from assay.data.reported.reading.run_tables import tested
from assay.data.reported.reported_record import Change, Identity, Meaning, Metric

RATE = re.compile("rate|ratio|share|percent|%|率|占比", re.I)
"""Names of metrics that are counts over trials."""
Reading = tuple[Decimal | None, int | None, int | None]
"""A value, its count and the trials it is of."""


UNMEASURED = ("step", "run", "seed", "notes", "setting", "change", "spread")
"""Columns of a training's table that are no readings; a coefficient is one."""


def read_training(draft: Draft, grid: Grid) -> bool:
    """Add the metrics of a table of steps, for each run of it; False where it has none."""
    run = grid.column("run") if grid.column("step") else None
    rows: dict[str, list[tuple[int, int]]] = {}
    for row in range(len(grid.labels)):
        step = _step(grid, row)
        if step is not None:
            name = clean(grid.cell(row, run.index)) if run else ""
            rows.setdefault(name, []).append((row, step))
    made = [_read_run(draft, grid, name, found) for name, found in rows.items()]
    return any(made)


def _read_run(draft: Draft, grid: Grid, run: str, rows: Sequence[tuple[int, int]]) -> bool:
    """Add the metrics of one run; whether there are any."""
    made: dict[str, str] = {}
    for column in grid.columns:
        title = clean(grid.table.header[column.index])
        coefficient = vocabulary.LOSS_ROLES["coefficient"].match(title)
        if (column.role in UNMEASURED and not coefficient) or tested(grid, column) or not title:
            continue
        cells = [(step, reading(grid.cell(row, column.index))) for row, step in rows]
        known = [(step, each) for step, each in cells if each is not None]
        if not known or len(known) < len(cells):
            continue
        name = f"{title} ({run})" if run else title
        name = name if name not in draft.metrics else f"{name} ({grid.place.title})"
        line = grid.lines[rows[0][0]][column.index]
        draft.metrics.setdefault(name, _metric(name, title, known, line))
        if grid.place.running:
            _running(draft, name)
        made[title] = name
        _change(draft, grid, column.index, draft.metrics[name])
    _trends(draft, grid, made)
    _identity(draft, made, grid.lines[0][0])
    _count_columns(draft, list(made.values()))
    _since_the_start(draft, list(made.values()))
    return bool(made)


def _step(grid: Grid, row: int) -> int | None:
    """The step that a row is of."""
    column = grid.column("step")
    text = clean(grid.cell(row, column.index if column else 0))
    match = STEP_NAME.match(text)
    if match:
        return int(decimal(next(group for group in match.groups() if group)))
    return whole(text) if column else None


def reading(text: str) -> Reading | None:
    """A percentage with or without its counts, an amount of money, or a number."""
    shown = strip_aside(text)
    read = figure(shown)
    if read is not None and read.count is not None:
        value = read.values[0] if read.values else None
        share = value is not None and value <= 1 and not read.percent
        return (value.scaleb(2) if value is not None and share else value), read.count, read.total
    if shown.isdecimal():
        return None, int(shown), None
    value = signed(shown)
    return (value[0], None, None) if value else None


def _metric(name: str, title: str, cells: Sequence[tuple[int, Reading]], line: int) -> Metric:
    """The readings of a column; what is missing in one of them is left out in all."""
    steps = tuple(step for step, _ in cells)
    columns = [tuple(column) for column in zip(*(read for _, read in cells), strict=True)]
    values, counts, totals = (() if None in column else column for column in columns)
    if not values and not totals and not counts:
        values = tuple(v if v is not None else Decimal(n or 0) for _, (v, n, _) in cells)
    meaning = meaning_of(title)
    if counts and not totals and not values and meaning is not None and meaning != "error rate":
        values, counts = tuple(map(Decimal, counts)), ()
    return Metric(
        name=name, steps=steps, values=values, counts=counts, totals=totals,
        cumulative=bool(vocabulary.CUMULATIVE.search(title)),
        meaning=meaning or ("count" if counts and not totals else None), line=line,
    )  # fmt: skip


def _running(draft: Draft, name: str) -> None:
    """Counts of a table that counts from the start, where both they and their trials rise."""
    metric = draft.metrics[name]
    if metric.counts and metric.totals and _rises(metric.totals):
        draft.metrics[name] = metric.model_copy(update={"cumulative": True})


def meaning_of(name: str) -> Meaning | None:
    """What a metric's name says that it measures."""
    return next((meaning for pattern, meaning in vocabulary.MEANINGS if pattern.search(name)), None)


def _change(draft: Draft, grid: Grid, index: int, metric: Metric) -> None:
    """The printed change of the last reading against the first."""
    shown = metric.values or tuple(map(Decimal, metric.counts))
    for row, label in enumerate(grid.labels):
        says = change_of(grid.cell(row, index)) if label.role == "change" else None
        if says is not None and len(shown) == 2:
            before, after = shown
            line = grid.lines[row][index]
            draft.add(
                "changes",
                Change(of=metric.name, before=before, after=after, says=says[0], line=line),
            )


def _trends(draft: Draft, grid: Grid, made: dict[str, str]) -> None:
    """What a row of remarks concludes of each metric."""
    for row, label in enumerate(grid.labels):
        if label.role != "notes":
            continue
        for column in grid.columns:
            name = made.get(clean(grid.table.header[column.index]), "")
            text = grid.cell(row, column.index)
            reads = next(
                (reads for pattern, reads in vocabulary.TRENDS if pattern.search(text)), None
            )
            if name and reads:
                draft.metrics[name] = draft.metrics[name].model_copy(update={"reads": reads})


def _identity(draft: Draft, columns: dict[str, str], line: int) -> None:
    """The total, policy loss, KL and its coefficient, where a table has all four."""
    roles: dict[str, str] = {}
    for title, name in columns.items():
        for role, pattern in vocabulary.LOSS_ROLES.items():
            if pattern.match(title) and draft.metrics[name].values:
                roles.setdefault(role, name)
    if roles.keys() == vocabulary.LOSS_ROLES.keys():
        draft.add("identities", Identity(**roles, line=line))


def _count_columns(draft: Draft, names: Sequence[str]) -> None:
    """A rate that is one column of counts over another is given their counts and trials."""
    metrics = [draft.metrics[name] for name in names]
    counted = [m for m in metrics if m.counts and not m.totals]
    for rate in [m for m in metrics if not m.counts and RATE.search(m.name)]:
        beside = [m for m in metrics if m.counts and m.totals]
        for both in beside:
            if _rate_of(rate, both.counts, both.totals):
                kept = {"counts": both.counts, "totals": both.totals, "cumulative": both.cumulative}
                draft.metrics[rate.name] = rate.model_copy(update=kept)
        for part, all_of in permutations(counted, 2):
            if _rate_of(rate, part.counts, all_of.counts):
                update = {"counts": part.counts, "totals": all_of.counts}
                draft.metrics[rate.name] = rate.model_copy(update=update)


def _rate_of(metric: Metric, counts: Sequence[int], totals: Sequence[int]) -> bool:
    """Whether most readings are counts over totals, in percent, but for their rounding."""
    rows = list(zip(metric.values, counts, totals, strict=False))
    if not all(count <= total and total for _, count, total in rows):
        return False
    near = [abs(float(v) - 100 * c / t) < 0.05 * float(v) for v, c, t in rows]
    return len(rows) > 1 and 3 * sum(near) >= 2 * len(near)


def _since_the_start(draft: Draft, names: Sequence[str]) -> None:
    """Rates whose trials are a running count of the same table are counts since the start."""
    metrics = [draft.metrics[name] for name in names]
    running = [m for m in metrics if m.counts and not m.totals and _rises(m.counts)]
    for metric in metrics:
        if any(m.counts == metric.totals for m in running):
            draft.metrics[metric.name] = metric.model_copy(update={"cumulative": True})


def _rises(counts: Sequence[int]) -> bool:
    return all(before < after for before, after in pairwise(counts))
