"""Reads function calls out of text that a model wrote; never runs or trusts any of it.

Every parser reads the answer alone: what follows the last `</think>` (`answer_of`).

  bfcl     what BFCL's own handler of Qwen3 models reads: JSON between `<tool_call>`, newline and
           newline, `</tool_call>`; blocks that are no JSON are passed over, one that is no call
           spoils the answer. Source: bfcl_eval/model_handler/local_inference/qwen_fc.py
  strict   Hermes blocks: the tag `<tool_call>`, one JSON object with a string "name" and an object
           "arguments", the tag `</tool_call>`; white space around the object and text outside the
           blocks are allowed, further keys are ignored, and one bad block spoils the answer. A
           block ends at the first closing tag, so one inside a JSON string makes a bad block

Pure and linear in the text. The strict parser refuses texts above `MAX_CHARACTERS`
and values deeper than `MAX_DEPTH`; BFCL has no limits but Python's.

In dialogues (`DECODERS`) calls of "bfcl" are the text that BFCL would evaluate; to "strict" a
message that is nothing but calls in Python, `[f(a=1), g("x")]`, is calls too, brackets optional. A
call that is executed is the plain name of a function with literal arguments: strings, finite
numbers, booleans, None, and lists, tuples and dicts of them. All else that parses as a call is
refused with a reason: to strict one refused call refuses its message, to bfcl it is a call that
fails. What is no call, or is not executed, raises ValueError with the reason:

not_a_name: what is called is no plain name (an attribute chain, the result of a call, a keyword
of Python). private_name: a name with a leading underscore, dunder names among them.
bad_keyword: an argument's name is no plain name, has a leading underscore or is there twice.
unpacked: `*` or `**`. not_literal: an argument is no literal. not_only_calls: something else
beside the calls. statements: a program, not calls. too_large: an integer of more digits than
Python reads, or a number that is not finite. too_deep: nested deeper than Python parses.
too_long: over `MAX_PYTHON_CHARACTERS`.
"""

import ast
import contextlib
import json
import keyword
import math
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from assay.data.json_files import finite, nests_deeper, refuse_constant
from assay.data.renderings import hermes
from assay.data.row import ToolCall

OPEN, CLOSE = "<tool_call>", "</tool_call>"
THINK_END = "</think>"
MAX_CHARACTERS = 200_000
MAX_DEPTH = 32


@dataclass(frozen=True, slots=True)
class TextCalls:
    """The calls of a text in order, or why there are none (never both).

    no_call: no opening tag. unclosed_call: an opening tag without a closing one. bad_json: a block
    that is not one JSON value (NaN, infinities, numbers no double holds and too deep values
    included). not_an_object: JSON, but no object. missing_name: no non-empty string "name".
    bad_arguments: no object "arguments". too_long: over `MAX_CHARACTERS`.
    ast_decoder:decoder_failed: BFCL's name for a block that is JSON and no call; a text without
    blocks is no error to it.
    """

    calls: tuple[ToolCall, ...] = ()
    error: str = ""


def answer_of(text: str) -> str:
    """What a model answers: the text after its last thought, which a prompt may have opened."""
    return text.rpartition(THINK_END)[2]


def parse_strict(text: str) -> TextCalls:
    """The calls in Hermes blocks."""
    text = answer_of(text)
    if len(text) > MAX_CHARACTERS:
        return TextCalls(error="too_long")
    try:
        bodies, whole = blocks(text)
        if not whole:
            return TextCalls(error="unclosed_call")
        calls = tuple(_call(decode(body)) for body in bodies)
    except ValueError as refused:
        return TextCalls(error=str(refused))
    return TextCalls(calls) if calls else TextCalls(error="no_call")


def parse_bfcl(text: str) -> TextCalls:
    """The calls that BFCL compares with possible answers (QwenFCHandler.decode_ast).

    A name may be any JSON value that can be a key.
    """
    blocks = bfcl_blocks(text)
    try:
        calls = tuple(ToolCall(call["name"], {**call["arguments"]}) for call in blocks)
        {call.name for call in calls}  # as upstream's dict, it refuses lists and objects
    except (KeyError, TypeError):
        return TextCalls(error="ast_decoder:decoder_failed")
    return TextCalls(calls)


