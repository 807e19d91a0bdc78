"""Reads plain tables of results, CSV or Markdown's pipes, each as a record of its own.

Titles and figures alone are read: no prose, no heading, nothing of another table. What the titles
suggest is believed where most rows bear it out: counts that give the scores beside them, scores
that are shares of their items, averages and changes that follow from other columns. The rest is
listed as not used, with the reason, so that no rule judges it.
"""

import csv
import io
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Literal, get_args

from assay.data.reported.printed_numbers import is_change, is_mean, on_grid, prints, rounding
from assay.data.reported.reported_record import (
    Average,
    Change,
    Mention,
    Metric,
    Open,
    Reported,
    Run,
    Scoring,
    Verdict,
)

Kind = Literal["table", "column", "row"]
Why = Literal["unknown", "no_share", "no_mean", "no_change", "unread", "ragged", "no_items"]


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


@dataclass(frozen=True, slots=True)
class Figure:
    """A score, the count behind it, or both."""

    value: Decimal | None = None
    count: int | None = None
    total: int | None = None
    percent: bool = False


NUMBER = r"[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?"
FIGURES = [
    re.compile(rf"(?P<value>{NUMBER})\s*(?P<unit>%|pp|pts?|points?|个点|点)?"),
    re.compile(r"(?P<count>\d+)\s*/\s*(?P<total>\d+)"),
    re.compile(rf"(?P<value>{NUMBER})\s*(?P<unit>%?)\s*\((?P<count>\d+)\s*/\s*(?P<total>\d+)\)"),
    re.compile(
        rf"(?P<count>\d+)\s*/\s*(?P<total>\d+)\s*[(=,:]\s*(?P<value>{NUMBER})\s*(?P<unit>%?)\)?"
    ),
]
MOST_ROWS = 1000
"""Of a table of results; a longer one holds items or steps."""
LONGEST = 40
"""Characters of a figure; no report prints longer ones."""
MISSING = re.compile(r"(?:[-–—/]*|n/?a|none|null|nan|未测|未跑|无)", re.I)
OPEN = re.compile(r"[?？]+|tbd|todo|待定|待填", re.I)
MARKS = re.compile(r"!?\[([^\]]*)\]\([^)]*\)|<[^<>]*>|\*\*|__|[`†‡↑✓✅🔥]|~~|(?<=\d)\*+$|^\*|\*$")

