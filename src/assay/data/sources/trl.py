"""TRL's columns: `prompt` and, for SFT, `completion`; text or lists of messages.

Text becomes a user message and an assistant message, so it is rendered as a chat, where TRL would
train on the bare text. Writing gives the conversational form, with the last assistant message as
the completion, and keeps a row whole.
"""

from typing import Any

from assay.data.conversation import check_order, parse_message, stored_messages
from assay.data.record import Record
from assay.data.row import Message, Row
from assay.data.tools import parse_tools
from assay.data.written import Written, build_row, shared_columns

COLUMNS = ("prompt", "completion", "tools")


def parse(record: Record) -> Row:
    """A row of this format. Raises DataError."""
    messages = _side(record, "prompt", record.need("prompt", str, list), "user")
    completion = record.maybe("completion", str, list)
    if completion is not None:
        messages += _side(record, "completion", completion, "assistant")
    ordered = check_order(record, messages, "prompt + completion")
    return build_row(record, ordered, parse_tools(record, record.value.get("tools")), *COLUMNS)


def _side(record: Record, field: str, value: Any, role: Any) -> tuple[Message, ...]:
    if isinstance(value, str):
        return (Message(role, value),)
    return tuple(
        parse_message(record, message, f"{field}[{index}]") for index, message in enumerate(value)
    )


def dump(row: Row) -> Written:
    """The conversational record of a row: its last assistant message is the completion."""
    value = shared_columns(row, *COLUMNS) | {"prompt": stored_messages(row.prompt)}
    if target := row.messages[len(row.prompt) :]:
        value["completion"] = stored_messages(target)
    if row.tools:
        value["tools"] = list(row.tools)
    return Written(value)
