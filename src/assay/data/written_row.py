"""What a writer made of a row, with what it could not keep, and the columns formats share."""

from dataclasses import dataclass
from typing import Any

from assay.data.hashing import content_id
from assay.data.raw_record import DataError, Record
from assay.data.row import Message, Row

ROW_FIELDS = ("id", "conversation", "gold")
"""The columns, beside those of the format itself, in which JSON lines keep a row whole."""


@dataclass(frozen=True, slots=True)
class Written:
    """A record to write and, in words, what reading it back will not give."""

    value: dict[str, Any]
    losses: tuple[str, ...] = ()


def build_row(
    record: Record, messages: tuple[Message, ...], tools: tuple[dict[str, Any], ...], *own: str
) -> Row:
    """A row from the columns that JSON lines formats share; `own` are the format's own columns."""
    source = record.value.get("id")
    if source is None:
        source = content_id(record.value)
    return Row(
        id=str(record.typed("id", source, str, int)),
        messages=messages,
        tools=tools,
        gold=record.value.get("gold"),
        conversation=record.maybe("conversation", str) or "",
        origin=record.origin,
        extra=record.others(*own, *ROW_FIELDS),
    )


def shared_columns(row: Row, *own: str) -> dict[str, Any]:
    """The columns of `row` that are not the format's own. Raises DataError on a clash."""
    clash = sorted(set(row.extra) & {*own, *ROW_FIELDS})
    if clash:
        problem = f"row {row.id} has an extra field of this name, which is a column of the format"
        raise DataError(problem, field=clash[0], fix="rename the extra field")
    value: dict[str, Any] = {"id": row.id}
    if row.conversation:
        value["conversation"] = row.conversation
    if row.gold is not None:
        value["gold"] = row.gold
    return value | dict(row.extra)