RUN = (
    "models?|methods?|runs?|run id|systems?|checkpoints?|ckpt|config(?:uration)?s?|arms?|variants?"
)
RUN += "|agents?|names?|approach(?:es)?|polic(?:y|ies)|strateg(?:y|ies)|experiments?|模型|方法|系统"
RUN += "|实验|版本|方案|检查点|策略"
BENCHMARK = "benchmarks?|tasks?|datasets?|evals?|evaluations?|test ?sets?|test|metrics?|measures?"
BENCHMARK += "|评测集|评测|测试集|任务|数据集|基准|指标"
ITEMS = "n|items?|totals?|examples?|samples?|questions?|problems?|instances?|sessions?|attempted"
ITEMS += "|每项样本数|样本数|题目总数|题数|总题数|总数|条数"
RIGHT = "correct|right|hits|solved|passed|successes|正确数|正确|答对|成功|通过数"
FAILED = "failures|timeouts?|parse errors|parse failures|unparsable|errors|refusals|crashes"
FAILED += "|超时|崩溃|解析失败|拒答"
SHARE = "accuracy|acc|em|exact match|success rate|success|pass rate|pass@1|solve rate|score|percent"
SHARE += "|pct|value|result|准确率|正确率|成功率|通过率|得分"
OTHER = (
    "acc[ -]norm|f1|bleu|rouge|chrf|comet|meteor|bertscore|ppl|perplexity|loss|kl|rewards?|elo|mrr"
    "|ndcg|m?ap|au(?:ro)?c|mcc|corr(?:elation)?|pearson|spearman|recall|precision|[rp]@\\d+|hit@\\d+"
    "|(?:avg|mean|maj|cons|best|major)@\\d+|pass@(?!1\\b)\\w+|pass\\^\\w+|wer|cer|errors? rate|time"
    "|latency|costs?|price|tokens?|params?|parameters|size|memory|vram|gpus?|speed|throughput"
    "|len|length|entropy|norm|rank|m?s|gb|mb|std|sd|stderr|se|ci|interval|versions?|shots?|budget"
    "|mt[ -]bench|arena|win ?rate|m?iou|dice|rmse|mae|mse|r2|fid|ratio|hours?|minutes?|seconds?"
    "|flops|context|year|date|speedup|ece|brier|weight|layers|dim|id|index|\\S*误差|损失"
    "|耗时|延迟|成本|费用|显存|长度|召回率?|精确率|错误率|困惑度|吞吐|区间|标准差|排名|时间|轮数"
)
SETTINGS = {
    "data": "data|train(?:ing)? data|train set|训练数据|数据",
    "base": "base|base model|底座|基座",
    "learning rate": "lr|learning rate|学习率",
    "epochs": "epochs|训练轮数",
    "temperature": "temperature|温度",
    "prompt": "prompt|prompts|提示词",
    "method": "training|stage|训练方法",
}
SEED = "seed|trial|repeat|种子|重复"
STEP = "(?:global )?steps?|epochs?|iterations?|rounds?|步数?|轮次"
NOTES = "notes?|remarks?|comments?|memo|备注|说明|结论|更新时间|日期"
AVERAGE = re.compile(r"(?:.{1,5}项)?(?:平均|均值)|\b(?:avg|average|mean|overall)\b(?!@)", re.I)
CHANGE = re.compile(
    r"[Δδ∆]|\b(?:delta|diff(?:erence)?|gains?|improv\w*|change|(?:up)?lift)\b|提升|差值|变化|增益|较基",
    re.I,
)
CONTROL = re.compile(r"(?:base|baseline|control|untrained|基线|对照)\b|基线|对照|未训练", re.I)
SIZED = re.compile(
    r"\(?\bn\s*=\s*(\d[\d,]*)\)?|\(?(\d[\d,]*)\s*(?:items|questions|problems|题|条)\)?", re.I
)
UNITS = re.compile(r"[(\[]\s*(?:%|pct|percent|pp|in %|截断.*)?\s*[)\]]|[%↑↓#]|,\s*$")
SCRIPTS = re.compile(r"(?<=[a-zA-Z0-9])(?=[一-鿿])|(?<=[一-鿿])(?=[a-zA-Z0-9])")
SILENT = re.compile(
    r"(?:groups?|prompts?|组).*(?:std *= *0|zero|equal|same|identical|相同|无方差)"
    r"|零方差|zero[- ]?(?:std|variance|advantage)|all[- ]?equal", re.I,
)  # fmt: skip
RUNNING = re.compile(r"cumulative|so far|since (?:the )?start|累计", re.I)
RATE = re.compile(r"rate|%|ratio|share|率|占比", re.I)

Role = Literal[
    "run", "benchmark", "items", "right", "failed", "score", "other", "setting", "seed", "step",
    "notes", "average", "change", "control", "says", "unknown",
]  # fmt: skip
WORDS: dict[Role, str] = {
    "notes": NOTES,
    "seed": SEED,
    "other": OTHER,
    "step": STEP,
    "failed": FAILED,
    "score": SHARE,
    "right": RIGHT,
    "items": ITEMS,
    "run": RUN,
    "benchmark": BENCHMARK,
}
WHOLE = ("notes", "seed", "step", "run", "benchmark")
"""Roles whose words are the whole title; of the others the rest names the benchmark."""


@dataclass(slots=True)
class Column:
    """A column and what its title says."""

    index: int
    title: str
    role: Role
    rest: str = ""
    """What the title says beside its role: a benchmark; for a setting its key."""
    items: int | None = None


def plain(text: str) -> str:
    """Text without emphasis, links and tags, in one width."""
    text = unicodedata.normalize("NFKC", text.replace("&nbsp;", " ").replace("\\|", "|"))
    return " ".join(MARKS.sub(lambda m: m[1] or "", text.replace("−", "-")).split())


