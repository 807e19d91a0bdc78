"""The shape of a workflow program: its operators, its control structure, its tree without names.

Read off the source alone, which is never run: a call in a loop counts once, whatever the loop does.
"""

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from assay.tasks.workflows.programs.operators import OPERATORS, Operator
from assay.tasks.workflows.programs.program_tree import (
    Function,
    Program,
    UnreadableProgram,
    read_program,
)
from assay.tasks.workflows.programs.program_values import ATTRIBUTE, Values, read_values

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


def shape_of(source: str, operators: Mapping[str, Operator] = OPERATORS) -> Shape | None:
    """The shape of a program; None where it cannot be read. Calls of unknown operators count not.

    What names stand for in the fingerprint: those that the program binds, and attributes of `self`,
    are numbered in order; operators, keywords and names from outside stay, constants leave their
    type. Imports, annotations and docstrings do not count.
    """
    try:
        program = read_program(source)
    except UnreadableProgram:
        return None
    values = read_values(program)
    calls = [values.operator(node) for node in program.nodes if isinstance(node, ast.Call)]
    counts = Counter(name for name in calls if name in operators)
    lines = sum(bool(line.strip()) for line in source.splitlines())
    found = dict(sorted(counts.items()))
    return Shape(found, fingerprint(program, values), structure_of(program, counts), lines)


@lru_cache(maxsize=4096)
def known_shape(source: str) -> Shape | None:
    """`shape_of` with all operators, remembered: the programs of a run repeat each other."""
    return shape_of(source)


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


def fingerprint(program: Program, values: Values) -> str:
    """The hash of the tree as `written` spells it."""
    text = " ".join(written(program.tree, program, values, {}))
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]


def written(
    node: ast.AST, program: Program, values: Values, numbers: dict[str, int]
) -> Iterator[str]:
    """The tree in words, parents before children; `numbers` grows with each new name."""
    if isinstance(node, ast.Import | ast.ImportFrom) or is_note(node):
        return
    yield type(node).__name__
    yield from labels(node, values, numbers)
    yield "("
    for child in program.below[node]:
        if not is_annotation(child, program):
            yield from written(child, program, values, numbers)
    yield ")"


def labels(node: ast.AST, values: Values, numbers: dict[str, int]) -> Iterator[str]:
    """What a node says beside its children."""
    match node:
        case ast.Constant(value=value):
            yield type(value).__name__
        case ast.Name(id=name):
            yield numbered(name, numbers) if name in values.names.anywhere else name
        case ast.arg(arg=name):
            yield numbered(name, numbers)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            kept = name.startswith("__") or node is values.program.workflow
            yield name if kept else numbered(name, numbers)
        case ast.Attribute(attr=name):
            place = values.place(node)
            is_own = place is not None and place[0] == ATTRIBUTE
            yield numbered(name, numbers) if is_own else name
        case ast.keyword(arg=name):
            yield name or "**"
        case ast.BinOp(op=op) | ast.UnaryOp(op=op) | ast.BoolOp(op=op) | ast.AugAssign(op=op):
            yield type(op).__name__
        case ast.Compare(ops=ops):
            yield from (type(op).__name__ for op in ops)


def numbered(name: str, numbers: dict[str, int]) -> str:
    """The number of a name, by first appearance."""
    return f"#{numbers.setdefault(name, len(numbers))}"


def is_note(node: ast.AST) -> bool:
    """Whether a statement is a text that nothing uses."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def is_annotation(node: ast.AST, program: Program) -> bool:
    """Whether an expression is a type's."""
    parent = program.parents[node]
    if isinstance(parent, Function):
        return node is parent.returns
    return isinstance(parent, ast.arg | ast.AnnAssign) and node is parent.annotation