def bfcl_blocks(text: str) -> list[Any]:
    """The JSON values that BFCL finds in an answer (QwenFCHandler._extract_tool_calls)."""
    texts = []
    for body in blocks(answer_of(text), f"{OPEN}\n", f"\n{CLOSE}")[0]:
        with contextlib.suppress(ValueError, RecursionError):  # upstream passes over these
            texts.append(json.loads(body))
    return texts


PARSERS = {"bfcl": parse_bfcl, "strict": parse_strict}


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
    """`body` as one JSON value of bounded depth. Raises ValueError."""
    try:
        value = _DECODER.decode(body)
    except (ValueError, RecursionError):
        raise ValueError("bad_json") from None
    if nests_deeper(value, MAX_DEPTH):
        raise ValueError("bad_json")
    return value


def _call(value: Any) -> ToolCall:
    """A decoded block as a call. Raises ValueError."""
    if not isinstance(value, dict):
        raise ValueError("not_an_object")
    name, arguments = value.get("name"), value.get("arguments")
    if not isinstance(name, str) or not name:
        raise ValueError("missing_name")
    if not isinstance(arguments, dict):
        raise ValueError("bad_arguments")
    return ToolCall(name, arguments)


def _integer(digits: str) -> int:
    # Checkers convert integers to floats, which raises above a double's range.
    if len(digits) > 300:
        raise ValueError("no double holds this integer")
    return int(digits)


_DECODER = json.JSONDecoder(parse_int=_integer, parse_float=finite, parse_constant=refuse_constant)


def call_text(calls: Iterable[ToolCall]) -> str:
    """The calls as Hermes blocks, one below the other: what the strict parser reads back."""
    return "\n".join(map(hermes.call_text, calls))


MAX_PYTHON_CHARACTERS = 50_000


@dataclass(frozen=True, slots=True)
class PythonCall:
    """One call by name; every value is a literal."""

    name: str
    positional: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """The call as Python, as BFCL writes it (`convert_to_function_call`)."""
        values = [repr(value) for value in self.positional]
        values += [f"{name}={value!r}" for name, value in self.named.items()]
        return f"{self.name}({','.join(values)})"


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """One call as the Python text that BFCL would evaluate; nothing of it was checked."""

    name: str
    source: str


@dataclass(frozen=True, slots=True)
class MessageCalls:
    """The calls of a message in order, or why there are none (never both)."""

    calls: tuple[PythonCall, ...] | tuple[WrittenCall, ...] = ()
    error: str = ""


def decode_message(text: str) -> MessageCalls:
    """The calls of what a model wrote; "no_call" where it is text without calls."""
    parsed = parse_strict(text)
    try:
        if parsed.error == "no_call":
            calls = read_calls(answer_of(text).strip("`\n "))
            return MessageCalls(calls, "" if calls else "no_call")
        read = (PythonCall(call.name, (), dict(call.arguments)) for call in parsed.calls)
        return MessageCalls(tuple(map(_checked, read)), parsed.error)
    except ValueError as refused:
        return MessageCalls(error=str(refused))


def decode_bfcl(text: str) -> MessageCalls:
    """The calls of what a model wrote as BFCL executes them: QwenFCHandler.decode_execute, with
    arguments that are an object or the JSON text of one."""
    try:
        calls = tuple(map(_written, bfcl_blocks(text)))
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError):
        return MessageCalls(error="ast_decoder:decoder_failed")
    return MessageCalls(calls, "" if calls else "no_call")


Decode = Callable[[str], MessageCalls]
DECODERS: Mapping[str, Decode] = {"bfcl": decode_bfcl, "strict": decode_message}
"""How a message of a dialogue is read, by parser."""


def _written(call: Any) -> WrittenCall:
    """Source: bfcl_eval/model_handler/utils.py, convert_to_function_call."""
    name, arguments = call["name"], call["arguments"]
    hash(name)  # upstream's key
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    values = ",".join(f"{key}={value!r}" for key, value in arguments.items())
    return WrittenCall(f"{name}", f"{name}({values})")


_CALLED = re.compile(r"(\s*)([a-zA-Z_]\w*)\s*(?=\()")