def figure(text: str) -> Figure | None:
    """The figure that a cell holds and nothing else."""
    if not text or len(text) > LONGEST:
        return None
    for pattern in FIGURES:
        match = pattern.fullmatch(text)
        if match is None or not re.search(r"\d", match[0]):
            continue
        parts = match.groupdict()
        value = Decimal(parts["value"].replace(",", "")) if parts.get("value") else None
        count, total = (int(parts[n]) if parts.get(n) else None for n in ("count", "total"))
        if count is None or total is None or count <= total:
            return Figure(value, count, total, parts.get("unit") == "%")
    return None


def whole(text: str) -> int | None:
    """The whole number that a cell holds."""
    read = figure(text)
    exact = read is not None and read.value is not None and read.value == int(read.value)
    return int(read.value) if exact and read.count is None and "." not in text else None


def column_of(index: int, title: str) -> Column:
    """The role that the words of a title give."""
    sized = SIZED.search(title)
    items = int(next(n for n in sized.groups() if n).replace(",", "")) if sized else None
    bare = SIZED.sub(" ", title) if sized else title
    bare = " ".join(SCRIPTS.sub(" ", UNITS.sub(" ", bare).replace("_", " ")).split())
    bare = bare.strip(" :-/,")
    words = bare.lower()
    if words in ("control", "says"):
        return Column(index, title, words)
    for key, pattern in SETTINGS.items():
        if re.fullmatch(pattern, words):
            return Column(index, title, "setting", key)
    for role in WHOLE:
        if re.fullmatch(WORDS[role], words):
            return Column(index, title, role)
    if CHANGE.search(bare):
        return Column(index, title, "change", bare)
    if AVERAGE.search(bare) and not _has(OTHER, words):
        return Column(index, title, "average", bare)
    for role, pattern in WORDS.items():
        found = _has(pattern, words) if role not in WHOLE else None
        if found:
            rest = " ".join((bare[: found.start()] + " " + bare[found.end() :]).split())
            return Column(index, title, role, _rest(rest), items)
    return Column(index, title, "unknown", bare, items)


def _has(pattern: str, words: str) -> re.Match[str] | None:
    return re.search(rf"(?<![a-z0-9@])(?:{pattern})(?:@\d+)?(?![a-z0-9@])", words)


def _rest(rest: str) -> str:
    """A benchmark's name without the words of counts around it."""
    words = rest.strip(" /-:(),").split()
    while words and re.fullmatch(f"num|no|number|of|per|{ITEMS}|{RIGHT}|{SHARE}", words[0].lower()):
        words = words[1:]
    while words and re.fullmatch(f"of|per|{ITEMS}|set|benchmark", words[-1].lower()):
        words = words[:-1]
    return " ".join(words).strip(" /-:(),")


def markdown_grids(text: str) -> Iterator[tuple[Grid, list[Unused]]]:
    """The pipe tables of a Markdown text, each with its rows that have another length."""
    lines = text.splitlines()
    start = 0
    for number, line in enumerate(lines):
        if number < start or not SEPARATOR.fullmatch(line) or "|" not in lines[number - 1 :][0]:
            continue
        end = next((n for n in range(number + 1, len(lines)) if "|" not in lines[n]), len(lines))
        body = [number - 1, *range(number + 1, end)] if number else []
        yield _square([(n + 1, _cells(lines[n])) for n in body])
        start = end


SEPARATOR = re.compile(r"[>\s]*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)+\|?\s*|\s*\|\s*:?-+:?\s*\|\s*")


def _cells(line: str) -> list[str]:
    inner = line.strip().lstrip("> ").removeprefix("|").removesuffix("|")
    return re.split(r"(?<!\\)\|", inner)


def csv_grid(text: str) -> tuple[Grid, list[Unused]]:
    """The table of a CSV text; lines that begin with # are comments."""
    kept = "\n".join("" if line.startswith("#") else line for line in text.splitlines())
    head = next((line for line in kept.splitlines() if line.strip()), "")
    delimiter = max(",\t;", key=head.count)
    reader = csv.reader(io.StringIO(kept), delimiter=delimiter, skipinitialspace=True)
    rows = [(reader.line_num, cells) for cells in reader if any(map(str.strip, cells))]
    return _square(rows)


