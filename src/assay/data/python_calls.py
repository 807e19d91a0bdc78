"""Reads calls and literals that are written as Python: `[f(a=1), g()]`, `{'a': True}`.

The text is parsed into a syntax tree and never run. Which functions there are is not known here.
"""

import ast
import math
from typing import Any

from assay.data.row import ToolCall

SYNTAX = "calls that are not Python syntax"
NO_CALLS = "a list that holds something else than calls"
NO_LITERAL = "an argument of a call that is no literal"
NO_JSON = "an argument of a call that JSON cannot say"
UNPACKED = "an argument of a call that is unpacked (* or **)"
TWICE = "a call that gives one argument twice"

MAX_CHARACTERS = 200_000
"""A longer list of calls is no calls that a model should learn."""


def parse_calls(text: str) -> tuple[tuple[ToolCall, ...], int]:
    """The calls of a text in order, and how many of their arguments were given by position.

    Arguments by position are named `arg_0`, `arg_1`, as the published converter of such data names
    them. Raises ValueError with one of the reasons above.
    """
    body = _tree(text)
    if not isinstance(body, ast.List) or not body.elts:
        raise ValueError(NO_CALLS)
    calls, positional = [], 0
    for node in body.elts:
        if not isinstance(node, ast.Call):
            raise ValueError(NO_CALLS)
        calls.append(ToolCall(_name(node.func), _arguments(node)))
        positional += len(node.args)
    return tuple(calls), positional


def parse_literal(text: str) -> Any:
    """The JSON value that a Python literal says. Raises ValueError with one of these reasons."""
    return _value(_tree(text))


def _tree(text: str) -> ast.expr:
    if len(text) > MAX_CHARACTERS:
        raise ValueError(SYNTAX)
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(SYNTAX) from None


def _name(node: ast.expr) -> str:
    """`search`, or `files.search`."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_name(node.value)}.{node.attr}"
    raise ValueError(NO_CALLS)


def _arguments(node: ast.Call) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for index, value in enumerate(node.args):
        if isinstance(value, ast.Starred):
            raise ValueError(UNPACKED)
        arguments[f"arg_{index}"] = _value(value)
    for keyword in node.keywords:
        if keyword.arg is None:
            raise ValueError(UNPACKED)
        if keyword.arg in arguments:
            raise ValueError(TWICE)
        arguments[keyword.arg] = _value(keyword.value)
    return arguments


def _value(node: ast.expr | None) -> Any:
    if isinstance(node, ast.Constant):
        value = node.value
        finite = type(value) is float and math.isfinite(value)
        if value is None or type(value) in (str, int, bool) or finite:
            return value
        raise ValueError(NO_JSON)
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        if None in node.keys:
            raise ValueError(UNPACKED)
        made = [(_value(k), _value(v)) for k, v in zip(node.keys, node.values, strict=True)]
        if not all(isinstance(key, str) for key, _ in made):
            raise ValueError(NO_JSON)
        return dict(made)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _value(node.operand)
        if type(value) in (int, float):
            return -value if isinstance(node.op, ast.USub) else value
    raise ValueError(NO_JSON if isinstance(node, ast.Set) else NO_LITERAL)
