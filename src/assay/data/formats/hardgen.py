"""Reads HardGen rows: numbered turns, calls as Python lists, results as Python literals.

`{"0": {"role": "system", "tools": JSON text, "content"?}, "1": {"role": "user", "content"}, ...}`.
An assistant's content may begin with a think block; after it comes text, or a list of calls such
as `[f(a=1), g()]`, which is parsed into a syntax tree and never run. A tool's content is a list of
`{call: result}`. A conversation that cannot be parsed is left out with the reason; a file in
another format is an error. Whether the called functions exist is not checked here.

Not kept: which call a result belongs to (results follow their calls in order), the type of results
that are not text (they become JSON text), and the stack trace of a result that is an error.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from assay.data.conversation import check_order
from assay.data.hashing import content_id
from assay.data.loaded import DataError, Item, LeftOut, Record, Remark
from assay.data.python_calls import NotCallsError, parse_calls, parse_literal
from assay.data.renderings.hermes import split_thinking
from assay.data.row import Message, Row
from assay.data.tools import parse_tools

POSITIONAL = "calls give arguments by position, which are named arg_0, arg_1 and so on"
SHORTENED = "tool results that are stack traces were shortened to their error"

NO_RESULTS = "a tool message that is no list of {call: result}"
UNKNOWN_ROLE = "a message of an unknown role"
NO_TEXT = "a message without text"

TRACE = re.compile(r"^Function call .* failed\..*?Error:\s+(.*?)\s+Stack trace:", re.DOTALL)


class _Unreadable(ValueError):
    """A conversation to leave out; the message is the reason."""


def items(record: Record) -> Iterator[Item]:
    """The row of a record, with remarks; or what was left out and why.

    Raises DataError where there is no numbered system turn with tools that are JSON.
    """
    described = record.need("0", dict).get("tools")
    if described in (None, ""):
        raise record.error("0.tools", "missing", "turn 0 holds the tools as JSON text")
    tools = parse_tools(record, described, "0.tools")
    source = record.maybe("id", str, int)
    id_ = str(content_id(record.value) if source is None else source)
    turns = [k for k in (*record.value, *record.unread) if k.isascii() and k.isdigit()]
    try:
        said = tuple(_messages(record, sorted(turns, key=int)))
        messages = check_order(record, said, "turns")
    except (_Unreadable, NotCallsError) as error:
        yield LeftOut(id_, str(error), record.origin)
        return
    except DataError as error:
        yield LeftOut(id_, error.problem, record.origin)
        return
    yield from (Remark(id_, words) for words in sorted(record.told))
    extra = record.others("id", *turns)
    yield Row(id_, messages, tools, origin=record.origin, extra=extra)


def _messages(record: Record, turns: list[str]) -> Iterator[Message]:
    content = record.value["0"].get("content")
    if content:
        yield Message("system", record.typed("0.content", content, str))
    for key in turns:
        turn = record.value[key]
        if key == "0" or turn is None:  # files of many turns fill the others up with null
            continue
        yield from _turn(record.typed(key, turn, dict), record.told)


def _turn(turn: dict[str, Any], told: set[str]) -> Iterator[Message]:
    role, content = turn.get("role"), turn.get("content")
    if not isinstance(content, str):
        raise _Unreadable(NO_TEXT)
    if role == "user":
        yield Message("user", content)
    elif role == "assistant":
        yield _assistant(content, told)
    elif role == "tool":
        yield from _results(content, told)
    else:
        raise _Unreadable(UNKNOWN_ROLE)


def _assistant(content: str, told: set[str]) -> Message:
    reasoning, said = split_thinking(content)
    said = said.strip()
    if not (said.startswith("[") and said.endswith("]")):
        return Message("assistant", said, reasoning=reasoning)
    calls, positional = parse_calls(said)
    if positional:
        told.add(POSITIONAL)
    return Message("assistant", "", calls, reasoning=reasoning)


def _results(content: str, told: set[str]) -> Iterator[Message]:
    try:
        results = parse_literal(content)
    except NotCallsError:
        raise _Unreadable(NO_RESULTS) from None
    if not (isinstance(results, list) and results and all(type(r) is dict for r in results)):
        raise _Unreadable(NO_RESULTS)
    for value in (value for result in results for value in result.values()):
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if isinstance(value, str) and (trace := TRACE.match(value)):
            told.add(SHORTENED)
            text = json.dumps({"error": trace[1]}, ensure_ascii=False)
        yield Message("tool", text)
