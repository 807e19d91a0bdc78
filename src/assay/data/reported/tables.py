"""Reads plain tables of results, CSV or Markdown's pipes, each as a record of its own.

Titles and figures alone are read: no prose, no heading, nothing of another table. What the titles
suggest is believed where most rows bear it out: counts that give the scores beside them, scores
that are shares of their items, averages and changes that follow from other columns. The rest is
listed as not used, with the reason, so that no rule judges it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Literal, get_args

from assay.data.reported import reported_record as facts
from assay.data.reported import titles
from assay.data.reported.printed_numbers import is_change, is_mean, on_grid, prints, rounding
from assay.data.reported.titles import MISSING, Column, Role, column_of, figure, has_words, whole

Kind = Literal["table", "column", "row"]
Why = Literal["unknown", "no_share", "no_mean", "no_change", "unread", "ragged", "no_items"]
WHY: dict[Role, Why] = dict.fromkeys(("items", "right", "failed"), "no_items")
WHY |= {"other": "no_share", "average": "no_mean", "change": "no_change"}
"""Of columns that are not used, by what their title says."""


@dataclass(frozen=True, slots=True)
class Unused:
    """A part of a table that no rule sees."""

    kind: Kind
    name: str
    line: int
    why: Why


@dataclass(frozen=True, slots=True)
class Spot:
    """The text of a cell, without marks, and its line."""

    text: str
    line: int


Grid = list[list[Spot]]
"""Rows of one length; the first holds the titles."""


def read_grid(grid: Grid, about: str) -> tuple[facts.Reported, list[Unused]]:
    """The record of a table, and the columns and rows that it leaves out."""
    # A table of more than 1000 rows holds items or steps.
    if not 1 < len(grid) <= 1000 or len(grid[0]) < 2:
        return facts.Reported(), []
    turned = [list(column) for column in zip(*grid, strict=True)]
    changes = [*_changes(grid), *_changes(turned)]
    draft = _drafted(grid, turned)
    entries = _borne_out(draft, list(_entries(draft)))
    averages = list(_averages(draft, entries))
    metrics = list(_metrics(draft))
    runs, mentions = _runs(draft, entries, averages)
    control = next((run.name for run in runs if titles.CONTROL.match(run.name)), "")
    draft.used |= {c.index for c in draft.of("control", "says", "setting", "seed", "run", "step")}
    draft.used |= {c.index for c in draft.of("benchmark")} if entries else set()
    moved = {change.of.rpartition(" · ")[2] for change in changes}
    draft.unused = [left for left in draft.unused if left.name not in moved]
    for column in draft.columns:
        if column.index not in draft.used and column.title not in moved:
            why = WHY.get(column.role, "unknown")
            draft.leave("column", column.title, draft.grid[0][column.index].line, why)
    lists = {"runs": runs, "mentions": mentions, "metrics": metrics, "changes": changes}
    lists |= {"averages": averages, "open": draft.open}
    parts = {name: tuple(each) for name, each in lists.items()}
    scoring = facts.Scoring(control=control)
    record = facts.Reported.model_validate({"about": about, "scoring": scoring, **parts})
    return record, draft.unused


@dataclass(slots=True)
class _Draft:
    """A table whose rows are runs, and what became of its parts."""

    grid: Grid
    columns: list[Column]
    names: list[str]
    """Of each row, the name of its run; empty where the row is left out."""
    scores: list[Column] = field(default_factory=list)
    share: bool = False
    used: set[int] = field(default_factory=set)
    unused: list[Unused] = field(default_factory=list)
    open: list[facts.Open] = field(default_factory=list)

    def of(self, *roles: Role) -> list[Column]:
        """The columns of some roles."""
        return [column for column in self.columns if column.role in roles]

    def text(self, row: int, column: Column) -> str:
        """The text of a cell; rows count from 1, as the titles are row 0."""
        return self.grid[row][column.index].text

    def rows(self) -> Iterator[tuple[int, str]]:
        """Number and run of the rows that are read."""
        return ((i + 1, name) for i, name in enumerate(self.names) if name)

    def leave(self, kind: Kind, name: str, line: int, why: Why) -> None:
        """Note a part that is not used, once."""
        left = Unused(kind, name, line, why)
        if left not in self.unused:
            self.unused.append(left)


def _runs_are_columns(grid: Grid) -> bool:
    """Whether a table's first column names benchmarks and its titles the runs."""
    first, *others = [column_of(i, spot.text) for i, spot in enumerate(grid[0])]
    labels = {column_of(0, row[0].text).role for row in grid[1:]}
    known = ("unknown", "change", "items")
    plain_titles = all(c.role in known or titles.CONTROL.match(c.title) for c in others)
    named = first.role == "benchmark" or labels & {"average", "score", "other", "items"}
    return bool(plain_titles and named) and first.role in ("benchmark", "unknown")


