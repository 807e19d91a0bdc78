"""Reads function calls out of text that a model wrote; never runs or trusts any of it.

Every parser reads the answer alone: what follows the last `</think>` (`answer_of`).

  bfcl     what BFCL's own handler of Qwen3 models reads: JSON between `<tool_call>`, newline and
           newline, `</tool_call>`; blocks that are no JSON are passed over, one that is no call
           spoils the answer. Source: bfcl_eval/model_handler/local_inference/qwen_fc.py
  strict   Hermes blocks: the tag `<tool_call>`, one JSON object with a string "name" and an object
           "arguments", the tag `</tool_call>`; white space around the object and text outside the
           blocks are allowed, further keys are ignored, and one bad block spoils the answer. A
           block ends at the first closing tag, so one inside a JSON string makes a bad block
  lenient  the same, else bare JSON objects, those in fenced code blocks first

Pure and linear in the text. The strict and the lenient parser refuse texts above `MAX_CHARACTERS`
and values deeper than `MAX_DEPTH`; BFCL has no limits but Python's. Comparing calls and judging
them is not here.
"""

import contextlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from assay.data.renderings import hermes
from assay.data.row import ToolCall

OPEN, CLOSE = "<tool_call>", "</tool_call>"
THINK_END = "</think>"
MAX_CHARACTERS = 200_000
MAX_DEPTH = 32
MAX_OBJECTS = 64
"""Bare objects that the lenient parser looks at; each failing one may cost a scan of the text."""

ParseError = Literal[
    "",
    "no_call",
    "unclosed_call",
    "bad_json",
    "not_an_object",
    "missing_name",
    "bad_arguments",
    "too_long",
    "ast_decoder:decoder_failed",
]
"""Why a text is not a list of calls; "" when it is one.

no_call: no opening tag. unclosed_call: an opening tag without a closing one. bad_json: a block that
is not one JSON value (NaN, infinities, numbers no double holds and too deep values included).
not_an_object: JSON, but no object. missing_name: no non-empty string "name". bad_arguments: no
object "arguments". too_long: over `MAX_CHARACTERS`. ast_decoder:decoder_failed: BFCL's name for a
block that is JSON and no call; a text without blocks is no error to it.
"""


@dataclass(frozen=True, slots=True)
class Parsed:
    """The calls of a text in order, or why there are none (never both)."""

    calls: tuple[ToolCall, ...] = ()
    error: ParseError = ""


class NotACallError(ValueError):
    """A block that is no call; a signal inside this package, never shown."""

    def __init__(self, error: ParseError):
        self.error: ParseError = error


def answer_of(text: str) -> str:
    """What a model answers: the text after its last thought, which a prompt may have opened."""
    return text.rpartition(THINK_END)[2]


def parse_strict(text: str) -> Parsed:
    """The calls in Hermes blocks."""
    text = answer_of(text)
    if len(text) > MAX_CHARACTERS:
        return Parsed(error="too_long")
    try:
        bodies, whole = blocks(text)
        if not whole:
            return Parsed(error="unclosed_call")
        calls = tuple(_call(decode(body)) for body in bodies)
    except NotACallError as refused:
        return Parsed(error=refused.error)
    return Parsed(calls) if calls else Parsed(error="no_call")


def parse_lenient(text: str) -> Parsed:
    """Hermes blocks where they are right; else objects in fences; else objects anywhere.

    When none of them gives calls, the error is the strict parser's.
    """
    strict = parse_strict(text)
    if not strict.error or strict.error == "too_long":
        return strict
    text = answer_of(text)
    for source in ("\n".join(_FENCE.findall(text)), text):
        try:
            calls = tuple(_call(value) for value in _bare_objects(source))
        except NotACallError:
            continue
        if calls:
            return Parsed(calls)
    return strict


def parse_bfcl(text: str) -> Parsed:
    """The calls that BFCL compares with possible answers (QwenFCHandler.decode_ast).

    A name may be any JSON value that can be a key.
    """
    found = bfcl_blocks(text)
    try:
        calls = tuple(ToolCall(call["name"], {**call["arguments"]}) for call in found)
        {call.name for call in calls}  # as upstream's dict, it refuses lists and objects
    except (KeyError, TypeError):
        return Parsed(error="ast_decoder:decoder_failed")
    return Parsed(calls)


def bfcl_blocks(text: str) -> list[Any]:
    """The JSON values that BFCL finds in an answer (QwenFCHandler._extract_tool_calls)."""
    found = []
    for body in blocks(answer_of(text), f"{OPEN}\n", f"\n{CLOSE}")[0]:
        with contextlib.suppress(ValueError, RecursionError):  # upstream passes over these
            found.append(json.loads(body))
    return found


PARSERS = {"bfcl": parse_bfcl, "strict": parse_strict, "lenient": parse_lenient}

_FENCE = re.compile(r"```[a-zA-Z]*\n([^`]*)```")


def blocks(text: str, opening: str = OPEN, closing: str = CLOSE) -> tuple[list[str], bool]:
    """The texts between tags, and whether every opening tag has its closing tag."""
    bodies, position = [], 0
    while (start := text.find(opening, position)) >= 0:
        start += len(opening)
        end = text.find(closing, start)
        if end < 0:
            return bodies, False
        bodies.append(text[start:end])
        position = end + len(closing)
    return bodies, True


def decode(body: str) -> Any:
    """`body` as one JSON value of bounded depth. Raises NotACallError."""
    try:
        value = _DECODER.decode(body)
    except (ValueError, RecursionError):
        raise NotACallError("bad_json") from None
    if _too_deep(value):
        raise NotACallError("bad_json")
    return value


def _call(value: Any) -> ToolCall:
    """A decoded block as a call. Raises NotACallError."""
    if not isinstance(value, dict):
        raise NotACallError("not_an_object")
    name, arguments = value.get("name"), value.get("arguments")
    if not isinstance(name, str) or not name:
        raise NotACallError("missing_name")
    if not isinstance(arguments, dict):
        raise NotACallError("bad_arguments")
    return ToolCall(name, arguments)


def _bare_objects(text: str) -> list[Any]:
    """The outermost JSON objects in `text`, in order. Raises NotACallError for a too deep one."""
    values, position = [], 0
    for _ in range(MAX_OBJECTS):
        start = text.find("{", position)
        if start < 0:
            break
        try:
            value, position = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            position = start + 1
            continue
        if _too_deep(value):
            raise NotACallError("bad_json")
        values.append(value)
    return values


def _too_deep(value: Any) -> bool:
    """Whether `value` nests deeper than MAX_DEPTH; without recursion, as the text is hostile."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for item in level
            if isinstance(item, (dict, list))
            for child in (item.values() if isinstance(item, dict) else item)
        ]
    return bool(level)


def _integer(digits: str) -> int:
    # Checkers convert integers to floats, which raises above a double's range.
    if len(digits) > 300:
        raise ValueError("no double holds this integer")
    return int(digits)


def _float(digits: str) -> float:
    if (value := float(digits)) in (float("inf"), float("-inf")):
        raise ValueError("no double holds this number")
    return value


def _constant(word: str) -> float:
    raise ValueError(f"{word} is not JSON")


_DECODER = json.JSONDecoder(parse_int=_integer, parse_float=_float, parse_constant=_constant)


def call_text(calls: Iterable[ToolCall]) -> str:
    """The calls as Hermes blocks, one below the other: what the strict parser reads back."""
    return "\n".join(map(hermes.call_text, calls))
