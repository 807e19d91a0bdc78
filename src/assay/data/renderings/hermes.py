"""Writes and parses tools, calls and results as Hermes text, for templates that know no tools.

Written: a system message of INSTRUCTION, the conversation's own system text and `# Tools`, with
empty lines between, then one JSON object a line with name, description and parameters. A call is
`<tool_call>`, a line of JSON with name and arguments, `</tool_call>`, each on its own line;
consecutive results are one user turn of `<tool_response>` blocks; reasoning is a `<think>` block
before the text.

Parsed: every spelling in use. Tools stand between `<tools>` tags or below a heading `# Tools`, as
one JSON object a line or one JSON list; text from that heading on is dropped, because the renderer
writes it again. Also removes the reasoning of assistant messages, with a remark: a thinking model
trained on such rows learns to answer at once.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from assay.data.conversation import check_order, loaded_value, parse_call
from assay.data.json_files import load_values
from assay.data.loaded import Item, Record, Remark
from assay.data.row import Message, Row, ToolCall
from assay.data.tools import function_of, parse_tools

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
            results = (f"<tool_response>\n{message.content}\n</tool_response>" for message in run)
            plain.append(Message("user", "\n".join(results)))
            continue
        for message in run:
            plain_text = {"content": assistant_text(message), "tool_calls": (), "reasoning": ""}
            plain.append(replace(message, **plain_text) if message.role == "assistant" else message)
    if not tools:
        return tuple(plain)
    own = [plain.pop(0).content] if plain and plain[0].role == "system" else []
    return (Message("system", tools_text("\n\n".join([INSTRUCTION, *own]), tools)), *plain)


def tools_text(system: str, tools: Sequence[Mapping[str, Any]]) -> str:
    """The system text followed by the tools section."""
    lines = []
    for function in map(function_of, tools):
        known = (key for key in ("name", "description", "parameters") if key in function)
        lines.append(json.dumps({key: function[key] for key in known}, ensure_ascii=False))
    return "\n".join([system, "", "# Tools", *lines])


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


Tools = tuple[dict[str, Any], ...]
Said = tuple[str, str, bool]
"""Role (system, user, assistant or tool), text, and whether it is trained on."""

THINK, THINK_END = "<think>", "</think>"
CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
RESPONSE = re.compile(r"<tool_response>(.*?)</tool_response>", re.DOTALL)
TOOLS = re.compile(r"<tools>(.*?)</tools>", re.DOTALL)
HEADING = re.compile(r"(?:^|\n)# Tools\n")
CHATML = re.compile(r"<\|im_start\|>(\w+)\n(.*?)(?:<\|im_end\|>|\Z)", re.DOTALL)


def parse_text_messages(
    record: Record, turns: Iterable[Said], tools: Tools, path: str
) -> tuple[tuple[Message, ...], Tools]:
    """Messages with calls and results of their own, and the tools; `tools` are those of a column.

    Raises DataError for tools or calls that are not JSON, and for an order no chat could have.
    """
    messages: list[Message] = []
    for index, (role, text, loss) in enumerate(turns):
        where = f"{path}[{index}]"
        if role == "system":
            own, described = split_tools(record, text, where)
            tools = tools or described
            own = own.removeprefix(INSTRUCTION).lstrip("\n") if described else own
            messages += [Message("system", own)] if own else []
        elif role == "assistant":
            messages.append(assistant_message(record, text, where, loss))
        else:
            messages += _heard(role, text)
    return check_order(record, tuple(messages), path), tools


def split_thinking(text: str) -> tuple[str, str]:
    """Reasoning and the rest; reasoning may lack its opening tag, which prompts prefill."""
    head, end, rest = text.partition(THINK_END)
    opened = head.lstrip().startswith(THINK)
    if not end or (THINK in head and not opened):
        return "", text
    return head.lstrip().removeprefix(THINK).strip("\n"), rest.lstrip("\n")


def assistant_message(record: Record, text: str, path: str, loss: bool = True) -> Message:
    """What an assistant's text says. Raises DataError for a block that is no call."""
    reasoning, answer = split_thinking(text)
    calls = tuple(
        parse_call(record, block.strip(), f"{path}.tool_call[{index}]")
        for index, block in enumerate(CALL.findall(answer))
    )
    rest = CALL.sub("", answer)
    if "<tool_call>" in rest:
        raise record.error(path, "a <tool_call> is not closed", "close it with </tool_call>")
    content = "\n".join(filter(None, map(str.strip, CALL.split(answer)[::2]))) if calls else answer
    return Message("assistant", content, calls, reasoning=reasoning, loss=loss)


