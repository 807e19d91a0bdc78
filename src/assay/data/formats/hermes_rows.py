"""Hermes and Qwen text: plain messages in which tools, calls and results are tagged text.

`{"messages": [{"role", "content"}]}`, ShareGPT's `{"conversations": [{"from", "value"}]}`, or one
`{"text": "<|im_start|>..."}`; `tools` may be a column of its own. How the text is taken apart, and
what is left out, is said in `hermes_text`.
"""

from collections.abc import Iterator
from typing import Any

from assay.data.conversation import message_loss, message_role
from assay.data.formats.kept import build_row
from assay.data.raw_record import Record
from assay.data.renderings.hermes import Said, parse_text_messages, split_chatml
from assay.data.row import Row
from assay.data.tools import parse_tools

COLUMNS = ("messages", "conversations", "text", "tools")
ROLES = {
    "system": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "tool": "tool",
    "function_response": "tool",
}


def parse(record: Record) -> Row:
    """A row of this format. Raises DataError."""
    tools = parse_tools(record, record.value.get("tools"))
    column = next((name for name in COLUMNS[:3] if record.value.get(name) is not None), "messages")
    messages, tools = parse_text_messages(record, _said(record, column), tools, column)
    return build_row(record, messages, tools, *COLUMNS)


def _said(record: Record, column: str) -> Iterator[Said]:
    if column == "text":
        for role, text in split_chatml(record, record.need("text", str), "text"):
            yield _role(record, {"role": role}, "text"), text, True
        return
    role_key, text_key = ("from", "value") if column == "conversations" else ("role", "content")
    for index, value in enumerate(record.need(column, list)):
        path = f"{column}[{index}]"
        message = record.typed(path, value, dict)
        role = _role(record, {"role": message.get(role_key)}, path)
        text = record.typed(f"{path}.{text_key}", message.get(text_key), str)
        yield role, text, message_loss(record, message, path)


def _role(record: Record, message: dict[str, Any], path: str) -> str:
    return ROLES[message_role(record, message, path, tuple(ROLES))]