def _square(rows: Sequence[tuple[int, list[str]]]) -> tuple[Grid, list[Unused]]:
    spots = [[Spot(plain(text), line) for text in cells] for line, cells in rows]
    width = len(spots[0]) if spots else 0
    odd = [row for row in spots if len(row) != width]
    ragged = [Unused("row", row[0].text, row[0].line, "ragged") for row in odd if row]
    return [row for row in spots if len(row) == width], ragged


def read_grid(grid: Grid, about: str) -> tuple[Reported, list[Unused]]:
    """The record of a table, and the columns and rows that it leaves out."""
    if not 1 < len(grid) <= MOST_ROWS or len(grid[0]) < 2:
        return Reported(), []
    changes = [*_changes(grid), *_changes(_turned(grid))]
    draft = _drafted(grid)
    entries = _borne_out(draft, list(_entries(draft)))
    averages = list(_averages(draft, entries))
    metrics = list(_metrics(draft))
    runs, mentions = _runs(draft, entries, averages)
    control = next((run.name for run in runs if CONTROL.match(run.name)), "")
    draft.used |= {c.index for c in draft.of("control", "says", "setting", "seed", "run", "step")}
    draft.used |= {c.index for c in draft.of("benchmark")} if entries else set()
    moved = {change.of.rpartition(" · ")[2] for change in changes}
    draft.unused = [left for left in draft.unused if left.name not in moved]
    for column in draft.columns:
        if column.index not in draft.used and column.title not in moved:
            draft.leave("column", column.title, draft.grid[0][column.index].line, _why(column))
    record = Reported(
        about=about,
        scoring=Scoring(control=control),
        runs=tuple(runs),
        mentions=tuple(mentions),
        metrics=tuple(metrics),
        changes=tuple(changes),
        averages=tuple(averages),
        open=tuple(draft.open),
    )
    return record, draft.unused


def _why(column: Column) -> Why:
    reasons: dict[Role, Why] = {"other": "no_share", "average": "no_mean", "change": "no_change"}
    return reasons.get(column.role, "no_items" if column.role in COUNTS else "unknown")


COUNTS = ("items", "right", "failed")


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
    open: list[Open] = field(default_factory=list)

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


def _turned(grid: Grid) -> Grid:
    return [list(column) for column in zip(*grid, strict=True)]


def _runs_are_columns(grid: Grid) -> bool:
    """Whether a table's first column names benchmarks and its titles the runs."""
    first, *others = [column_of(i, spot.text) for i, spot in enumerate(grid[0])]
    labels = [column_of(0, row[0].text).role for row in grid[1:]]
    plain_titles = all(
        c.role in ("unknown", "change", "items") or CONTROL.match(c.title) for c in others
    )
    named = first.role == "benchmark" or any(
        role in ("average", "score", "other", "items") for role in labels
    )
    return plain_titles and named and first.role in ("benchmark", "unknown")


def _drafted(grid: Grid) -> _Draft:
    turned = _runs_are_columns(grid)
    grid = _turned(grid) if turned else _filled_down(grid)
    columns = [column_of(i, spot.text) for i, spot in enumerate(grid[0])]
    columns = [_by_cells(grid, column) for column in columns]
    if turned:
        columns[0].role = "run"
    named = any(c.role == "run" for c in columns)
    stepped = any(c.role in ("step", "benchmark") for c in columns)
    if not named and not stepped and columns[0].role in ("unknown", "other", "setting", "average"):
        columns[0].role = "run"
    draft = _Draft(grid, columns, [])
    _find_scores(draft)
    _name_rows(draft)
    return draft


def _filled_down(grid: Grid) -> Grid:
    """The table with the name above in rows that leave theirs out."""
    for before, row in pairwise(grid[1:]):
        if not row[0].text and any(spot.text for spot in row):
            row[0] = Spot(before[0].text, row[0].line)
    return grid


