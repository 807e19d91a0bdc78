"""The English texts that a module can name a test with, read from its source.

A text with gaps is written with a 7 in the place of each. Values that only the program knows, such
as names of runs, are no texts; neither are texts without a word.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path

GAP = "7"
Values = Mapping[str, list[ast.expr]]


class Module:
    """The texts of one module; a name stands for what is assigned to it where it is used, else in
    the module."""

    def __init__(self, file: Path):
        self.tree = ast.parse(file.read_text(encoding="utf-8"))
        self.functions = {n.name: n for n in ast.walk(self.tree) if isinstance(n, ast.FunctionDef)}
        self.own = assigned(self.tree.body)

    def methods(self) -> Iterator[str]:
        """Every name of the test of a comparison, piece by piece."""
        for call, values in self.calls():
            first = ast.unparse(call.args[0]) if call.args else ""
            if getattr(call.func, "id", "") in ("Comparison", "planned") or first == "found":
                for keyword in call.keywords:
                    if keyword.arg == "method":
                        for text in self.texts(keyword.value, values):
                            yield from filter(worded, text.split("; "))

    def calls(self) -> Iterator[tuple[ast.Call, Values]]:
        """Every call in a function, with what the names in it stand for."""
        for function in self.functions.values():
            values = {**self.own, **assigned(list(ast.walk(function)))}
            yield from ((n, values) for n in ast.walk(function) if isinstance(n, ast.Call))

    def texts(self, value: ast.expr, values: Values) -> Iterator[str]:
        """What an expression can say."""
        match value:
            case ast.Constant(value=str(text)):
                yield from filter(worded, [text])
            case ast.JoinedStr(values=pieces):
                said = product(*(self.pieces(piece, values) for piece in pieces))
                yield from filter(worded, map("".join, said))
            case ast.IfExp(body=body, orelse=other):
                yield from (*self.texts(body, values), *self.texts(other, values))
            case ast.Name(id=name) | ast.Subscript(value=ast.Name(id=name)):
                for each in values.get(name, []):
                    yield from self.texts(each, values)
            case ast.Call(func=ast.Name(id=name)) if name in self.functions:
                called = self.functions[name]
                values = {**self.own, **assigned(list(ast.walk(called)))}
                for node in ast.walk(called):
                    if isinstance(node, ast.Return) and node.value is not None:
                        yield from self.texts(node.value, values)

    def pieces(self, piece: ast.expr, values: Values) -> list[str]:
        """What a piece of a text with gaps can be."""
        if isinstance(piece, ast.Constant):
            return [str(piece.value)]
        inner = piece.value if isinstance(piece, ast.FormattedValue) else piece
        if isinstance(inner, ast.IfExp | ast.Call):
            blank = [""] if isinstance(inner, ast.IfExp) and "''" in ast.unparse(inner) else []
            return [*self.texts(inner, values), *blank] or [GAP]
        return [GAP]


def assigned(nodes: Sequence[ast.AST]) -> Values:
    """What is assigned to names; of a table its values, of a loop over a table its keys."""
    found: dict[str, list[ast.expr]] = {}
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict(values=parts)):
                found.setdefault(name, []).extend(parts)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found.setdefault(name, []).append(value)
    tables = {
        node.targets[0].id: node.value.keys
        for node in nodes
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Dict)
    }
    for node in nodes:
        match node:
            case ast.comprehension(
                target=ast.Tuple(elts=[ast.Name(id=key), *_]),
                iter=ast.Call(func=ast.Attribute(value=ast.Name(id=table), attr="items")),
            ):
                found.setdefault(key, []).extend(k for k in tables.get(table, []) if k)
    return found


def worded(text: str) -> bool:
    """Whether a text has a word of two letters."""
    return bool(re.search(r"[A-Za-z]{2}", text))