def _drafted(grid: Grid, turned: Grid) -> _Draft:
    by_column = _runs_are_columns(grid)
    grid = turned if by_column else grid
    for before, row in pairwise(grid[1:]):
        if not by_column and not row[0].text and any(spot.text for spot in row):
            row[0] = Spot(before[0].text, row[0].line)  # the name above is meant
    columns = [_by_cells(grid, column_of(i, spot.text)) for i, spot in enumerate(grid[0])]
    if by_column:
        columns[0].role = "run"
    named = any(c.role in ("run", "step", "benchmark") for c in columns)
    if not named and columns[0].role in ("unknown", "other", "setting", "average"):
        columns[0].role = "run"
    draft = _Draft(grid, columns, [])
    _find_scores(draft)
    _name_rows(draft)
    return draft


def _by_cells(grid: Grid, column: Column) -> Column:
    """The column, with another role where its cells are not of the one that its title says."""
    cells = [t for row in grid[1:] if not MISSING.fullmatch(t := row[column.index].text)]
    numeric = bool(cells) and all(figure(cell) is not None for cell in cells)
    integers = all(whole(cell) is not None or "/" in cell for cell in cells)
    if column.role in ("run", "benchmark") and column.index and numeric:
        column.role, column.rest = "unknown", column.title
    elif column.role in ("right", "failed", "items") and not integers:
        column.role = "score" if column.role == "right" and numeric else "unknown"
    return column


def _name_rows(draft: _Draft) -> None:
    """Name the run of each row: its cell, and what tells it from rows of the same name."""
    keys = draft.of("run")[:1] or draft.of("step")[:1]
    section = ""
    bases: list[str] = []
    for row in draft.grid[1:]:
        texts = [spot.text for spot in row]
        filled = [text for text in texts if text]
        text = row[keys[0].index].text if keys else "results"
        if len(filled) == 1 and texts[0] and len(texts) > 2:
            section, text = texts[0], ""
        words = [t for c, t in zip(draft.columns, texts, strict=True) if c.role != "notes"]
        means = any(titles.AVERAGE.match(t) for t in words if figure(t) is None)
        counted = _is_count_row(texts[0])
        loose = any(texts[c.index] and whole(texts[c.index]) is None for c in draft.of("seed"))
        if text and (means or loose or titles.CHANGE.match(text)):
            draft.leave("row", text, row[0].line, "unknown")
            text = ""
        step = f"{keys[0].title} " if keys and keys[0].role == "step" else ""
        bases.append("" if not text or counted else f"{section}: {step}{text}".removeprefix(": "))
    draft.names = bases
    _tell_apart(draft)