def split_tools(record: Record, text: str, path: str) -> tuple[str, Tools]:
    """The system text without its tools, and the tools. Raises DataError."""
    blocks = [block for block in TOOLS.finditer(text) if block[1].strip()]
    heading = HEADING.search(text)
    if blocks:
        body = max(blocks, key=lambda block: len(block[1]))
        own = text[: heading.start()] if heading else text[: body.start()] + text[body.end() :]
        return own.strip(), parse_tools(record, _objects(record, body[1], path), f"{path}.tools")
    if heading and text[heading.end() :].lstrip().startswith("{"):
        listed = _objects(record, text[heading.end() :], path)
        return text[: heading.start()].strip(), parse_tools(record, listed, f"{path}.tools")
    return text, ()


def split_chatml(record: Record, text: str, path: str) -> list[tuple[str, str]]:
    """Role and text of each `<|im_start|>` block; an empty last one, the generation prompt, is
    left out. Raises DataError where there is none.
    """
    turns = [(role, body.strip("\n")) for role, body in CHATML.findall(text)]
    if turns and turns[-1] == ("assistant", ""):
        turns.pop()
    if not turns:
        raise record.error(path, "holds no <|im_start|> block")
    return turns


def _heard(role: str, text: str) -> Iterator[Message]:
    """Tool results, and a user's text beside them."""
    results = RESPONSE.findall(text)
    for result in results:
        yield Message("tool", result.strip("\n"))
    rest = RESPONSE.sub("", text).strip() if results else text
    if rest or not results:
        yield Message("tool" if role == "tool" else "user", rest)


def _objects(record: Record, text: str, path: str) -> list[Any]:
    """One list or several objects in JSON, or a list or one object a line as Python writes them."""
    text = text.strip()
    try:
        values = load_values(text)
    except ValueError:
        lines = [text] if text.startswith("[") else filter(str.strip, text.splitlines())
        values = [loaded_value(record, line, f"{path}.tools") for line in lines]
    return values[0] if text.startswith("[") else values


LEFT_OUT = "the reasoning of its messages was left out"


def without_reasoning(items: Iterable[Item]) -> Iterator[Item]:
    """The items with rows whose assistant messages begin with what they say or call."""

    def change(message: Message) -> Message:
        return replace(message, reasoning="", content=split_thinking(message.content)[1])

    return _answers_changed(items, change, LEFT_OUT)


def _answers_changed(
    items: Iterable[Item], change: Callable[[Message], Message], words: str
) -> Iterator[Item]:
    """The items with rows whose assistant messages are changed, and a remark where one was."""
    for item in items:
        if not isinstance(item, Row):
            yield item
            continue
        messages = tuple(change(m) if m.role == "assistant" else m for m in item.messages)
        yield replace(item, messages=messages)
        if messages != item.messages:
            yield Remark(item.id, words)


CUT_OFF = "the end token that its messages spell was cut off"


def without_end(items: Iterable[Item], end: str) -> Iterator[Item]:
    """The items with rows whose assistant messages do not end with the text `end`."""

    def change(message: Message) -> Message:
        text = message.content.rstrip()
        return replace(message, content=text.removesuffix(end)) if text.endswith(end) else message

    return _answers_changed(items, change, CUT_OFF)