def read_call(source: str) -> PythonCall:
    """One call as BFCL's executor evaluates it, if it is a plain one with literal arguments.

    Its name is what upstream writes a simulator in front of, as it is spelled; white space behind
    it goes (multi_turn_utils, _process_method_calls). Raises ValueError.
    """
    called = _CALLED.match(source)
    tree = _parsed(_CALLED.sub(r"\1\2", source, count=1).lstrip(" \t"), "eval")
    if not isinstance(tree, ast.Expression):
        raise ValueError("not_only_calls")
    call = _from_node(tree.body)
    if called is None:
        raise ValueError("not_a_name")
    return replace(call, name=called[2])


def read_calls(source: str) -> tuple[PythonCall, ...]:
    """Calls written as Python, brackets optional; none where the text is prose or calls nothing.

    Raises ValueError.
    """
    if len(source) > MAX_PYTHON_CHARACTERS:
        raise ValueError("too_long")
    tree = _parsed(source if source.startswith("[") else f"[{source}]", "eval")
    if tree is None:
        if _does_something(_parsed(source, "exec")):
            raise ValueError("statements")
        return ()
    if not _does_something(tree):
        return ()
    body = tree.body if isinstance(tree, ast.Expression) else None
    if not isinstance(body, ast.List):
        raise ValueError("not_only_calls")
    return tuple(_checked(_from_node(node)) for node in body.elts)


def _does_something(tree: ast.AST | None) -> bool:
    """Whether anything would be called or imported."""
    nodes = ast.walk(tree) if tree is not None else ()
    return any(isinstance(node, (ast.Call, ast.Import, ast.ImportFrom)) for node in nodes)


def _parsed(source: str, mode: Literal["eval", "exec"]) -> ast.AST | None:
    """The syntax tree; None where it is no Python. Raises ValueError."""
    try:
        with warnings.catch_warnings():
            # Strange escapes and the like: a model's text, not the lab's.
            warnings.simplefilter("ignore")
            return ast.parse(source, mode=mode)
    except SyntaxError as error:
        if "too many nested" in error.msg:
            raise ValueError("too_deep") from None
        if "integer string conversion" in error.msg:
            raise ValueError("too_large") from None
        return None
    except ValueError:  # null bytes, lone surrogates
        return None
    except (RecursionError, MemoryError):
        raise ValueError("too_deep") from None


def _from_node(node: ast.expr) -> PythonCall:
    if not isinstance(node, ast.Call):
        raise ValueError("not_only_calls")
    if not isinstance(node.func, ast.Name):
        raise ValueError("not_a_name")
    unpacked = any(isinstance(value, ast.Starred) for value in node.args)
    if unpacked or any(item.arg is None for item in node.keywords):
        raise ValueError("unpacked")
    named = {str(item.arg): _literal(item.value) for item in node.keywords}
    if len(named) < len(node.keywords):
        raise ValueError("bad_keyword")
    return PythonCall(node.func.id, tuple(_literal(value) for value in node.args), named)


def _checked(call: PythonCall) -> PythonCall:
    if not _is_plain(call.name):
        raise ValueError("not_a_name")
    if call.name.startswith("_"):
        raise ValueError("private_name")
    if not all(_is_plain(key) and not key.startswith("_") for key in call.named):
        raise ValueError("bad_keyword")
    return call


def _is_plain(name: str) -> bool:
    # Python reads "ﬁnd" as "find": only ASCII is the same name to every reader.
    return name.isascii() and name.isidentifier() and not keyword.iskeyword(name)


def _literal(node: ast.expr) -> Any:
    """The value of a literal; Python parses no more than 200 open brackets. Raises
    ValueError."""
    match node:
        case ast.Constant(value=bool() | str() | None as value):
            return value
        case ast.Constant(value=int() | float() as value):
            return _bounded(value)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            if not isinstance(value, bool):
                return -_bounded(value)
        case ast.List(elts=elements):
            return [_literal(element) for element in elements]
        case ast.Tuple(elts=elements):
            return tuple(_literal(element) for element in elements)
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return {_key(key): _literal(value) for key, value in pairs}
    raise ValueError("not_literal")


def _key(node: ast.expr | None) -> Any:
    if node is None:
        raise ValueError("unpacked")
    value = _literal(node)
    if isinstance(value, (list, dict, tuple)):
        raise ValueError("not_literal")
    return value


def _bounded(number: int | float) -> int | float:
    if isinstance(number, float) and not math.isfinite(number):
        raise ValueError("too_large")
    return number
