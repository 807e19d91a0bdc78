"""Writes and parses Qwen3's layout of conversations with tools, in two dialects.

`qwen3` is what the model's public chat template writes when tools come in OpenAI's wrapping, and
`qwen3_fc` what BFCL's handler for Qwen3 in function-calling mode sends (bfcl-eval 2026.3.23,
local_inference/qwen_fc.py). Common to both: the tools section below the system text; reasoning
written only after the last real question (a user message that is no `<tool_response>` block);
consecutive tool results in one user turn; a prompt that ends in an assistant's header with no
`<think>`. They differ in:

                         qwen3                         qwen3_fc
  a tool                 in OpenAI's wrapping, UTF-8   the bare function, non-ASCII escaped
  arguments of a call    UTF-8                         non-ASCII escaped
  two equal calls        a line each                   a call equal to the first follows it directly
  text next to calls     kept                          lost in history: upstream empties it
  calls as mere text     kept as they are              in history, read and written anew
  answer to be trained   with a think block, an empty  with a think block only where it reasons:
                         one where it does not reason  upstream never writes the answer itself

Neither reads the tokenizer's template. Calls in text are parsed as JSON only.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.data.encoding import BREAK
from assay.data.json_files import nests_deeper
from assay.data.row import Message
from assay.data.tools import function_of, openai_tool

CONTROL = ("<|im_start|>", "<|im_end|>")
"""The special tokens that the layout is made of."""

CLOSE = "\n</tool_call>"
DEEPEST = 64
"""How deep a call that is read from text may nest."""

BEFORE_TOOLS = """\
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>"""
AFTER_TOOLS = """
</tools>

For each function call, return a json object with function name and arguments within \
<tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>"""


@dataclass(frozen=True, slots=True)
class Dialect:
    """Where the two renderings part; see the module's table."""

    tool: Callable[[Mapping[str, Any]], Any]
    dump: Callable[[Any], str]
    hear: Callable[[str], list[dict[str, Any]]] | None = None
    """How BFCL's handler, and it alone, reads the calls in the text of earlier answers."""


def qwen3(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], generation: bool) -> str:
    """The text as Qwen3's chat template writes it with tools in OpenAI's wrapping."""
    return _layout(messages, tools, generation, _TEMPLATE)


def qwen3_fc(
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
    generation: bool,
    guard: Callable[[Any], Any] = lambda value: value,
) -> str:
    """The text as BFCL's handler for Qwen3 in function-calling mode sends it.

    Calls that the model wrote as text are read, and escapes in them may spell special tokens:
    `guard` makes what was read harmless.
    """
    handler = Dialect(function_of, ascii_json, lambda text: guard(calls_in(text)))
    return _layout(messages, tools, generation, handler)


def utf8_json(value: Any) -> str:
    """JSON with every character as it is: Transformers' `tojson`."""
    return json.dumps(value, ensure_ascii=False)


def ascii_json(value: Any) -> str:
    """JSON with other characters than ASCII escaped, as `json.dumps` does; BREAK stays."""
    return _NOT_ASCII.sub(lambda match: json.dumps(match[0])[1:-1], utf8_json(value))


def split_thought(message: Message) -> tuple[str, str]:
    """The reasoning of an assistant message and the rest, tags in the content included."""
    content = message.content
    if message.reasoning or "</think>" not in content:
        return message.reasoning, content
    pieces = content.split("</think>")
    thought = pieces[0].rstrip("\n").split("<think>")[-1].lstrip("\n")
    return thought, pieces[-1].lstrip("\n")


def last_question(messages: Sequence[Message]) -> int:
    """Index of the last user message that is no tool result; of the last message without one."""
    questions = (i for i, m in enumerate(messages) if m.role == "user" and not is_tool_result(m))
    return max(questions, default=len(messages) - 1)


def is_tool_result(message: Message) -> bool:
    """Whether a user message is a tool result in the form of text."""
    text = message.content
    result = text.startswith("<tool_response>") and text.endswith("</tool_response>")
    return message.role == "user" and result


