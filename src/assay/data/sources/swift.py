"""ms-swift agent rows: roles `tool_call` and `tool_response` (or `tool`), tools as JSON text.

Consecutive `tool_call` messages, and assistant text right before them, are one assistant turn, as
ms-swift renders them. Per-message `loss: false` is refused rather than forgotten: the loss is set
on the stage. ms-swift has no place for call ids, and keeps reasoning as `<think>` text.
"""

import json
from dataclasses import replace
from typing import Any

from assay.data.conversation import check_order, message_role, parse_call, parse_message
from assay.data.record import Record
from assay.data.renderings.hermes import think_text
from assay.data.row import Message, Row
from assay.data.tools import dump_tools, parse_tools
from assay.data.written import Written, build_row, shared_columns

COLUMNS = ("messages", "tools")
ROLES = ("system", "user", "assistant", "tool_call", "tool_response", "tool")

CALL_IDS = "ids of tool calls"
REASONING = "reasoning kept as <think> text"
MERGED = "assistant messages that become one with the next"


def parse(record: Record) -> Row:
    """A row of this format. Raises DataError."""
    messages: list[Message] = []
    for index, value in enumerate(record.need("messages", list)):
        _add(record, messages, value, f"messages[{index}]")
    ordered = check_order(record, tuple(messages), "messages")
    return build_row(record, ordered, parse_tools(record, record.value.get("tools")), *COLUMNS)


def _add(record: Record, messages: list[Message], value: Any, path: str) -> None:
    message = record.typed(path, value, dict)
    role = message_role(record, message, path, ROLES)
    if message.get("loss") is False:
        fix = "choose loss = 'all' or 'last' on the stage"
        raise record.error(f"{path}.loss", "per-message loss is not supported", fix)
    if role == "tool_call":
        call = parse_call(record, message.get("content"), f"{path}.content")
        if messages and messages[-1].role == "assistant":
            messages[-1] = replace(messages[-1], tool_calls=(*messages[-1].tool_calls, call))
        else:
            messages.append(Message("assistant", "", (call,)))
    else:
        role = "tool" if role == "tool_response" else role
        messages.append(parse_message(record, message | {"role": role}, path))


def dump(row: Row) -> Written:
    """The record of a row, and what ms-swift's roles cannot say."""
    losses = []
    messages: list[dict[str, Any]] = []
    for message, following in zip(row.messages, (*row.messages[1:], None), strict=True):
        messages += _dump(message)
        calls = message.tool_calls
        if message.tool_call_id or any(call.id for call in calls):
            losses.append(CALL_IDS)
        if message.reasoning:
            losses.append(REASONING)
        if message.role == "assistant" and following is not None and _starts_with_call(following):
            losses.append(MERGED)
    value = shared_columns(row, *COLUMNS) | {"messages": messages}
    if row.tools:
        value["tools"] = dump_tools(row.tools)
    return Written(value, tuple(losses))


def _dump(message: Message) -> list[dict[str, Any]]:
    if message.role != "assistant":
        role = "tool_response" if message.role == "tool" else message.role
        return [{"role": role, "content": message.content}]
    text = think_text(message.reasoning) + message.content
    calls = [{"name": call.name, "arguments": dict(call.arguments)} for call in message.tool_calls]
    content = [{"role": "assistant", "content": text}] if text or not calls else []
    return content + [
        {"role": "tool_call", "content": json.dumps(call, ensure_ascii=False, allow_nan=False)}
        for call in calls
    ]


def _starts_with_call(message: Message) -> bool:
    return bool(message.tool_calls) and not (message.content or message.reasoning)
