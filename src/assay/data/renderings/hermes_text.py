"""Conversations whose tools, calls and results are Hermes or Qwen text, taken apart.

The other way round, with one spelling, is `renderings.hermes`; here every spelling in use is read.
A system text holds the tools between `<tools>` tags or below a heading `# Tools`, one JSON object a
line or one JSON list. What stands from that heading on is the renderer's to write again and is left
out; a system text without the heading keeps everything but the tools. An assistant's text holds a
think block and `<tool_call>` blocks; a user's holds `<tool_response>` blocks.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from assay.data.conversation import check_order, parse_call
from assay.data.jsonl import load_json
from assay.data.raw_record import Record
from assay.data.renderings.hermes import INSTRUCTION
from assay.data.row import Message
from assay.data.tools import parse_tools

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
    record: Record, said: Iterable[Said], tools: Tools, path: str
) -> tuple[tuple[Message, ...], Tools]:
    """Messages with calls and results of their own, and the tools; `tools` are those of a column.

    Raises DataError for tools or calls that are not JSON, and for an order no chat could have.
    """
    messages: list[Message] = []
    for index, (role, text, loss) in enumerate(said):
        where = f"{path}[{index}]"
        if role == "system":
            own, found = split_tools(record, text, where)
            tools = tools or found
            own = own.removeprefix(INSTRUCTION).lstrip("\n") if found else own
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
    reasoning, said = split_thinking(text)
    calls = tuple(
        parse_call(record, block.strip(), f"{path}.tool_call[{index}]")
        for index, block in enumerate(CALL.findall(said))
    )
    rest = CALL.sub("", said)
    if "<tool_call>" in rest:
        raise record.error(path, "a <tool_call> is not closed", "close it with </tool_call>")
    content = "\n".join(filter(None, map(str.strip, CALL.split(said)[::2]))) if calls else said
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
    found = [(role, body.strip("\n")) for role, body in CHATML.findall(text)]
    if found and found[-1] == ("assistant", ""):
        found.pop()
    if not found:
        raise record.error(path, "holds no <|im_start|> block")
    return found


def _heard(role: str, text: str) -> Iterator[Message]:
    """Tool results, and what a user said beside them."""
    results = RESPONSE.findall(text)
    for result in results:
        yield Message("tool", result.strip("\n"))
    rest = RESPONSE.sub("", text).strip() if results else text
    if rest or not results:
        yield Message("tool" if role == "tool" else "user", rest)


def _objects(record: Record, text: str, path: str) -> list[Any]:
    """One JSON list, or one JSON object a line."""
    text = text.strip()
    try:
        if text.startswith("["):
            return load_json(text)
        return [load_json(line) for line in text.splitlines() if line.strip()]
    except ValueError as error:
        fix = "one JSON object a line, or one JSON list"
        raise record.error(f"{path}.tools", f"is not JSON: {error}", fix) from error