def _by_cells(grid: Grid, column: Column) -> Column:
    """The column, with another role where its cells are not of the one that its title says."""
    cells = [t for row in grid[1:] if not MISSING.fullmatch(t := row[column.index].text)]
    numeric = bool(cells) and all(figure(cell) is not None for cell in cells)
    integers = all(whole(cell) is not None or _fraction(cell) for cell in cells)
    if column.role in ("run", "benchmark") and column.index and numeric:
        column.role, column.rest = "unknown", column.title
    elif column.role in ("right", "failed", "items") and not integers:
        column.role = "score" if column.role == "right" and numeric else "unknown"
    return column


def _fraction(text: str) -> bool:
    read = figure(text)
    return read is not None and read.count is not None and read.value is None


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
        means = any(AVERAGE.match(t) for t in words if figure(t) is None)
        counted = bool(keys) and _is_count_row(text)
        loose = any(texts[c.index] and whole(texts[c.index]) is None for c in draft.of("seed"))
        if text and (means or loose or CHANGE.match(text)):
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
    telling = [column for column in known if column not in draft.scores]
    for (base, *_), rows in groups.items():
        differ = [c for c in telling if len({draft.text(row, c) for row in rows}) > 1]
        words = [c for c in differ if any(figure(draft.text(row, c)) is None for row in rows)]
        apart = len({tuple(draft.text(row, c) for c in words) for row in rows}) == len(rows)
        chosen = words if apart or draft.of("seed") else differ
        for row in rows:
            parts = [base, *filter(None, (draft.text(row, c) for c in chosen))]
            draft.names[row - 1] = " · ".join(parts)
        draft.used |= {c.index for c in chosen}


def _is_count_row(label: str) -> bool:
    """Whether a row gives the items of each column."""
    column = column_of(0, label)
    return column.role == "items" and not column.rest


def _find_scores(draft: _Draft) -> None:
    """Find the columns of scores: by their titles, or by decimals from 0 to 100."""
    rows = [row for row in draft.grid[1:] if not _is_count_row(row[0].text)]
    for column in draft.of("score", "unknown"):
        read = [figure(row[column.index].text) for row in rows]
        found = [each for each in read if each is not None]
        values = [each.value for each in found if each.value is not None]
        fractions = [each for each in found if each.count is not None]
        scored = column.role == "score" or any(each.percent for each in found)
        scored = scored or bool(fractions) or any(rounding(v) < Fraction(1, 2) for v in values)
        filled = [row for row in rows if not MISSING.fullmatch(row[column.index].text)]
        if scored and found and 2 * len(found) > len(filled) and all(0 <= v <= 100 for v in values):
            draft.scores.append(column)
    figures = [f for c in draft.scores for r in rows if (f := figure(r[c.index].text))]
    values = [f.value for f in figures if f.value is not None]
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
    alone = [c for c in draft.of("right") if c.rest not in counted and not _served(draft, c)]
    for row, name in draft.rows():
        places = " ".join(filter(None, (draft.text(row, c) for c in draft.of("benchmark"))))
        if places and _has(OTHER, places.lower()):
            draft.leave("row", f"{name} {places}", draft.grid[row][0].line, "no_share")
            continue
        for column in (*draft.scores, *alone):
            spot = draft.grid[row][column.index]
            cell = " ".join(filter(None, (places, column.rest)))
            entry = _entry(draft, row, column, spot)
            if entry is not None:
                entry.run, entry.cell = name, cell
                yield entry
            elif OPEN.fullmatch(spot.text):
                draft.open.append(Open(place=f"{name} · {cell}", line=spot.line))
            elif not MISSING.fullmatch(spot.text):
                draft.leave("row", name, spot.line, "unread")
    draft.used |= {column.index for column in alone}


