"""Reads rows whose tools, calls and results are text, and published sets of tool calls.

`hermes`: Hermes or Qwen text (parsed by `data.renderings.hermes`) in `{"messages": [{"role",
"content"}]}`, ShareGPT's `{"conversations": [{"from", "value"}]}` or one `{"text":
"<|im_start|>..."}`; `tools` and `system` may be columns of their own.

`looptool`: verl's columns. `prompt` holds a system message with the tools and a user message with
the whole history, `<|im_end|>` and `<|im_start|>` between its turns. `reward_model.ground_truth` is
the answer: it becomes the last message, and stays text as the gold; the copies of prompt and answer
in `extra_info` are left out.

`xlam` (xLAM-function-calling-60k): `query`, and `tools` and `answers` as JSON text.

`hardgen`: `{"0": {"role": "system", "tools": JSON text, "content"?}, "1": {"role": "user",
"content"}, ...}`. An assistant's content may begin with a think block; after it comes text, or a
list of calls such as `[f(a=1), g()]`. A tool's content is a list of `{call: result}`. A
conversation that cannot be parsed is left out with the reason; a file in another format is an
error. Not kept: which call a result belongs to (results follow their calls in order), the type of
results that are not text (they become JSON text), and the stack trace of a result that is an error.

Calls as Python are parsed into a syntax tree and never run. Raises DataError, as all readers.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from assay.data.conversation import (
    check_order,
    loaded_value,
    message_loss,
    message_role,
    parse_call,
    remark_unread,
)
from assay.data.formats.chat_rows import ground_truth, source_id
from assay.data.formats.kept import (
    BESIDE,
    CALLS,
    ROLES,
    build_row,
    row_id,
    system_beside,
    tools_beside,
)
from assay.data.loaded import DataError, Item, LeftOut, Record, Remark
from assay.data.python_calls import parse_calls, parse_literal
from assay.data.renderings.hermes import (
    Said,
    parse_text_messages,
    split_chatml,
    split_thinking,
)
from assay.data.row import Message, Row
from assay.data.tools import parse_tools

HERMES = ("messages", "conversations", "text", "tools")
SAID = {"role", "content", "from", "value"}
TEXTS = tuple(role for role in ROLES if ROLES[role] != CALLS)


def hermes_row(record: Record) -> Row:
    """A row of this format. Raises DataError."""
    column = next((name for name in HERMES[:3] if record.value.get(name) is not None), "messages")
    turns = [*_said(record, column)]
    own = turns[0][1] if turns and turns[0][0] == "system" else None
    system = system_beside(record, own)
    before = [("system", system, True)] if system else []
    conversation = parse_text_messages(record, [*before, *turns], tools_beside(record), column)
    return build_row(record, *conversation, *HERMES, *BESIDE)


def _said(record: Record, column: str) -> Iterator[Said]:
    if column == "text":
        for role, text in split_chatml(record, record.need("text", str), "text"):
            known = message_role(record, {"role": role}, "text", TEXTS)
            yield ROLES[known], text, True
        return
    for index, value in enumerate(record.need(column, list)):
        yield _one_said(record, value, f"{column}[{index}]", column)


def _one_said(record: Record, value: Any, path: str, column: str) -> Said:
    message = record.typed(path, value, dict)
    sharegpt = column == "conversations" and "role" not in message
    role_key, text_key = ("from", "value") if sharegpt else ("role", "content")
    for key in ("tool_calls", "function_call"):
        if message.get(key):
            fix = "this format reads calls in the text; name format = 'messages'"
            raise record.error(f"{path}.{key}", "holds calls beside the text", fix)
    remark_unread(record, message, SAID)
    role = ROLES[message_role(record, message, path, tuple(ROLES), role_key)]
    if role == CALLS:
        fix = "this format reads calls in the text; name format = 'swift'"
        raise record.error(f"{path}.{role_key}", "holds calls beside the text", fix)
    text = record.typed(f"{path}.{text_key}", message.get(text_key), str)
    return role, text, message_loss(record, message, path, role)


COPIES = ("instruction", "input", "output")


def looptool_row(record: Record) -> Row:
    """A row of this format. Raises DataError."""
    turns: list[Said] = []
    for index, value in enumerate(record.need("prompt", list)):
        path = f"prompt[{index}]"
        message = record.typed(path, value, dict)
        role = message_role(record, message, path, ("system", "user"))
        text = record.typed(f"{path}.content", message.get("content"), str)
        if role == "user":
            # The data leaves the marks of the history's first and last turn out.
            marked = text.startswith("<|im_start|>")
            whole = text if marked else f"<|im_start|>user\n{text}<|im_end|>\n"
            turns += [(*turn, False) for turn in split_chatml(record, whole, path)]
        else:
            turns.append((role, text, False))
    truth = record.typed("reward_model.ground_truth", ground_truth(record), str)
    turns.append(("assistant", truth, True))
    messages, tools = parse_text_messages(record, turns, (), "prompt")
    info = record.maybe("extra_info", dict) or {}
    kept = {key: value for key, value in info.items() if key not in COPIES}
    extra = {**record.others("prompt", "extra_info"), "extra_info": kept}
    return Row(source_id(record, info), messages, tools, truth, origin=record.origin, extra=extra)


XLAM = ("query", "tools", "answers")


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


POSITIONAL = "calls give arguments by position, which are named arg_0, arg_1 and so on"
SHORTENED = "tool results that are stack traces were shortened to their error"

NO_RESULTS = "a tool message that is no list of {call: result}"
UNKNOWN_ROLE = "a message of an unknown role"
NO_TEXT = "a message without text"

TRACE = re.compile(r"^Function call .* failed\..*?Error:\s+(.*?)\s+Stack trace:", re.DOTALL)


def hardgen_items(record: Record) -> Iterator[Item]:
    """The row of a record, with remarks; or what was left out and why.

    Raises DataError where there is no numbered system turn with tools that are JSON.
    """
    described = record.need("0", dict).get("tools")
    if described in (None, ""):
        raise record.error("0.tools", "missing", "turn 0 holds the tools as JSON text")
    tools = parse_tools(record, described, "0.tools")
    id_ = row_id(record)
    turns = [k for k in (*record.value, *record.unread) if k.isascii() and k.isdigit()]
    try:
        unchecked = tuple(_hardgen_messages(record, sorted(turns, key=int)))
        messages = check_order(record, unchecked, "turns")
    except (DataError, ValueError) as error:
        reason = error.problem if isinstance(error, DataError) else str(error)
        yield LeftOut(id_, reason, record.origin)
        return
    yield from (Remark(id_, words) for words in sorted(record.told))
    extra = record.others("id", *turns)
    yield Row(id_, messages, tools, origin=record.origin, extra=extra)


def _hardgen_messages(record: Record, turns: list[str]) -> Iterator[Message]:
    """Raises DataError, and ValueError for text that is no list of calls."""
    system = record.value["0"].get("content")
    if system:
        yield Message("system", record.typed("0.content", system, str))
    for key in turns:
        turn = record.value[key]
        if key == "0" or turn is None:  # files of many turns fill the others up with null
            continue
        role, content = (record.typed(key, turn, dict).get(name) for name in ("role", "content"))
        if not isinstance(content, str):
            raise record.error(key, NO_TEXT)
        if role == "user":
            yield Message("user", content)
        elif role == "assistant":
            reasoning, answer = split_thinking(content)
            answer = answer.strip()
            if not (answer.startswith("[") and answer.endswith("]")):
                yield Message("assistant", answer, reasoning=reasoning)
                continue
            calls, positional = parse_calls(answer)
            if positional:
                record.remark(POSITIONAL)
            yield Message("assistant", "", calls, reasoning=reasoning)
        elif role == "tool":
            yield from _hardgen_results(record, key, content)
        else:
            raise record.error(key, UNKNOWN_ROLE)


def _hardgen_results(record: Record, key: str, content: str) -> Iterator[Message]:
    try:
        results = parse_literal(content)
    except ValueError:
        results = None
    if not (isinstance(results, list) and results and all(type(r) is dict for r in results)):
        raise record.error(key, NO_RESULTS)
    for value in (value for result in results for value in result.values()):
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if isinstance(value, str) and (trace := TRACE.match(value)):
            record.remark(SHORTENED)
            text = json.dumps({"error": trace[1]}, ensure_ascii=False)
        yield Message("tool", text)
