"""The shape of a workflow program: its operators, its control structure, its tree without names.

Read off the source alone, which is never run: a call in a loop counts once, whatever the loop does.
"""

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from assay.tasks.workflows.programs.operators import OPERATORS
from assay.tasks.workflows.programs.program import (
    ATTRIBUTE,
    Program,
    UnreadableProgram,
    is_annotation,
    read_program,
)

LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.comprehension)
BRANCHES = (ast.If, ast.IfExp, ast.Match)
ENSEMBLES, REVIEWS = {"ScEnsemble", "MdEnsemble"}, {"Review", "Test"}
"""Operators that choose among several answers, and that judge one."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of one program."""

    operators: Mapping[str, int]
    """How many calls of each operator stand in the source, by name in order."""
    fingerprint: str
    """16 hex digits; equal where two trees are, but for names, constants, imports and notes."""

    structure: tuple[str, ...] = ()
    """Which of "loop", "branch", "ensemble" and "review" the program has, in this order."""
    lines: int = 0
    """Lines of the source that are not blank."""

    @property
    def combination(self) -> str:
        """The operators that are called, such as "Custom+ScEnsemble"; "" for none."""
        return "+".join(self.operators)

    @property
    def calls(self) -> int:
        """Operator calls in the source."""
        return sum(self.operators.values())


@lru_cache(maxsize=4096)
def shape_of(source: str) -> Shape | None:
    """The shape of a program; None where it cannot be read. Calls of unknown operators count not.
    It is remembered: the programs of a run repeat each other.

    What names stand for in the fingerprint: those that the program binds, and attributes of `self`,
    are numbered in order; operators, keywords and names from outside stay, constants leave their
    type. Imports, annotations and docstrings do not count.
    """
    try:
        program = read_program(source)
    except UnreadableProgram:
        return None
    calls = [program.operator(node) for node in program.nodes if isinstance(node, ast.Call)]
    counts = Counter(name for name in calls if name in OPERATORS)
    lines = sum(bool(line.strip()) for line in source.splitlines())
    text = " ".join(written(program.tree, program, {}))
    fingerprint = hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]
    return Shape(dict(sorted(counts.items())), fingerprint, structure_of(program, counts), lines)


def structure_of(program: Program, operators: Mapping[str, int]) -> tuple[str, ...]:
    """The control structure of a program that calls these operators; comprehensions are loops,
    conditional expressions branches."""
    marks = {
        "loop": any(isinstance(node, LOOPS) for node in program.nodes),
        "branch": any(isinstance(node, BRANCHES) for node in program.nodes),
        "ensemble": not ENSEMBLES.isdisjoint(operators),
        "review": not REVIEWS.isdisjoint(operators),
    }
    return tuple(name for name, found in marks.items() if found)


def written(node: ast.AST, program: Program, numbers: dict[str, int]) -> Iterator[str]:
    """The tree in words, parents before children; `numbers` grows with each new name."""
    is_note = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    if is_note or isinstance(node, ast.Import | ast.ImportFrom):
        return
    yield type(node).__name__
    yield from labels(node, program, numbers)
    yield "("
    for child in program.below[node]:
        if not is_annotation(child, program):
            yield from written(child, program, numbers)
    yield ")"


def labels(node: ast.AST, program: Program, numbers: dict[str, int]) -> Iterator[str]:
    """What a node says beside its children."""

    def numbered(name: str) -> str:
        return f"#{numbers.setdefault(name, len(numbers))}"

    match node:
        case ast.Constant(value=value):
            yield type(value).__name__
        case ast.Name(id=name):
            yield numbered(name) if name in program.bound else name
        case ast.arg(arg=name):
            yield numbered(name)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            kept = name.startswith("__") or node is program.workflow
            yield name if kept else numbered(name)
        case ast.Attribute(attr=name):
            place = program.place(node)
            is_own = place is not None and place[0] == ATTRIBUTE
            yield numbered(name) if is_own else name
        case ast.keyword(arg=name):
            yield name or "**"
        case ast.BinOp(op=op) | ast.UnaryOp(op=op) | ast.BoolOp(op=op) | ast.AugAssign(op=op):
            yield type(op).__name__
        case ast.Compare(ops=ops):
            yield from (type(op).__name__ for op in ops)
