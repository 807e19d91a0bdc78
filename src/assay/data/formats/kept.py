"""Keeps a whole row as JSON text beside the columns of another format, and restores it from there.

Other programs read the columns; Assay reads the text, as long as the columns still agree with it.
Also holds what all writers share: the row they wrote with what it lost, and common columns.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.data.conversation import loaded_value, parse_message, parse_messages, stored_messages
from assay.data.files import canonical_json, content_id
from assay.data.json_files import load_json
from assay.data.loaded import DataError, Record
from assay.data.renderings.hermes import assistant_text
from assay.data.row import Message, Row
from assay.data.tools import parse_tools

KEPT = "assay"
"""The column of JSON lines that holds a row whole."""


def kept_text(row: Row, written: Any = None) -> str:
    """Everything of a row, as JSON text; `written` is what other columns say as plain text."""
    kept = {
        "id": row.id,
        "messages": stored_messages(row.messages),
        "tools": list(row.tools),
        "gold": row.gold,
        "conversation": row.conversation,
        "extra": dict(row.extra),
    }
    if row.template_options:
        kept["template_options"] = dict(row.template_options)
    if written is not None:
        kept["written"] = content_id(written)
    return json.dumps(kept, ensure_ascii=False, allow_nan=False)


def kept_row(record: Record, field: str, text: Any, written: Mapping[str, Any]) -> tuple[Row, bool]:
    """The row that `kept_text` wrote into the column `field`, and whether the columns `written` are
    its text. Raises DataError, also where they were its text and were changed since.
    """
    try:
        value = record.typed(field, load_json(record.typed(field, text, str)), dict)
    except ValueError as error:
        raise record.error(field, f"is not JSON: {error}", "remove it") from error
    kept = Record(record.file, record.line, value)
    as_text = value.get("written")
    if as_text is not None and as_text != content_id(written):
        raise record.error(
            ", ".join(written), f"differs from what {field} keeps", f"remove {field}"
        )
    row = Row(
        id=kept.need("id", str),
        messages=parse_messages(kept, kept.need("messages", list), f"{field}.messages"),
        tools=parse_tools(kept, kept.need("tools", list), f"{field}.tools"),
        gold=value.get("gold"),
        conversation=kept.need("conversation", str),
        origin=record.origin,
        extra=kept.need("extra", dict),
        template_options=kept.maybe("template_options", dict) or {},
    )
    return row, as_text is not None


def gold_text(row: Row) -> str:
    """The gold as text; where there is none, the text of the last assistant message."""
    if row.gold is None:
        return "".join(assistant_text(message) for message in row.messages[len(row.prompt) :])
    return row.gold if isinstance(row.gold, str) else canonical_json(row.gold)


CALLS = "function_call"
ROLES = {
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "gpt", "bot"), "assistant"),
    **dict.fromkeys(("tool", "function", "function_response", "tool_response"), "tool"),
    **dict.fromkeys(("observation", "observations"), "tool"),
    **dict.fromkeys(("tool_call", CALLS), CALLS),
}
"""Roles of ShareGPT, LLaMA-Factory, ms-swift and OpenAI -> those of messages, or CALLS."""
OPTIONS = "chat_template_kwargs"
"""The column of what a row gives the chat template, in TRL's name."""
ROW_FIELDS = ("id", "conversation", "gold", OPTIONS)
"""The columns, beside those of the format itself, in which JSON lines keep a row whole."""
BESIDE = ("system", "system_prompt", "functions")
"""Columns of conversations that LLaMA-Factory, ms-swift and OpenAI read as a part of them."""
MEDIA = ("images", "videos", "audios")
MASKS = ("loss_mask", "loss_masks", "loss_weights", "assistant_masks", "completion_mask")
MASKS += ("loss_weight", "loss_scale", "sample_weight")
"""Columns by which other tools choose the tokens or messages that are trained on."""


@dataclass(frozen=True, slots=True)
class KeptRecord:
    """A record to write and, in words, what reading it back will not give."""

    value: dict[str, Any]
    losses: tuple[str, ...] = ()


def build_row(
    record: Record, messages: tuple[Message, ...], tools: tuple[dict[str, Any], ...], *own: str
) -> Row:
    """A row from the columns that JSON lines formats share; `own` are the format's own columns.

    Raises DataError for media and masks in columns of their own too, which nothing here carries.
    """
    for column in (*MEDIA, *MASKS):
        if record.value.get(column) and column in MEDIA:
            fix = "write images as parts of the messages, for format 'messages'"
            raise record.error(column, "are not carried from a column of their own", fix)
        if record.value.get(column) is not None and column in MASKS:
            fix = "write loss: true or false into the messages"
            raise record.error(column, "says what is trained on, and is not read", fix)
    for column in ("image", "video", "audio"):
        record.value.get(column)  # Raises for bytes: a question about a picture is none without it.
    options = loaded_value(record, record.value.get(OPTIONS) or {}, OPTIONS)
    return Row(
        id=row_id(record),
        messages=messages,
        tools=tools,
        gold=record.value.get("gold"),
        conversation=str(record.maybe("conversation", str, int) or ""),
        origin=record.origin,
        extra=record.others(*own, *ROW_FIELDS),
        template_options=record.typed(OPTIONS, options, dict),
    )


def said_in(record: Record, field: str, role: Any) -> tuple[Message, ...]:
    """The messages of a column that must be there; text is one of `role`. Raises DataError."""
    value = record.need(field, str, list)
    if isinstance(value, str):
        return (Message(role, value),)
    return tuple(parse_message(record, each, f"{field}[{at}]") for at, each in enumerate(value))


def row_id(record: Record) -> str:
    """The id that a record gives its row, else a hash of the record. Raises DataError."""
    own = record.maybe("id", str, int)
    return str(content_id(record.value) if own is None else own)


def system_beside(record: Record, own: str | None) -> str:
    """The text of a column `system` or `system_prompt` that stands before the messages; "" where
    they hold a system message, which is `own`. Raises DataError where they differ.
    """
    system = own
    for column in ("system", "system_prompt"):
        text = record.maybe(column, str)
        if text and system not in (None, text):
            raise record.error(column, "differs from the other system text", "keep one of them")
        system = text or system
    return "" if own is not None else system or ""


def tools_beside(record: Record) -> tuple[dict[str, Any], ...]:
    """The tools of a column `tools`, or `functions` in OpenAI's older name. Raises DataError."""
    tools, functions = (
        parse_tools(record, record.value.get(name), name) for name in ("tools", "functions")
    )
    if tools and functions:
        raise record.error("functions", "stands beside tools", "keep tools, which took its place")
    return tools or functions


def chat_row(record: Record, messages: tuple[Message, ...], *own: str) -> Row:
    """`build_row` of a conversation, with the columns that other tools read as a part of it."""
    first = messages[0]
    system = system_beside(record, first.content if first.role == "system" else None)
    if system:
        messages = (Message("system", system), *messages)
    return build_row(record, messages, tools_beside(record), *own, *BESIDE)


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
    if row.template_options:
        value[OPTIONS] = dict(row.template_options)
    return value | dict(row.extra)
