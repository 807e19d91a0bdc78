"""The syntax tree of a workflow program, with parents and enclosing functions at hand.

Programs are parsed and never run, and a hostile text is an `UnreadableProgram`, whatever it does to
the parser. Nothing here knows operators.
"""

import ast
import functools
import warnings
from collections.abc import Mapping
from dataclasses import dataclass

CLASS = "Workflow"
FILE = "workflow.py"
MOST_CHARACTERS = 20_000
"""Of a source; the longest published program has 6 336."""
MOST_DEPTH = 60
"""Levels of the syntax tree; ordinary programs have about 15."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
Owner = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class UnreadableProgram(Exception):
    """A text that is no program, or none that is looked at; `code` is one of `findings.CODES`."""

    def __init__(self, code: str, line: int, problem: str):
        """`line` is 0 where the parser names none."""
        super().__init__(problem)
        self.code, self.line, self.problem = code, line, problem


@dataclass(frozen=True, slots=True)
class Program:
    """A parsed program."""

    tree: ast.Module
    nodes: tuple[ast.AST, ...]
    """All statements, expressions and the like, parents before children."""
    below: Mapping[ast.AST, list[ast.AST]]
    """The children of each node, in the source's order."""
    parents: Mapping[ast.AST, ast.AST]
    owners: Mapping[ast.AST, Owner | None]
    """The innermost function or lambda around a node; None at the top level."""
    workflow: ast.ClassDef | None
    """The last class `Workflow` at the top level, which is the one that counts."""


def read_program(source: str) -> Program:
    """Parse a source. Raises UnreadableProgram."""
    if len(source) > MOST_CHARACTERS:
        raise UnreadableProgram("too_long", 0, f"{len(source)} characters")
    tree = _parsed(source)
    nodes, below, parents, owners = _indexed(tree)
    _compile(tree)
    classes = [each for each in tree.body if isinstance(each, ast.ClassDef)]
    workflows = [each for each in classes if each.name == CLASS]
    last = workflows[-1] if workflows else None
    return Program(tree, tuple(nodes), below, parents, owners, last)


def _parsed(source: str) -> ast.Module:
    """The tree of a source. Raises UnreadableProgram."""
    try:
        with warnings.catch_warnings():
            # Strange escapes and the like: a model's text, not the lab's.
            warnings.simplefilter("ignore")
            return ast.parse(source, FILE)
    except SyntaxError as error:
        raise _unreadable(error) from None
    except ValueError:
        raise UnreadableProgram("syntax", 0, "it holds null bytes or lone surrogates") from None
    except (RecursionError, MemoryError):
        raise UnreadableProgram("too_deep", 0, "too deep for the parser") from None


def _unreadable(error: SyntaxError) -> UnreadableProgram:
    deep = "too many nested" in error.msg or "too many levels" in error.msg
    return UnreadableProgram("too_deep" if deep else "syntax", error.lineno or 0, error.msg)


def _compile(tree: ast.Module) -> None:
    """Finds what only the compiler refuses, as `return` outside of a function; runs nothing.

    Raises UnreadableProgram.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(tree, FILE, "exec", dont_inherit=True)
    except SyntaxError as error:
        raise _unreadable(error) from None
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        raise UnreadableProgram("too_deep", 0, f"the compiler gives up: {error}") from None


def _indexed(
    tree: ast.Module,
) -> tuple[
    list[ast.AST], dict[ast.AST, list[ast.AST]], dict[ast.AST, ast.AST], dict[ast.AST, Owner | None]
]:
    """All nodes level by level, so that no text makes it recurse. Raises UnreadableProgram."""
    nodes: list[ast.AST] = []
    below: dict[ast.AST, list[ast.AST]] = {}
    parents: dict[ast.AST, ast.AST] = {}
    owners: dict[ast.AST, Owner | None] = {tree: None}
    level: list[ast.AST] = [tree]
    for _ in range(MOST_DEPTH):
        nodes += level
        for parent in level:
            owner = parent if isinstance(parent, Owner) else owners[parent]
            below[parent] = found = children(parent)
            for child in found:
                parents[child], owners[child] = parent, owner
        level = [child for parent in level for child in below[parent]]
        if not level:
            return nodes, below, parents, owners
    line = getattr(level[0], "lineno", 0)
    raise UnreadableProgram("too_deep", line, f"more than {MOST_DEPTH} levels deep")


def children(node: ast.AST) -> list[ast.AST]:
    """The nodes directly below, in the source's order, without operators and contexts."""
    below: list[ast.AST] = []
    for name in _fields(type(node)):
        value = getattr(node, name, None)
        if type(value) is list:
            below += [each for each in value if isinstance(each, ast.AST)]
        elif isinstance(value, ast.AST):
            below.append(value)
    return below


@functools.cache
def _fields(kind: type[ast.AST]) -> tuple[str, ...]:
    """The fields of a node that may hold nodes of its own."""
    return () if kind is ast.Constant else tuple(n for n in kind._fields if n not in _PLAIN)


_PLAIN = frozenset(
    {"ctx", "op", "ops", "id", "attr", "type_comment", "kind", "module", "level", "conversion"}
    | {"simple", "is_async", "type_ignores"}
)
"""Texts, numbers, and nodes of which the parser makes one for all places."""
