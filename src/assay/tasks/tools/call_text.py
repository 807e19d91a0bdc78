"""Reads the calls of one message of a dialogue, as data; nothing is evaluated, imported or run.

Two spellings are read: Hermes blocks (`parsing.parse_strict`), wherever a message has an opening
tag; otherwise a message that is nothing but calls in Python, `[f(a=1), g("x")]`, brackets optional,
white space and backquotes around it ignored. Reasoning up to the last `</think>` is not read.

A call is the plain name of a function with literal arguments: strings, finite numbers, booleans,
None, and lists, tuples and dicts of them. Everything else that parses as a call is refused with a
reason, and one refused call refuses its message. Which functions exist the simulators know.
"""

import ast
import keyword
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from assay.data.row import ToolCall
from assay.tasks.tools.parsing import MAX_DEPTH, OPEN, ParseError, parse_strict

THINK_END = "</think>"
MAX_PYTHON_CHARACTERS = 50_000
MAX_DIGITS = 300
"""Of an integer, as in the Hermes parser: no double holds more."""

Refusal = Literal[
    "not_a_name",
    "private_name",
    "bad_keyword",
    "unpacked",
    "not_literal",
    "not_only_calls",
    "statements",
    "too_large",
    "too_deep",
    "too_long",
]
"""Why calls are refused.

not_a_name: what is called is no plain name (an attribute chain, the result of a call, a keyword of
Python). private_name: a name with a leading underscore, dunder names among them. bad_keyword: an
argument's name is no plain name or has a leading underscore. unpacked: `*` or `**`. not_literal: an
argument is no literal. not_only_calls: something else beside the calls. statements: a program, not
calls. too_large: an integer over `MAX_DIGITS`, or a number that is not finite. too_deep: nested
deeper than `MAX_DEPTH`, or than Python parses. too_long: over `MAX_PYTHON_CHARACTERS`.
"""


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
class Decoded:
    """The calls of a message in order, or why there are none (never both)."""

    calls: tuple[PythonCall, ...] = ()
    error: ParseError | Refusal = ""


class RefusedCallError(ValueError):
    """A call that is not executed; `reason` says why."""

    def __init__(self, reason: Refusal):
        super().__init__(reason)
        self.reason: Refusal = reason


def decode_message(text: str) -> Decoded:
    """The calls of what a model wrote; "no_call" where it is text without calls."""
    answer = text.rpartition(THINK_END)[2]
    try:
        if OPEN not in answer:
            calls = read_calls(answer.strip("`\n "))
            return Decoded(calls, "" if calls else "no_call")
        parsed = parse_strict(answer)
        return Decoded(tuple(_from_json(call) for call in parsed.calls), parsed.error)
    except RefusedCallError as refused:
        return Decoded(error=refused.reason)


def read_call(source: str) -> PythonCall:
    """One call written as Python. Raises RefusedCallError."""
    calls = read_calls(source)
    if len(calls) != 1:
        raise RefusedCallError("not_only_calls")
    return calls[0]


def read_calls(source: str) -> tuple[PythonCall, ...]:
    """Calls written as Python, brackets optional; none where the text is prose or calls nothing.

    Raises RefusedCallError.
    """
    if len(source) > MAX_PYTHON_CHARACTERS:
        raise RefusedCallError("too_long")
    tree = _parsed(source if source.startswith("[") else f"[{source}]", "eval")
    if tree is None:
        if _does_something(_parsed(source, "exec")):
            raise RefusedCallError("statements")
        return ()
    if not _does_something(tree):
        return ()
    body = tree.body if isinstance(tree, ast.Expression) else None
    if not isinstance(body, ast.List):
        raise RefusedCallError("not_only_calls")
    return tuple(_from_node(node) for node in body.elts)


def _does_something(tree: ast.AST | None) -> bool:
    """Whether anything would be called or imported."""
    nodes = ast.walk(tree) if tree is not None else ()
    return any(isinstance(node, (ast.Call, ast.Import, ast.ImportFrom)) for node in nodes)


def _parsed(source: str, mode: Literal["eval", "exec"]) -> ast.AST | None:
    """The syntax tree; None where it is no Python. Raises RefusedCallError."""
    try:
        with warnings.catch_warnings():
            # Strange escapes and the like: a model's text, not the lab's.
            warnings.simplefilter("ignore")
            return ast.parse(source, mode=mode)
    except SyntaxError as error:
        if "too many nested" in error.msg:
            raise RefusedCallError("too_deep") from None
        if "integer string conversion" in error.msg:
            raise RefusedCallError("too_large") from None
        return None
    except ValueError:  # null bytes, lone surrogates
        return None
    except (RecursionError, MemoryError):
        raise RefusedCallError("too_deep") from None


def _from_node(node: ast.expr) -> PythonCall:
    if not isinstance(node, ast.Call):
        raise RefusedCallError("not_only_calls")
    if not isinstance(node.func, ast.Name):
        raise RefusedCallError("not_a_name")
    unpacked = any(isinstance(value, ast.Starred) for value in node.args)
    if unpacked or any(item.arg is None for item in node.keywords):
        raise RefusedCallError("unpacked")
    _check_depth(node)
    named = {str(item.arg): _literal(item.value) for item in node.keywords}
    return _checked(node.func.id, tuple(_literal(value) for value in node.args), named)


def _from_json(call: ToolCall) -> PythonCall:
    return _checked(call.name, (), dict(call.arguments))


def _checked(name: str, positional: tuple[Any, ...], named: Mapping[str, Any]) -> PythonCall:
    if not _is_plain(name):
        raise RefusedCallError("not_a_name")
    if name.startswith("_"):
        raise RefusedCallError("private_name")
    if not all(_is_plain(key) and not key.startswith("_") for key in named):
        raise RefusedCallError("bad_keyword")
    return PythonCall(name, positional, named)


def _is_plain(name: str) -> bool:
    # Python reads "ﬁnd" as "find": only ASCII is the same name to every reader.
    return name.isascii() and name.isidentifier() and not keyword.iskeyword(name)


def _check_depth(node: ast.AST) -> None:
    """Without recursion, as the text is hostile. Call, keyword and context are levels of their own.

    Raises RefusedCallError.
    """
    level = [node]
    for _ in range(MAX_DEPTH + 3):
        level = [child for parent in level for child in ast.iter_child_nodes(parent)]
    if level:
        raise RefusedCallError("too_deep")


def _literal(node: ast.expr) -> Any:
    """The value of a literal of bounded depth. Raises RefusedCallError."""
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
    raise RefusedCallError("not_literal")


def _key(node: ast.expr | None) -> Any:
    if node is None:
        raise RefusedCallError("unpacked")
    value = _literal(node)
    if isinstance(value, (list, dict, tuple)):
        raise RefusedCallError("not_literal")
    return value


def _bounded(number: int | float) -> int | float:
    if isinstance(number, int) and abs(number) >= 10**MAX_DIGITS:
        raise RefusedCallError("too_large")
    if isinstance(number, float) and not math.isfinite(number):
        raise RefusedCallError("too_large")
    return number
