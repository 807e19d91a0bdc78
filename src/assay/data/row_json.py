"""Turns rows, completions and rewards into JSON values and back: for workers and journals.

What is read equals what was written, images by their bytes included. Data files have formats of
their own (`data.formats`).
"""

import base64
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from assay.data.episode import Completion, Reward
from assay.data.row import ImagePart, Message, Part, Row, TextPart, ToolCall

Values = Mapping[str, Any]


def row_values(row: Row) -> dict[str, Any]:
    """A row as JSON values."""
    values = {
        "id": row.id,
        "messages": [message_values(message) for message in row.messages],
        "tools": [dict(tool) for tool in row.tools],
        "gold": row.gold,
        "conversation": row.conversation,
        "origin": row.origin,
        "extra": dict(row.extra),
    }
    more = {"template_options": dict(row.template_options), "columns": dict(row.columns)}
    return values | {name: value for name, value in more.items() if value}


def row_of(values: Values) -> Row:
    """The row that `row_values` wrote."""
    messages = tuple(message_of(each) for each in values["messages"])
    return Row(**{**values, "messages": messages, "tools": tuple(values["tools"])})


def completion_values(completion: Completion) -> dict[str, Any]:
    """A completion as JSON values."""
    return {
        "text": completion.text,
        "tokens": list(completion.tokens),
        "ended": completion.ended,
        "messages": [message_values(message) for message in completion.messages],
        "id": completion.id,
    }


def completion_of(values: Values) -> Completion:
    """The completion that `completion_values` wrote."""
    messages = tuple(message_of(each) for each in values["messages"])
    tokens = tuple(values["tokens"])
    return Completion(**{**values, "tokens": tokens, "messages": messages})


def reward_values(reward: Reward) -> dict[str, Any]:
    """A reward as JSON values."""
    return {**asdict(reward), "parts": dict(reward.parts), "facts": dict(reward.facts)}


def reward_of(values: Values) -> Reward:
    """The reward that `reward_values` wrote. Raises TypeError for other keys."""
    return Reward(**values)


def message_values(message: Message) -> dict[str, Any]:
    """A message as JSON values."""
    values = asdict(message) | {
        "tool_calls": [asdict(call) for call in message.tool_calls],
        "parts": [_part_values(part) for part in message.parts],
    }
    return values if message.name else {k: v for k, v in values.items() if k != "name"}


def message_of(values: Values) -> Message:
    """The message that `message_values` wrote."""
    calls = tuple(ToolCall(**call) for call in values["tool_calls"])
    parts = tuple(_part_of(part) for part in values["parts"])
    return Message(**{**values, "tool_calls": calls, "parts": parts})


def _part_values(part: Part) -> dict[str, Any]:
    values = asdict(part)
    if isinstance(part, ImagePart):
        data = part.data if part.data is None else base64.b64encode(part.data).decode("ascii")
        file = part.file if part.file is None else str(part.file)
        values |= {"data": data, "file": file, "origin": list(part.origin)}
    return values


def _part_of(values: Values) -> Part:
    if "text" in values:
        return TextPart(values["text"])
    made = ImagePart(**{**values, "origin": tuple(values["origin"])})
    data = None if values["data"] is None else base64.b64decode(values["data"])
    return replace(made, data=data, file=None if made.file is None else Path(made.file))
