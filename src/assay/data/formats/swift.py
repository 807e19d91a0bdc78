"""ms-swift agent rows: roles `tool_call` and `tool_response` (or `tool`), tools as JSON text.

Consecutive `tool_call` messages, and assistant text right before them, are one assistant turn, as
ms-swift renders them. `loss: false` on the messages of a turn keeps it from being trained on, and
so does a `loss_scale` of 0; other weights are refused, as no stage weighs messages. ms-swift has no
place for call ids, keeps reasoning as `<think>` text, and forgets `loss` where it puts calls
together. Its templates are not the models' own: as the text of a rendering (`plain_text`) rows come
out as Assay trains them, with the row itself as JSON text in `assay`, from which the reader
restores it whole.
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
from assay.data.formats.kept import (
    BESIDE,
    KEPT,
    Written,
    chat_row,
    kept_row,
    kept_text,
    shared_columns,
)
from assay.data.formats.plain_text import BEYOND, PlainText, plain_messages
from assay.data.loaded import Record
from assay.data.renderings.hermes import think_text
from assay.data.row import Message, Row
from assay.data.tools import dump_tools

COLUMNS = ("messages", "tools", KEPT)

CALL_IDS = "ids of tool calls"
REASONING = "reasoning kept as <think> text"
MERGED = "assistant messages that become one with the next"
HEADING = (
    "Qwen's prompt of tools without a system text, which ms-swift begins with two line ends more"
)
EMPTY = "a hybrid model's earlier answers, to which ms-swift adds an empty thought"
OPENING = "a Thinking model's prompt, whose <think> ms-swift trains"
LOSS = "loss: false of messages with calls, which Assay reads and ms-swift forgets"


def parse(record: Record) -> Row:
    """A row of this format. Raises DataError."""
    if record.value.get(KEPT) is not None:
        written = {"messages": record.value.get("messages")}
        return kept_row(record, KEPT, record.value[KEPT], written)[0]
    messages: list[Message] = []
    for index, value in enumerate(record.need("messages", list)):
        path = f"messages[{index}]"
        message = record.typed(path, value, dict)
        role = ROLES[message_role(record, message, path, tuple(ROLES))]
        if role != CALLS:
            messages.append(parse_message(record, message | {"role": role}, path))
            continue
        call = parse_call(record, message.get("content"), f"{path}.content")
        loss = message_loss(record, message, path, "assistant")
        if not (messages and messages[-1].role == "assistant"):
            messages.append(Message("assistant", "", (call,), loss=loss))
        elif messages[-1].loss != loss:
            fix = "give all messages of the turn the same loss"
            raise record.error(f"{path}.loss", "differs from the loss of the same turn", fix)
        else:
            messages[-1] = replace(messages[-1], tool_calls=(*messages[-1].tool_calls, call))
    ordered = check_order(record, tuple(messages), "messages")
    return chat_row(record, ordered, *COLUMNS)


def dump(row: Row, text: PlainText | None = None) -> Written:
    """The record of a row, and what ms-swift's roles and templates cannot say.

    Raises RenderingError where `text` cannot write it.
    """
    if text is not None:
        shown = {"messages": plain_messages(text.conversation(row))}
        value = shared_columns(row, *COLUMNS)
        beyond = (BEYOND,) if text.tail and row.prompt != row.messages else ()
        return Written({**value, **shown, KEPT: kept_text(row, shown)}, beyond)
    losses = [HEADING] if row.tools and row.messages[0].role != "system" else []
    messages: list[dict[str, Any]] = []
    for message, following in zip(row.messages, (*row.messages[1:], None), strict=True):
        messages += _dump(message)
        calls = message.tool_calls
        if message.tool_call_id or any(call.id for call in calls):
            losses.append(CALL_IDS)
        if message.reasoning:
            losses.append(REASONING)
        if message.role == "assistant" and following is not None and following.tool_calls:
            losses += [] if following.content or following.reasoning else [MERGED]
        if calls and not message.loss:
            losses.append(LOSS)
        if message.role == "assistant" and message.loss:
            losses += [OPENING] if message.reasoning else []
            losses += [EMPTY] if following is not None and not message.reasoning else []
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