def _tell_apart(draft: _Draft) -> None:
    """Add to runs of one name the words, or else the numbers, in which their rows differ."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for row, base in draft.rows():
        places = tuple(draft.text(row, c) for c in draft.of("benchmark"))
        groups.setdefault((base, *places), []).append(row)
    known = draft.of("run", "step", "setting", "other", "unknown", "items")
    for (base, *_), rows in groups.items():
        texts = {c.index: [draft.text(r, c) for r in rows] for c in known if c not in draft.scores}
        differ = [i for i, column in texts.items() if len(set(column)) > 1]
        words = [i for i in differ if any(figure(text) is None for text in texts[i])]
        apart = len(set(zip(*(texts[i] for i in words), strict=True))) == len(rows)
        chosen = words if apart or draft.of("seed") else differ
        for at, row in enumerate(rows):
            parts = [base, *filter(None, (texts[i][at] for i in chosen))]
            draft.names[row - 1] = " · ".join(parts)
        draft.used |= set(chosen)


def _is_count_row(label: str) -> bool:
    """Whether a row gives the items of each column."""
    column = column_of(0, label)
    return column.role == "items" and not column.rest


def _find_scores(draft: _Draft) -> None:
    """Find the columns of scores: by their titles, or by decimals from 0 to 100."""
    rows = [row for row in draft.grid[1:] if not _is_count_row(row[0].text)]
    figures = []
    for column in draft.of("score", "unknown"):
        texts = [row[column.index].text for row in rows]
        found = [each for each in map(figure, texts) if each is not None]
        values = [each.value for each in found if each.value is not None]
        scored = column.role == "score" or any(f.percent or f.count is not None for f in found)
        scored = scored or any(rounding(value) < Fraction(1, 2) for value in values)
        many = 2 * len(found) > sum(not MISSING.fullmatch(text) for text in texts)
        if scored and found and many and all(0 <= value <= 100 for value in values):
            draft.scores.append(column)
            figures += found
    values = [each.value for each in figures if each.value is not None]
    percent = any(f.percent for f in figures) or any("%" in c.title for c in draft.scores)
    draft.share = bool(values) and not percent and max(values) <= 1


@dataclass(slots=True)
class _Entry:
    """One score of a run, with what stands beside it."""

    row: int
    run: str
    cell: str
    column: Column
    line: int
    value: Decimal | None
    right: int | None = None
    items: int | None = None
    failed: int = 0


def _entries(draft: _Draft) -> Iterator[_Entry]:
    """The scores and counts of all rows."""
    counted = {column.rest for column in draft.scores}
    if len(draft.scores) == 1:  # counts without a name belong to it
        counted.add("")
    alone = [column for column in draft.of("right") if column.rest not in counted]
    for row, name in draft.rows():
        places = " ".join(filter(None, (draft.text(row, c) for c in draft.of("benchmark"))))
        if places and has_words(titles.OTHER, places.lower()):
            draft.leave("row", f"{name} {places}", draft.grid[row][0].line, "no_share")
            continue
        for column in (*draft.scores, *alone):
            spot = draft.grid[row][column.index]
            cell = " ".join(filter(None, (places, column.rest)))
            entry = _entry(draft, row, column, spot)
            if entry is not None:
                entry.run, entry.cell = name, cell
                yield entry
            elif titles.OPEN.fullmatch(spot.text):
                draft.open.append(facts.Open(place=f"{name} · {cell}", line=spot.line))
            elif not MISSING.fullmatch(spot.text):
                draft.leave("row", name, spot.line, "unread")
    draft.used |= {column.index for column in alone}


def _entry(draft: _Draft, row: int, column: Column, spot: Spot) -> _Entry | None:
    read = figure(spot.text)
    if read is None:
        return None
    value = read.value.scaleb(2) if read.value is not None and draft.share else read.value
    entry = _Entry(row, "", "", column, spot.line, value, read.count, read.total)
    draft.used.add(column.index)
    if column.role == "right" and read.count is None:
        entry.value, entry.right = None, whole(spot.text)
    entry.items = entry.items or _items(draft, row, column)
    for other in draft.of("right", "failed"):
        fits = other.rest == column.rest or (not other.rest and len(draft.scores) == 1)
        given = figure(draft.text(row, other)) if fits and other is not column else None
        if given is not None and other.role == "right":
            entry.right = given.count if given.count is not None else whole(draft.text(row, other))
            entry.items = given.total or entry.items
        elif given is not None:
            entry.failed += whole(draft.text(row, other)) or 0
        draft.used |= {other.index} if given is not None else set()
    return entry


def _items(draft: _Draft, row: int, column: Column) -> int | None:
    """The number of items of a score: in its row, else in a row of its own, else in its title."""
    for other in draft.of("items"):
        count = whole(draft.text(row, other))
        if other.rest in (column.rest, "") and count:
            draft.used.add(other.index)
            return count
    for cells in draft.grid[1:]:
        if _is_count_row(cells[0].text):
            return whole(cells[column.index].text) or column.items
    return column.items


def _borne_out(draft: _Draft, entries: list[_Entry]) -> list[_Entry]:
    """The scores; without counts and items that most of their column's scores do not follow from.

    Items are believed for each number of them: a score of 30 problems may be a mean of samples,
    where one of 1319 is a share. A metric that is a share by its name is believed as it stands.
    """
    for column in {e.column.index: e.column for e in entries}.values():
        rows = [e for e in entries if e.column is column]
        both = [e for e in rows if e.value is not None and e.right is not None and e.items]
        if both and not _most(list(map(_follows, both))):
            _doubt(draft, both)
        for items in sorted({e.items for e in rows if e.items}):
            sized = [e for e in rows if e.items == items and e.value is not None]
            # Scores that are printed less finely than their items are say nothing.
            sharp = [e for e in sized if e.value and 2 * rounding(e.value) * items < 100]
            fits = [_follows(e) for e in sharp if e.right is None]
            if not (all(fits) or _most(fits) or _named_shares(draft, sized, rows)):
                _doubt(draft, sized)
    return entries


FEW = 64
"""Items of which scores are often means of several samples, under the name of one."""


def _named_shares(draft: _Draft, sized: Sequence[_Entry], rows: Sequence[_Entry]) -> bool:
    """Whether all scores are shares of their items by the metric's name.

    Not of few items, where a benchmark has several numbers of them (training rows, samples drawn),
    or where the table has means of samples (pass@10, avg@4).
    """
    words = [f"{e.column.title} {e.cell}".lower().replace("_", " ") for e in sized]
    named = all(has_words(titles.NAMED, w) and not has_words(titles.MEANS, w) for w in words)
    sampled = any(titles.SAMPLED.search(spot.text) for row in draft.grid for spot in row)
    sizes = {e.items for e in rows if e.cell in {each.cell for each in sized}}
    return named and not sampled and len(sizes) == 1 and (sized[0].items or 0) > FEW


def _doubt(draft: _Draft, entries: list[_Entry]) -> None:
    for entry in entries:
        entry.right = entry.items = None
        entry.failed = 0
    first = entries[0]
    draft.leave("column", first.column.title, draft.grid[0][first.column.index].line, "no_items")


def _most(fits: Sequence[bool]) -> bool:
    """Whether at least two rows bear a reading out, and all but one or a fifth of the others."""
    off = len(fits) - sum(fits)
    return sum(fits) > max(1, off) and (off < 2 or 5 * off <= len(fits))


def _follows(entry: _Entry) -> bool:
    """Whether a score may be its count, or any count, of its items or of the answered ones."""
    assert entry.value is not None and entry.items is not None
    totals = [t for t in (entry.items, entry.items - entry.failed) if t > 0]
    if entry.right is not None:
        return any(prints(entry.value, Fraction(100 * entry.right, total)) for total in totals)
    return any(on_grid(entry.value, Fraction(100, total)) for total in totals)


def _averages(draft: _Draft, entries: list[_Entry]) -> Iterator[facts.Average]:
    """Averages over columns whose mean they are in most rows."""
    if draft.of("benchmark", "seed"):
        return
    values = {(e.row, e.column.index): e.value for e in entries}
    indices = [column.index for column in draft.scores]
    stops = [c.index for c in draft.of("average")]
    first = [r for r, name in draft.rows() if draft.names.index(name) == r - 1]
    for column in draft.of("average"):
        low = max((s for s in stops if s < column.index), default=-1)
        high = min((s for s in stops if s > column.index), default=len(draft.columns))
        before = [i for i in indices if low < i < column.index]
        groups = [indices, before, [i for i in indices if column.index < i < high]]
        read = {row: figure(draft.text(row, column)) for row in first}
        said = {r: f.value for r, f in read.items() if f is not None and f.value is not None}
        said = {r: v.scaleb(2) if draft.share else v for r, v in said.items()}
        fits = []
        for group in groups:
            parts = [(v, [values.get((row, i)) for i in group]) for row, v in said.items()]
            whole_rows = [(v, part) for v, part in parts if group and None not in part]
            fits.append([is_mean(v, [x for x in part if x is not None]) for v, part in whole_rows])
        judged, best = max(
            zip(fits, groups, strict=True), key=lambda g: (sum(g[0]), -g[0].count(False))
        )
        half = len(judged) == 2 and sum(judged) == 1 and len(best) > 2
        if len(best) < 2 or not judged or not (all(judged) or _most(judged) or half):
            continue
        draft.used.add(column.index)
        of = tuple(draft.columns[i].rest for i in best)
        for row, says in said.items():
            absent = [draft.text(row, draft.columns[i]) for i in best if (row, i) not in values]
            if len(absent) < len(best) and all(map(MISSING.fullmatch, absent)):
                line, name = draft.grid[row][column.index].line, draft.names[row - 1]
                yield facts.Average(run=name, name=column.title, of=of, says=says, line=line)


def _changes(grid: Grid) -> Iterator[facts.Change]:
    """Changes between two columns, or from one row, whose difference they are in most rows."""
    numbers = [[f.value if (f := figure(spot.text)) else None for spot in row] for row in grid]
    rows, width = range(1, len(grid)), len(grid[0])
    for column, head in enumerate(grid[0]):
        said = {r: v for r in rows if (v := numbers[r][column]) is not None}
        if column_of(column, head.text).role != "change" or len(said) < 3:
            continue
        others = [c for c in range(width) if c != column]
        places = [[(r, a, r, b) for r in said] for a in others for b in others if a != b]
        bases = [r for r in rows if r < 3 or titles.CONTROL.match(grid[r][0].text)]
        places += [[(base, a, r, a) for r in said] for a in others for base in bases]
        best, most = [], 0
        for place, relative in ((p, relative) for p in places for relative in (False, True)):
            pairs = [(r, numbers[r0][a], numbers[r][b]) for r0, a, r, b in place]
            known = [(r, x, y) for r, x, y in pairs if x is not None and y is not None]
            fits = [is_change(x, y, said[r], relative) for r, x, y in known]
            if _most(fits) and sum(fits) > most:
                best, most = [(*each, relative) for each in known], sum(fits)
        for r, x, y, relative in best:
            of, line = f"{grid[r][0].text} · {head.text}", grid[r][column].line
            yield facts.Change(of=of, before=x, after=y, says=said[r], relative=relative, line=line)


def _metrics(draft: _Draft) -> Iterator[facts.Metric]:
    """Readings of a training: groups without signal, and counts since the start."""
    keys = draft.of("step")
    if draft.of("run") or not keys:
        return
    numbers = ((row, whole(draft.text(row, keys[0]))) for row, _ in draft.rows())
    steps = {row: step for row, step in numbers if step is not None}
    if sorted(set(steps.values())) != list(steps.values()):
        return
    for column in draft.columns:
        read = [figure(draft.text(row, column)) for row in steps]
        figures = [each for each in read if each is not None]
        silent = titles.SILENT.search(column.title)
        known = silent or titles.RUNNING.search(column.title)
        if not known or len(figures) < max(2, len(steps)):
            continue
        pairs = [(f.count, f.total) for f in figures if f.count is not None and f.total]
        values = tuple(f.value for f in figures if f.value is not None)
        if not silent and (pairs or titles.RATE.search(column.title)):
            continue
        draft.used.add(column.index)
        pairs = pairs if len(pairs) == len(steps) else []
        yield facts.Metric(
            name=column.title,
            steps=tuple(steps.values()),
            values=values if len(values) == len(steps) else (),
            counts=tuple(count for count, _ in pairs),
            totals=tuple(total for _, total in pairs),
            cumulative=not silent,
            meaning="groups without signal" if silent else "count",
            line=draft.grid[1][column.index].line,
        )


def _runs(
    draft: _Draft, entries: list[_Entry], averages: Sequence[facts.Average]
) -> tuple[list[facts.Run], list[facts.Mention]]:
    """The runs with their scores; a second row of the same run is a mention."""
    by_run: dict[str, dict[str, list[_Entry]]] = {}
    mentions, taken = [], set()
    for entry in entries:
        seeds = tuple(draft.text(entry.row, c) for c in draft.of("seed"))
        place = (entry.run, entry.cell, entry.column.index, seeds)
        if place not in taken:
            taken.add(place)
            by_run.setdefault(entry.run, {}).setdefault(entry.cell, []).append(entry)
        elif entry.value is not None:
            again = {"of": entry.run, "scores": {entry.cell: (entry.value,)}}
            mentions.append(facts.Mention(**again, line=entry.line, place=f"{entry.line}"))
    runs = []
    for name, cells in by_run.items():
        wanted = {cell for average in averages if average.run == name for cell in average.of}
        words = _words(draft, [entry for cell in cells.values() for entry in cell], by_run)
        missing = {"name": name, "not_run": tuple(sorted(wanted - cells.keys()))}
        runs.append(facts.Run.model_validate(_fields(cells) | words | missing))
    return runs, mentions


def _words(draft: _Draft, entries: list[_Entry], runs: Mapping[str, object]) -> dict[str, object]:
    """The settings of a run, its control and the table's verdict on it or on each of its cells."""
    row, line = entries[0].row, draft.grid[entries[0].row][0].line
    settings = {c.rest: draft.text(row, c) for c in draft.of("setting")}
    words: dict[str, object] = {
        "settings": {k: v for k, v in settings.items() if not MISSING.fullmatch(v)},
        "line": line,
        "lines": {entry.cell: entry.line for entry in reversed(entries)},
    }
    for name in (draft.text(row, column) for column in draft.of("control")):
        if name in runs:
            words["control"] = name
        elif name:
            draft.leave("row", draft.names[row - 1], line, "unknown")
    known = get_args(facts.Verdict)
    for column in draft.of("says"):
        said = {e.cell: v for e in entries if (v := draft.text(e.row, column).lower()) in known}
        if said:
            words |= {"says_of": said} if draft.of("benchmark") else {"says": said.popitem()[1]}
    return words


def _fields(cells: Mapping[str, list[_Entry]]) -> dict[str, object]:
    """The scores of a run by cell; counts and items where all its repeats have them."""
    parts: dict[str, dict[str, object]] = {k: {} for k in ("scores", "right", "items", "failed")}
    for cell, found in cells.items():
        values = [e.value for e in found if e.value is not None]
        counts = [e.right for e in found if e.right is not None]
        parts["scores"][cell] = tuple(values) if len(values) == len(found) else ()
        if found[0].items and len({e.items for e in found}) == 1:
            parts["items"][cell] = found[0].items
            parts["right"] |= {cell: tuple(counts)} if len(counts) == len(found) else {}
            parts["failed"] |= {cell: found[0].failed} if found[0].failed else {}
    return dict(parts)
