"""Tables of what `assay check` measured: rows, tokens, cost and the rest.

Makes blocks of the numbers that the checks return by name. Judges none of them.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from assay.pages.drawn import histogram_line
from assay.pages.page import Block, Column, Line, Mark, Row, Table, Text
from assay.pages.words import flat

if TYPE_CHECKING:  # checks load torch
    from assay.lab.check.subject import Histogram

Numbers = Mapping[str, Mapping[str, float]]
"""Table of the experiment -> what was measured, with its unit -> value."""
ROWS = {"rows_in_source": "in the source", "train_rows": "train", "dev_rows": "dev"}
KEPT = {"train_rows": "to train on", "dev_rows": "dev", "rows_in_source": "in the source"}
DROPPED = "dropped: "
TOKENS = ("conversation_tokens", "prompt_tokens", "answer_tokens")
SPREAD = {"mean": ("mean",), "median": ("median", "50"), "95%": ("95",), "largest": ("largest",)}
"""Column -> how the checks name it."""
MINUTE, GIGABYTE = 60, 1000


def check_tables(numbers: Numbers, histograms: "Sequence[Histogram]") -> list[Block]:
    """The tables that have at least one row, in the order in which a reader decides."""
    drawn = {(one.place, one.name): one for one in histograms}
    found = [row_table(numbers), token_table(numbers, drawn), cost_table(numbers), rest(numbers)]
    return [table for table in found if table.rows]


MOST_TABLES = 6
"""Tables of an experiment that the short form has a line for."""


def check_lines(numbers: Numbers) -> list[str]:
    """The same in a line for each data set, stage and evaluation: rows, time and memory."""
    lines = [f"{place}: {said}" for place, values in numbers.items() if (said := _said(values))]
    if len(lines) <= MOST_TABLES:
        return lines
    return [*lines[:MOST_TABLES], f"and {len(lines) - MOST_TABLES} more"]


def _said(values: Mapping[str, float]) -> str:
    """The rows, time and memory among the numbers of one table; "" if it has none of them."""
    kept = [f"{_cell(values[name])} {word}" for name, word in KEPT.items() if values.get(name)]
    parts = [f"rows: {', '.join(kept)}"] if kept else []
    if "seconds_low" in values and "seconds_high" in values:
        low, high = (values[f"seconds_{end}"] for end in ("low", "high"))
        minutes = f"{low / MINUTE:.0f} to {high / MINUTE:.0f} minutes"
        parts.append(minutes if high >= 2 * MINUTE else f"{low:.0f} to {high:.0f} seconds")
    if "memory_mb" in values:
        parts.append(f"{values['memory_mb'] / GIGABYTE:.1f} GB of memory")
    if "checkpoints_mb" in values:
        parts.append(f"{values['checkpoints_mb'] / GIGABYTE:.1f} GB on the disk")
    return "; ".join(parts)


MOST_NOTES = 4


def note_lines(notes: Sequence[str]) -> list[Block]:
    """The first notes, each cut at the terminal's edge, and how many there are beside."""
    shown = list(notes) if len(notes) <= MOST_NOTES else list(notes[: MOST_NOTES - 1])
    lines: list[Line] = [(Mark("note"), f": {flat(each)}") for each in shown]
    rest = len(notes) - len(shown)
    lines += [Mark(f"and {rest} more notes", "soft")] if rest else []
    return [Text(line, fit="cut") for line in lines]


def row_table(numbers: Numbers) -> Table:
    """Data sets with their rows and, below each, the rows left out by reason."""
    rows: list[Row] = []
    for place, values in numbers.items():
        if not any(name in values for name in ROWS):
            continue
        dropped = {n.removeprefix(DROPPED): v for n, v in values.items() if n.startswith(DROPPED)}
        kept = (_cell(values.get(name)) for name in ROWS)
        rows.append([place, *kept, _cell(sum(dropped.values()))])
        for reason, count in dropped.items():
            rows.append([Mark(f"  {reason}", "soft"), "", "", "", Mark(_cell(count), "soft")])
    return _table("Rows", rows, "", *ROWS.values(), "left out")


def token_table(numbers: Numbers, drawn: "Mapping[tuple[str, str], Histogram]") -> Table:
    """Lengths of conversations, prompts and answers; a curve where their counts are known."""
    rows: list[Row] = []
    for place, values in numbers.items():
        for kind in TOKENS:
            cells = [_first(values, kind, names) for names in SPREAD.values()]
            if any(cells):
                one = drawn.get((place, kind))
                curve = histogram_line(one.counts, one.edges) if one else ""
                rows.append([place, kind.removesuffix("_tokens") + "s", *cells, curve])
    return _table("Tokens", rows, "", "of", *SPREAD, "")


def cost_table(numbers: Numbers) -> Table:
    """Memory, time and disk that stages and evaluations take."""
    rows: list[Row] = []
    for place, values in numbers.items():
        low, high = values.get("seconds_low"), values.get("seconds_high")
        minutes = (
            "" if low is None or high is None else f"{low / MINUTE:.1f} to {high / MINUTE:.1f}"
        )
        sizes = [values.get(name) for name in ("memory_mb", "checkpoints_mb", "free_mb")]
        cells = [minutes, *("" if size is None else f"{size / GIGABYTE:.1f}" for size in sizes)]
        rows += [[place, *cells]] if any(cells) else []
    return _table("Cost", rows, "", "minutes", "memory, GB", "disk, GB", "free, GB")


def rest(numbers: Numbers) -> Table:
    """Every other number, one a row."""
    rows: list[Row] = []
    for place, values in numbers.items():
        for name, value in values.items():
            if not _shown_above(name):
                what, colon, about = name.partition(": ")
                rows.append([place, what.replace("_", " ") + colon + about, _cell(value)])
    return _table("Checks", rows, "", "what", "value")


def _shown_above(name: str) -> bool:
    costs = {"seconds_low", "seconds_high", "memory_mb", "checkpoints_mb", "free_mb"}
    return name in costs or name in ROWS or name.startswith((DROPPED, *TOKENS))


def _first(values: Mapping[str, float], kind: str, names: Sequence[str]) -> str:
    found = (values[f"{kind}_{name}"] for name in names if f"{kind}_{name}" in values)
    return _cell(next(found, None))


def _cell(value: float | None) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else f"{value:,.4g}" if value % 1 else f"{value:,.0f}"


def _table(title: str, rows: Sequence[Row], *heads: str) -> Table:
    names = ("of", "what", "")
    columns = [Column(head, right=n > 0 and head not in names) for n, head in enumerate(heads)]
    return Table(columns, rows, title)
