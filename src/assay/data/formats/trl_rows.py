"""TRL's columns: `prompt` and, for SFT, `completion`; text or lists of messages.

Text becomes a user message and an assistant message, so it is rendered as a chat, where TRL would
train on the bare text. As in TRL, nothing of a prompt is trained on. Written is what both trainers
take from one file: SFT reads prompt, completion and `tools`; GRPO reads the prompt and hands every
other column, `gold` and `id` among them, to its reward functions. `datasets` gives a column one
type, so tools, gold and nested fields are text there, and the row itself is JSON text in `assay`,
from which the reader restores it whole (TRL f2cd5771, `docs/source/dataset_formats.md`).
"""

from typing import Any

from assay.data.conversation import check_order, parse_message, stored_messages, untrained
from assay.data.formats.kept import (
    Written,
    build_row,
    gold_text,
    kept_row,
    kept_text,
    shared_columns,
)
from assay.data.hashing import canonical_json
from assay.data.loaded import Record
from assay.data.row import Message, Row
from assay.data.tools import dump_tools, openai_tool, parse_tools

KEPT = "assay"
COLUMNS = ("prompt", "completion", "tools", KEPT)
MISREAD = ("messages", "label", "labels", "chosen", "rejected")
"""Columns by which TRL, or our own reader, would take the row for another kind."""


def parse(record: Record) -> Row:
    """A row of this format. Raises DataError."""
    if record.value.get(KEPT) is not None:
        return _restored(record)
    messages = _side(record, "prompt", record.need("prompt", str, list), "user")
    completion = record.maybe("completion", str, list)
    if completion is not None:
        messages = untrained(messages)
        messages += _side(record, "completion", completion, "assistant")
    ordered = check_order(record, messages, "prompt + completion")
    return build_row(record, ordered, parse_tools(record, record.value.get("tools")), *COLUMNS)


def _restored(record: Record) -> Row:
    """The row that a column keeps. Raises DataError if the others say something else by now."""
    row = kept_row(record, KEPT, record.value[KEPT])
    for field, value in dump(row).value.items():
        if field != KEPT and record.value.get(field) != value:
            raise record.error(field, f"differs from what {KEPT} keeps", f"remove {KEPT}")
    return row


def _side(record: Record, field: str, value: Any, role: Any) -> tuple[Message, ...]:
    if isinstance(value, str):
        return (Message(role, value),)
    return tuple(
        parse_message(record, message, f"{field}[{index}]") for index, message in enumerate(value)
    )


def dump(row: Row) -> Written:
    """The conversational record of a row: its last assistant message is the completion.

    Columns that TRL looks up by name are there in every row, null where there is nothing to say.
    Raises DataError where a field has the name of such a column.
    """
    value = shared_columns(row, *COLUMNS, *MISREAD)
    value = {name: _plain(field) for name, field in value.items()}
    target = row.messages[len(row.prompt) :]
    value["gold"] = gold_text(row) if target or row.gold is not None else None
    value["tools"] = dump_tools(map(openai_tool, row.tools)) if row.tools else None
    value["prompt"] = stored_messages(row.prompt)
    if target:
        value["completion"] = stored_messages(target)
    return Written({**value, KEPT: kept_text(row)})


def _plain(field: Any) -> Any:
    """A value of one type in every row: lists and tables as JSON text."""
    return canonical_json(field) if isinstance(field, dict | list) else field
