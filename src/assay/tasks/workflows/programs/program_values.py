"""What the attributes and variables of a workflow program hold: operators, llms, functions.

Read off assignments alone, wherever they stand; a name that is assigned several different things
holds nothing known.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from assay.tasks.workflows.programs.program_names import Names, read_names
from assay.tasks.workflows.programs.program_tree import Function, Owner, Program

OPERATOR = "operator:"
LLM = "llm"
ASYNC, SYNC = "async function", "function"
ATTRIBUTE = "self"
OTHER = ""
COROUTINES = frozenset(f"asyncio.{name}" for name in ("gather", "sleep", "wait", "wait_for"))

Place = tuple[Owner | str | None, str]
"""A variable of a function or of the top level, or ("self", an attribute)."""


@dataclass(frozen=True, slots=True)
class Values:
    """A program with what its names stand for and hold."""

    program: Program
    names: Names
    selves: Mapping[Owner | None, str]
    """What `self` is called in a method of `Workflow` and in the functions inside of it."""
    held: Mapping[Place, str]
    """"operator:NAME", "llm", "function", "" for anything else, and "async function" for all of
    which a call has to be awaited."""
    lines: Mapping[Place, tuple[tuple[Owner | None, int], ...]]
    """Where each place is set: by which function, on which line."""
    loads: Mapping[str, list[ast.Name]]
    """Where a name is read."""

    def place(self, node: ast.AST) -> Place | None:
        """The variable or attribute that an expression names; None for anything else."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = self.program.owners.get(node)
            is_self = node.value.id == self.selves.get(owner)
            return (ATTRIBUTE, node.attr) if is_self else None
        if not isinstance(node, ast.Name):
            return None
        owner = self.program.owners.get(node)
        while owner is not None and node.id not in self.names.bound.get(owner, ()):
            owner = self.program.owners[owner]
        return owner, node.id

    def value(self, node: ast.AST) -> str:
        """What an expression holds, as in `held`."""
        if isinstance(node, ast.Call):
            if name := self.names.operator_class(node.func):
                return OPERATOR + name
            return LLM if self.names.llm_maker(node.func) else OTHER
        place = self.place(node)
        return self.held.get(place, OTHER) if place else OTHER

    def operator(self, call: ast.Call) -> str:
        """The name of the operator that is called; "" where it is none."""
        value = self.value(call.func)
        return value[len(OPERATOR) :] if value.startswith(OPERATOR) else ""

    def makes_coroutine(self, call: ast.Call) -> bool:
        """Whether what a call gives has to be awaited."""
        value = self.value(call.func)
        if value.startswith(OPERATOR) or value == ASYNC:
            return True
        return self.names.dotted(call.func) in COROUTINES


def read_values(program: Program) -> Values:
    """Everything that a program's assignments and definitions say."""
    names = read_names(program)
    loads = read_loads(program)
    bare = Values(program, names, selves_of(program), {}, {}, loads)
    found: dict[Place, set[str]] = {}
    aliases: list[tuple[Place, ast.AST]] = []
    lines: dict[Place, list[tuple[Owner | None, int]]] = {}
    for node, value in bindings(program):
        place = class_place(node, program) or bare.place(node)
        if place is None:
            continue
        owner = program.owners.get(node)
        lines.setdefault(place, []).append((owner, getattr(node, "lineno", 0)))
        if isinstance(value, ast.Name | ast.Attribute):
            aliases.append((place, value))
        else:
            found.setdefault(place, set()).add(held_by(value, bare))
    first = replace(bare, held=settled(found))
    for place, value in aliases:
        found.setdefault(place, set()).add(first.value(value))
    places = {place: tuple(found) for place, found in lines.items()}
    values = replace(bare, held=settled(found), lines=places)
    return replace(values, held={**values.held, **dict.fromkeys(handing_on(values), ASYNC)})


def read_loads(program: Program) -> dict[str, list[ast.Name]]:
    """The places where each name is read."""
    loads: dict[str, list[ast.Name]] = {}
    for node in program.nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            loads.setdefault(node.id, []).append(node)
    return loads


def handing_on(values: Values) -> Iterator[Place]:
    """Where plain functions and lambdas are kept that return what has to be awaited."""
    program = values.program
    for node in program.nodes:
        owner = program.owners[node]
        if isinstance(node, ast.Return) and isinstance(owner, ast.FunctionDef):
            place = class_place(owner, program)
            if place and isinstance(node.value, ast.Call) and values.makes_coroutine(node.value):
                yield place
    for target, value in bindings(program):
        if isinstance(value, ast.Lambda) and isinstance(value.body, ast.Call):
            place = values.place(target)
            if place and values.makes_coroutine(value.body):
                yield place


def settled(found: Mapping[Place, set[str]]) -> dict[Place, str]:
    """What a place holds where all that is put there is the same."""
    return {place: next(iter(all_)) if len(all_) == 1 else OTHER for place, all_ in found.items()}


def held_by(value: ast.AST | None, values: Values) -> str:
    """What a place holds that is bound to an expression or a definition."""
    if isinstance(value, ast.AsyncFunctionDef):
        return ASYNC
    if isinstance(value, ast.FunctionDef):
        return SYNC
    return OTHER if value is None else values.value(value)


def bindings(program: Program) -> Iterator[tuple[ast.AST, ast.AST | None]]:
    """Every name or attribute that is bound, and to what; None where that is not simply said."""
    for node in program.nodes:
        if isinstance(node, Function):
            yield node, node
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node, bound_value(node, program.parents[node], program)


def bound_value(node: ast.AST, parent: ast.AST, program: Program) -> ast.AST | None:
    """The expression that a target is assigned."""
    match parent:
        case ast.Assign(value=value) | ast.AnnAssign(value=value) | ast.NamedExpr(value=value):
            return value
        case ast.Tuple(elts=targets):
            grandparent = program.parents[parent]
            if isinstance(grandparent, ast.Assign) and isinstance(grandparent.value, ast.Tuple):
                values = grandparent.value.elts
                same = len(values) == len(targets)
                return values[targets.index(node)] if same else None  # type: ignore[arg-type]
    return None


def class_place(node: ast.AST, program: Program) -> Place | None:
    """The place of what is bound in the class `Workflow` itself, methods among it."""
    at = node if isinstance(node, Function) else program.parents.get(node)
    name = getattr(node, "name", None) or getattr(node, "id", None)
    if name and at is not None and program.parents.get(at) is (program.workflow or program):
        return ATTRIBUTE, name
    return (program.owners.get(node), name) if name and isinstance(node, Function) else None


def selves_of(program: Program) -> dict[Owner | None, str]:
    """The name of `self` by function; "" outside of `Workflow`."""
    selves: dict[Owner | None, str] = {}
    for node in program.nodes:
        if not isinstance(node, Owner):
            continue
        if program.parents.get(node) is program.workflow and isinstance(node, Function):
            arguments = (*node.args.posonlyargs, *node.args.args)
            selves[node] = arguments[0].arg if arguments else ""
        else:
            selves[node] = selves.get(program.owners.get(node), "")
    return selves
