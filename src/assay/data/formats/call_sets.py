"""Reads three published sets of tool calls as their files are: xLAM, ToolACE and Glaive v2.

xLAM-function-calling-60k: `query`, and `tools` and `answers` as JSON text. ToolACE: `system` with
the functions as a JSON list, and `conversations` whose calls are `[Get Weather(city="Oslo")]` and
whose results are one JSON list for all calls of a turn. Glaive-function-calling-v2: `system` and
`chat` as text with USER:, ASSISTANT:, `<functioncall>` and FUNCTION RESPONSE:. What a system text
says about the spelling of calls is cut, because the rendering says its own. Raises DataError, as
all readers.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from assay.data.conversation import check_order, loaded_value, message_loss, parse_call
from assay.data.formats.kept import build_row
from assay.data.json_files import load_next, load_values
from assay.data.loaded import Record
from assay.data.python_calls import NotCallsError, parse_loose_calls
from assay.data.row import Message, Row, ToolCall
from assay.data.tools import parse_tools


def xlam_row(record: Record) -> Row:
    """A question and the calls that answer it."""
    answers = loaded_value(record, record.need("answers", str, list), "answers")
    calls = tuple(
        parse_call(record, call, f"answers[{index}]")
        for index, call in enumerate(record.typed("answers", answers, list))
    )
    if not calls:
        raise record.error("answers", "holds no call, and no text to answer with")
    messages = (Message("user", record.need("query", str)), Message("assistant", "", calls))
    return build_row(record, messages, parse_tools(record, record.value.get("tools")), *XLAM)


XLAM = ("query", "tools", "answers")
TOOLACE = ("system", "conversations")
GLAIVE = ("system", "chat")

LISTED = re.compile(r"\[\s*\{")
SPELLING = re.compile(
    r"Here is a list of functions in JSON format that you can invoke:?\s*\.?"
    r"|Should you decide to return the function call\(s\)[.,]?"
    r"|(?:Put it in the format of|Format:)\s*\[func.*?\]|NO other text MUST be included\.?",
    re.DOTALL,
)
CALLS = re.compile(r"\[[^\[\]{}()\"'=,]+\(.*\)\s*\]", re.DOTALL)


def toolace_row(record: Record) -> Row:
    """A conversation whose calls are lists of calls as text."""
    system = record.maybe("system", str) or ""
    own, listed = _cut_list(system)
    tools = parse_tools(record, listed, "system")
    own = SPELLING.sub("", own).strip() if tools else system
    messages = [Message("system", own)] if own else []
    for index, value in enumerate(record.need("conversations", list)):
        path = f"conversations[{index}]"
        said = record.typed(path, value, dict)
        role, text = (
            record.typed(f"{path}.{key}", said.get(key), str) for key in ("from", "value")
        )
        calls = messages[-1].tool_calls if messages else ()
        loss = message_loss(record, said, path, "assistant")
        messages += (
            replace(message, loss=loss) if message.role == "assistant" else message
            for message in _toolace_messages(record, role, text, calls, path)
        )
    return build_row(record, check_order(record, tuple(messages), "conversations"), tools, *TOOLACE)


def _toolace_messages(
    record: Record, role: str, text: str, calls: tuple[ToolCall, ...], path: str
) -> Iterator[Message]:
    """The messages of one turn; `calls` are those that a result answers."""
    if role in ("user", "human"):
        yield Message("user", text)
    elif role in ("tool", "observation"):
        yield from _results(text, calls)
    elif role not in ("assistant", "gpt"):
        raise record.error(f"{path}.from", f"unknown role {role!r}")
    elif not CALLS.fullmatch(text.strip()):
        yield Message("assistant", text)
    else:
        try:
            yield Message("assistant", "", parse_loose_calls(text))
        except NotCallsError as error:
            raise record.error(f"{path}.value", str(error)) from error


def _results(text: str, calls: tuple[ToolCall, ...]) -> Iterator[Message]:
    """One message for each result of a JSON list that has one for each call, else the text."""
    try:
        (found,) = load_values(text)
    except ValueError:
        found = None
    names = {call.name for call in calls}
    if not (isinstance(found, list) and len(found) == len(calls) > 1):
        yield Message("tool", text)
        return
    for each in found:
        named = isinstance(each, dict) and {"name", "results"} == set(each)
        content = each["results"] if named else each
        content = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        name = each["name"] if named and each["name"] in names else ""
        yield Message("tool", content, name=name)


def _cut_list(text: str) -> tuple[str, list[Any]]:
    """The text without the first JSON list of objects in it, and that list."""
    for found in LISTED.finditer(text):
        try:
            listed, end = load_next(text, found.start())
        except ValueError:
            continue
        return text[: found.start()] + text[end:], listed
    return text, []


SPEAKER = r"(USER|ASSISTANT|FUNCTION RESPONSE):"
LINE = re.compile(rf"^{SPEAKER}", re.MULTILINE)
"""Where a turn begins."""
WORD = re.compile(rf"(?:^|\s){SPEAKER}")
"""The same in copies of the set that have lost their line ends."""
OFFER = re.compile(r",? with access to the following functions\. Use them if required -?\s*$")
END = "<|endoftext|>"
CALL = "<functioncall>"
QUOTED = re.compile(r"""\{\s*"name":\s*"([^"]+)",\s*"arguments":\s*'(.*)'\s*\}""", re.DOTALL)
"""A call with arguments as JSON text in single quotes, within which quotes are as they are."""


def glaive_row(record: Record) -> Row:
    """A conversation as one text."""
    own, brace, rest = (record.maybe("system", str) or "").partition("{")
    try:
        tools = parse_tools(record, load_values(brace + rest), "system")
    except ValueError as error:
        raise record.error("system", f"holds functions that are not JSON: {error}") from error
    own = OFFER.sub(".", own.strip().removeprefix("SYSTEM:").strip())
    messages = [Message("system", own)] if own else []
    chat = record.need("chat", str)
    first, *turns = (LINE if "\nASSISTANT:" in chat else WORD).split(chat)
    if first.strip():
        raise record.error("chat", "does not begin with USER:, ASSISTANT: or FUNCTION RESPONSE:")
    for index, (role, text) in enumerate(zip(turns[::2], turns[1::2], strict=True)):
        said = text.replace(END, "").strip()
        if role != "ASSISTANT":
            messages.append(Message("user" if role == "USER" else "tool", said))
            continue
        before, called, body = said.partition(CALL)
        call: Any = body.strip()
        if quoted := QUOTED.fullmatch(call):
            call = {"name": quoted[1], "arguments": quoted[2].replace("\\'", "'")}
        calls = (parse_call(record, call, f"chat[{index}]"),) if called else ()
        messages.append(Message("assistant", before.strip() if called else said, calls))
    return build_row(record, check_order(record, tuple(messages), "chat"), tools, *GLAIVE)
