"""ms-swift agent rows: roles `tool_call` and `tool_response` (or `tool`), tools as JSON text.

Consecutive `tool_call` messages, and assistant text right before them, are one assistant turn, as
ms-swift renders them. `loss: false` on the messages of a turn keeps it from being trained on, and
so does a `loss_scale` of 0; other weights are refused, as no stage weighs messages. ms-swift has no
place for call ids, keeps reasoning as `<think>` text, and forgets `loss` where it puts calls
together.
"""

import json
from dataclasses import replace
from typing import Any

from assay.data.conversation import (
    check_order,
    message_loss,
    message_role,
    parse_call,
    parse_message,
)
from assay.data.formats.hermes_rows import CALLS, ROLES
from assay.data.formats.kept import BESIDE, Written, chat_row, shared_columns
from assay.data.loaded import Record
from assay.data.renderings.hermes import think_text
from assay.data.row import Message, Row
from assay.data.tools import dump_tools

COLUMNS = ("messages", "tools")

CALL_IDS = "ids of tool calls"
REASONING = "reasoning kept as <think> text"
MERGED = "assistant messages that become one with the next"
LOSS = "loss: false of messages with calls, which Assay reads and ms-swift forgets"


def parse(record: Record) -> Row:
    """A row of this format. Raises DataError."""
    messages: list[Message] = []
    for index, value in enumerate(record.need("messages", list)):
        _add(record, messages, value, f"messages[{index}]")
    ordered = check_order(record, tuple(messages), "messages")
    return chat_row(record, ordered, *COLUMNS)


def _add(record: Record, messages: list[Message], value: Any, path: str) -> None:
    message = record.typed(path, value, dict)
    role = ROLES[message_role(record, message, path, tuple(ROLES))]
    if role == CALLS:
        call = parse_call(record, message.get("content"), f"{path}.content")
        loss = message_loss(record, message, path, "assistant")
        if not (messages and messages[-1].role == "assistant"):
            messages.append(Message("assistant", "", (call,), loss=loss))
        elif messages[-1].loss != loss:
            fix = "give all messages of the turn the same loss"
            raise record.error(f"{path}.loss", "differs from the loss of the same turn", fix)
        else:
            messages[-1] = replace(messages[-1], tool_calls=(*messages[-1].tool_calls, call))
    else:
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
        if calls and not message.loss:
            losses.append(LOSS)
    value = shared_columns(row, *COLUMNS, *BESIDE) | {"messages": messages}
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
    content += [
        {"role": "tool_call", "content": json.dumps(call, ensure_ascii=False, allow_nan=False)}
        for call in calls
    ]
    return content if message.loss else [{**value, "loss": False} for value in content]


def _starts_with_call(message: Message) -> bool:
    return bool(message.tool_calls) and not (message.content or message.reasoning)