def _served(draft: _Draft, right: Column) -> bool:
    """Whether counts without a name belong to the only column of scores."""
    return not right.rest and len(draft.scores) == 1


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
    where one of 1319 is a share.
    """
    for column in {e.column.index: e.column for e in entries}.values():
        rows = [e for e in entries if e.column is column]
        both = [e for e in rows if e.value is not None and e.right is not None and e.items]
        if both and not _most([_from_counts(e) for e in both]):
            _doubt(draft, both)
        for items in {e.items for e in rows if e.items}:
            sized = [e for e in rows if e.items == items and e.value is not None]
            bare = [e for e in sized if e.right is None and _sharp(e)]
            off = [e for e in bare if not _on_grid(e)]
            if off and not _most([e not in off for e in bare]):
                _doubt(draft, sized)
    return entries


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


def _from_counts(entry: _Entry) -> bool:
    assert entry.value is not None and entry.right is not None and entry.items is not None
    totals = (entry.items, entry.items - entry.failed)
    return any(t > 0 and prints(entry.value, Fraction(100 * entry.right, t)) for t in totals)


def _sharp(entry: _Entry) -> bool:
    """Whether a score is printed more finely than its items are."""
    assert entry.value is not None and entry.items is not None
    return 2 * rounding(entry.value) * entry.items < 100


def _on_grid(entry: _Entry) -> bool:
    assert entry.value is not None and entry.items is not None
    totals = (entry.items, entry.items - entry.failed)
    return any(t > 0 and on_grid(entry.value, Fraction(100, t)) for t in totals)


def _averages(draft: _Draft, entries: list[_Entry]) -> Iterator[Average]:
    """Averages over columns whose mean they are in most rows."""
    if draft.of("benchmark", "seed"):
        return
    by_place = {(e.row, e.column.index): e for e in entries}
    indices = [column.index for column in draft.scores]
    stops = [c.index for c in draft.of("average")]
    for column in draft.of("average"):
        low = max((s for s in stops if s < column.index), default=-1)
        high = min((s for s in stops if s > column.index), default=len(draft.columns))
        groups = [
            indices,
            [i for i in indices if low < i < column.index],
            [i for i in indices if column.index < i < high],
        ]
        says = {row: _number(draft, row, column) for row, _ in draft.rows()}
        rows = [(row, said) for row, said in says.items() if said is not None]
        fits = {id(g): [_mean_of(by_place, r, g, said) for r, said in rows] for g in groups}
        counts = {id(g): [f for f in fits[id(g)] if f is not None] for g in groups}
        best = max(groups, key=lambda g: (sum(counts[id(g)]), -counts[id(g)].count(False)))
        judged = counts[id(best)]
        half = len(judged) == 2 and sum(judged) == 1 and len(best) > 2
        if len(best) < 2 or not judged or not (all(judged) or _most(judged) or half):
            continue
        draft.used.add(column.index)
        for row, said in rows:
            cells = [draft.text(row, draft.columns[i]) for i in best]
            if all(
                (row, i) in by_place or MISSING.fullmatch(t)
                for i, t in zip(best, cells, strict=True)
            ):
                of = tuple(draft.columns[i].rest for i in best)
                line = draft.grid[row][column.index].line
                name = draft.names[row - 1]
                yield Average(run=name, name=column.title, of=of, says=said, line=line)


def _number(draft: _Draft, row: int, column: Column) -> Decimal | None:
    read = figure(draft.text(row, column))
    if read is None or read.value is None:
        return None
    return read.value.scaleb(2) if draft.share else read.value


def _mean_of(
    by_place: Mapping[tuple[int, int], _Entry], row: int, group: Sequence[int], says: Decimal
) -> bool | None:
    """Whether a row's average is the mean of a group; None where a score is missing."""
    found = [by_place.get((row, i)) for i in group]
    values = [e.value for e in found if e is not None and e.value is not None]
    return is_mean(says, values) if group and len(values) == len(group) else None


