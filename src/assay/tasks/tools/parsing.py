"""Reads function calls out of text that a model wrote; never runs or trusts any of it.

The strict parser reads Hermes blocks: the tag `<tool_call>`, one JSON object with a string "name"
and an object "arguments", the tag `</tool_call>`; white space around the object and text outside
the blocks are allowed, further keys are ignored, and one bad block spoils the whole answer. A
block ends at the first closing tag, so a closing tag inside a JSON string is a bad block. The
lenient parser also accepts bare JSON objects, those in fenced code blocks first.

Pure and linear in the text, which is refused above `MAX_CHARACTERS`; values nest at most
`MAX_DEPTH` deep. Comparing calls and judging them is not here.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, Literal

from assay.data.row import ToolCall

OPEN, CLOSE = "<tool_call>", "</tool_call>"
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
]
"""Why a text is not a list of calls; "" when it is one.

no_call: no opening tag. unclosed_call: an opening tag without a closing one. bad_json: a block that
is not one JSON value (NaN, infinities, numbers no double holds and too deep values included).
not_an_object: JSON, but no object. missing_name: no non-empty string "name". bad_arguments: no
object "arguments". too_long: over `MAX_CHARACTERS`.
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


def parse_strict(text: str) -> Parsed:
    """The calls in Hermes blocks."""
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
    for source in ("\n".join(_FENCE.findall(text)), text):
        try:
            calls = tuple(_call(value) for value in _bare_objects(source))
        except NotACallError:
            continue
        if calls:
            return Parsed(calls)
    return strict


PARSERS = {"strict": parse_strict, "lenient": parse_lenient}

_FENCE = re.compile(r"```[a-zA-Z]*\n([^`]*)```")


def blocks(text: str) -> tuple[list[str], bool]:
    """The texts between tags, and whether every opening tag has its closing tag."""
    bodies, position = [], 0
    while (start := text.find(OPEN, position)) >= 0:
        end = text.find(CLOSE, start)
        if end < 0:
            return bodies, False
        bodies.append(text[start + len(OPEN) : end])
        position = end + len(CLOSE)
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
