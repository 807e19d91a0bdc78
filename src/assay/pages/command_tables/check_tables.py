"""Tables of what `assay check` measured: rows, tokens, cost and the rest.

Makes blocks of the numbers that the checks return by name. Judges none of them.
"""

from collections.abc import Mapping, Sequence

from assay.pages.page import Block, Column, Line, Mark, Row, Table, Text
from assay.pages.words import flat

Numbers = Mapping[str, Mapping[str, float]]
"""Table of the experiment -> what was measured, with its unit -> value."""
KEPT = {"train_rows": "to train on", "dev_rows": "dev", "rows_in_source": "in the source"}
MINUTE, GIGABYTE = 60, 1000


def check_tables(numbers: Numbers) -> list[Block]:
    """Every number that was measured, by the table of the experiment that it belongs to."""
    rows: list[Row] = []
    for place, values in numbers.items():
        for name, value in values.items():
            what, colon, about = name.partition(": ")
            rows.append([place, what.replace("_", " ") + colon + about, _cell(value)])
    columns = ["", "what", Column("value", right=True)]
    return [Table(columns, rows, "Checks")] if rows else []


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


def _cell(value: float | None) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else f"{value:,.4g}" if value % 1 else f"{value:,.0f}"
