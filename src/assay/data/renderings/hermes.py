"""Hermes-style tool use as text: for models whose chat template knows nothing of tools.

Where there are tools, the system message is INSTRUCTION, the conversation's own system text if it
has any, `# Tools`, with empty lines between, and one JSON object a line with name, description and
parameters. A call is
`<tool_call>`, a line of JSON with name and arguments, `</tool_call>`, each on its own line.
Consecutive tool results become one user turn of `<tool_response>` blocks. Reasoning is a
`<think>` block before the text. What is left are plain messages, for any chat template.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from assay.data.row import Message, ToolCall
from assay.data.tools import function_of

INSTRUCTION = (
    "You can call functions. Reply with one JSON object in <tool_call></tool_call> tags: "
    '{"name": ..., "arguments": {...}}.'
)


def flatten(
    messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()
) -> tuple[Message, ...]:
    """The same conversation in plain messages: roles and content only."""
    plain: list[Message] = []
    for is_tool, run in groupby(messages, lambda message: message.role == "tool"):
        if is_tool:
            plain.append(Message("user", "\n".join(_response(message) for message in run)))
        else:
            plain += [_plain(message) for message in run]
    if not tools:
        return tuple(plain)
    own = [plain.pop(0).content] if plain and plain[0].role == "system" else []
    return (Message("system", tools_text("\n\n".join([INSTRUCTION, *own]), tools)), *plain)


def tools_text(system: str, tools: Sequence[Mapping[str, Any]]) -> str:
    """The system text followed by the tools section."""
    return "\n".join([system, "", "# Tools", *(_tool_line(tool) for tool in tools)])


def assistant_text(message: Message) -> str:
    """What the assistant writes to say `message`, without the end of the turn."""
    text = think_text(message.reasoning) + message.content
    calls = "\n".join(call_text(call) for call in message.tool_calls)
    return f"{text}\n{calls}" if text and calls else text + calls


def call_text(call: ToolCall) -> str:
    """One call in its tags."""
    value = {"name": call.name, "arguments": dict(call.arguments)}
    return f"<tool_call>\n{json.dumps(value, ensure_ascii=False)}\n</tool_call>"


def think_text(reasoning: str) -> str:
    """Reasoning in its tags with an empty line after it; nothing where there is none."""
    return f"<think>\n{reasoning}\n</think>\n\n" if reasoning else ""


def _plain(message: Message) -> Message:
    if message.role != "assistant":
        return message
    return replace(message, content=assistant_text(message), tool_calls=(), reasoning="")


def _response(message: Message) -> str:
    return f"<tool_response>\n{message.content}\n</tool_response>"


def _tool_line(tool: Mapping[str, Any]) -> str:
    function = function_of(tool)
    kept = {key: function[key] for key in ("name", "description", "parameters") if key in function}
    return json.dumps(kept, ensure_ascii=False)