def calls_in(text: str) -> list[dict[str, Any]]:
    """The calls that upstream's handler parses from a model's text; it skips blocks without JSON.

    No calls at all where a block is JSON but not a call, which raises an exception upstream, or
    where one nests deeper than DEEPEST.
    """
    heard: list[dict[str, Any]] = []
    if CLOSE not in text:
        return heard
    for body in _BLOCK.findall(text):
        try:
            call = json.loads(body)
        except (ValueError, RecursionError):
            continue
        call = call.get("function", call) if isinstance(call, dict) else None
        if not isinstance(call, dict) or not isinstance(call.get("name"), str):
            return []
        if "arguments" not in call or nests_deeper(call, DEEPEST):
            return []
        heard.append(call)
    return heard


_TEMPLATE = Dialect(openai_tool, utf8_json)
_BLOCK = re.compile(r"<tool_call>\n(.*?)\n</tool_call>", re.DOTALL)
_NOT_ASCII = re.compile(f"[^\x00-\x7e{BREAK}]")


def _layout(
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
    generation: bool,
    dialect: Dialect,
) -> str:
    parts = [_head(messages, tools, dialect)]
    question = last_question(messages)
    for index, message in enumerate(messages):
        if message.role == "assistant":
            answered = index < len(messages) - 1 or generation
            last = index == len(messages) - 1
            parts.append(_assistant(message, index > question, last, answered, dialect))
        elif message.role == "tool":
            parts.append(_result(messages, index))
        elif message.role == "user" or index:
            parts.append(f"<|im_start|>{message.role}\n{message.content}<|im_end|>\n")
    return "".join(parts) + "<|im_start|>assistant\n" * generation


def _head(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], dialect: Dialect) -> str:
    """The system turn, if there is anything to put into one."""
    own = messages[0].content if messages and messages[0].role == "system" else None
    if not tools:
        return "" if own is None else f"<|im_start|>system\n{own}<|im_end|>\n"
    lines = "".join("\n" + dialect.dump(dialect.tool(tool)) for tool in tools)
    before = "" if own is None else own + "\n\n"
    return f"<|im_start|>system\n{before}{BEFORE_TOOLS}{lines}{AFTER_TOOLS}<|im_end|>\n"


def _assistant(
    message: Message, after_question: bool, last: bool, answered: bool, dialect: Dialect
) -> str:
    """One assistant turn; `answered` if something follows it, be it a generation prompt alone."""
    reasoning, content = split_thought(message)
    calls = [{"name": c.name, "arguments": dict(c.arguments)} for c in message.tool_calls]
    if dialect.hear is not None and answered:
        calls = calls or dialect.hear(message.content)
        content = "" if calls else content
    # Upstream writes an empty block where a prompt's last message is the assistant's.
    empty = last and (answered or dialect.hear is None)
    text = content
    if after_question and (reasoning or empty):
        thought = reasoning.strip("\n")
        text = f"<think>\n{thought}\n</think>\n\n" + content.lstrip("\n")
    text += "".join(_calls(calls, bool(content), dialect))
    return f"<|im_start|>assistant\n{text}<|im_end|>\n"


def _calls(calls: Sequence[Mapping[str, Any]], after_text: bool, dialect: Dialect) -> list[str]:
    written = []
    for index, call in enumerate(calls):
        first = index == 0 if dialect.hear is None else call == calls[0]
        arguments = call["arguments"]
        dumped = arguments if isinstance(arguments, str) else dialect.dump(arguments)
        body = f'{{"name": "{call["name"]}", "arguments": {dumped}}}'
        line_end = "\n" if after_text or not first else ""
        written.append(f"{line_end}<tool_call>\n{body}\n</tool_call>")
    return written


def _result(messages: Sequence[Message], index: int) -> str:
    """A tool result; a run of them is one user turn."""
    opens = index == 0 or messages[index - 1].role != "tool"
    closes = index == len(messages) - 1 or messages[index + 1].role != "tool"
    body = f"\n<tool_response>\n{messages[index].content}\n</tool_response>"
    return "<|im_start|>user" * opens + body + "<|im_end|>\n" * closes