def _changes(grid: Grid) -> Iterator[Change]:
    """Changes between two columns, or from one row, whose difference they are in most rows."""
    numbers = [
        [read.value if (read := figure(spot.text)) else None for spot in row] for row in grid
    ]
    rows = range(1, len(grid))
    for column, head in enumerate(grid[0]):
        said = {r: v for r in rows if (v := numbers[r][column]) is not None}
        others = [c for c in range(len(grid[0])) if c != column]
        if column_of(column, head.text).role != "change" or len(said) < 3:
            continue
        places = [[(r, a, r, b) for r in said] for a in others for b in others if a != b]
        bases = [r for r in rows if r < 3 or CONTROL.match(grid[r][0].text)]
        places += [[(base, a, r, a) for r in said] for a in others for base in bases]
        best, most = [], 0
        for place in places:
            for relative in (False, True):
                known = [
                    (r, x, y, said[r], relative)
                    for r0, a, r, b in place
                    if (x := numbers[r0][a]) is not None and (y := numbers[r][b]) is not None
                ]
                fits = [is_change(x, y, z, rel) for _, x, y, z, rel in known]
                if _most(fits) and sum(fits) > most:
                    best, most = known, sum(fits)
        for r, before, after, says, relative in best:
            yield Change(
                of=f"{grid[r][0].text} · {head.text}", before=before, after=after, says=says,
                relative=relative, line=grid[r][column].line,
            )  # fmt: skip


def _metrics(draft: _Draft) -> Iterator[Metric]:
    """Readings of a training: groups without signal, and counts since the start."""
    if draft.of("run") or not draft.of("step"):
        return
    key = draft.of("step")[0]
    numbers = [(row, whole(draft.text(row, key))) for row, _ in draft.rows()]
    steps = {row: step for row, step in numbers if step is not None}
    if sorted(set(steps.values())) != list(steps.values()):
        return
    for column in draft.columns:
        read = {row: figure(draft.text(row, column)) for row in steps}
        figures = [each for each in read.values() if each is not None]
        silent, running = SILENT.search(column.title), RUNNING.search(column.title)
        if len(figures) < 2 or len(figures) < len(steps) or not (silent or running):
            continue
        counts = tuple(f.count for f in figures if f.count is not None)
        totals = tuple(f.total for f in figures if f.total)
        values = tuple(f.value for f in figures if f.value is not None)
        if not silent and (counts or RATE.search(column.title)):
            continue
        draft.used.add(column.index)
        yield Metric(
            name=column.title,
            steps=tuple(steps.values()),
            values=values if len(values) == len(steps) else (),
            counts=counts if len(counts) == len(totals) == len(steps) else (),
            totals=totals if len(counts) == len(totals) == len(steps) else (),
            cumulative=not silent,
            meaning="groups without signal" if silent else "count",
            line=draft.grid[1][column.index].line,
        )


def _runs(
    draft: _Draft, entries: list[_Entry], averages: Sequence[Average]
) -> tuple[list[Run], list[Mention]]:
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
            scores = {entry.cell: (entry.value,)}
            mentions.append(
                Mention(of=entry.run, scores=scores, line=entry.line, place=f"{entry.line}")
            )
    runs = []
    for name, cells in by_run.items():
        found = [entry for cell in cells.values() for entry in cell]
        wanted = {cell for average in averages if average.run == name for cell in average.of}
        words = _words(draft, found, by_run)
        fields = _fields(cells) | words | {"not_run": tuple(sorted(wanted - cells.keys()))}
        runs.append(Run.model_validate(fields | {"name": name}))
    return runs, mentions


def _words(draft: _Draft, entries: list[_Entry], runs: Mapping[str, object]) -> dict[str, object]:
    """The settings of a run, its control and the table's verdict on it or on each of its cells."""
    row, line = entries[0].row, draft.grid[entries[0].row][0].line
    settings = {c.rest: draft.text(row, c) for c in draft.of("setting")}
    found: dict[str, object] = {
        "settings": {k: v for k, v in settings.items() if not MISSING.fullmatch(v)},
        "line": line,
        "lines": {entry.cell: entry.line for entry in reversed(entries)},
    }
    for column in draft.of("control"):
        name = draft.text(row, column)
        if name in runs:
            found["control"] = name
        elif name:
            draft.leave("row", draft.names[row - 1], line, "unknown")
    for column in draft.of("says"):
        said = {e.cell: v for e in entries if (v := draft.text(e.row, column).lower()) in VERDICTS}
        if said:
            found |= {"says_of": said} if draft.of("benchmark") else {"says": said.popitem()[1]}
    return found


VERDICTS = get_args(Verdict)


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
