"""The validator's part about operators: made, awaited, called with the right keywords, and their
results read by keys that they have.

Results are followed through assignments to plain names. What cannot be followed is let through.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from assay.errors import nearest
from assay.tasks.workflows.execution import Finding
from assay.tasks.workflows.operators import OPERATORS, Operator

USAGE = "get_usage_summary"
"""The only method of the model that programs may call."""
TOGETHER = ("gather", "create_task", "wait_for", "ensure_future", "wait", "as_completed", "run")
"""Functions of asyncio that await what they are given."""


@dataclass(frozen=True)
class Made:
    """The operators that a program makes."""

    attributes: Mapping[str, Operator]
    """Attribute of `self` -> operator."""
    others: frozenset[str]
    """Other attributes of `self` that are assigned or defined."""
    unknown: frozenset[str]
    """Attributes that a class was made for that is no operator."""


def call_findings(
    tree: ast.Module, program: ast.ClassDef, operators: Mapping[str, Operator]
) -> Iterator[Finding]:
    """All findings about operators."""
    yield from unknown_operators(program, operators)
    made = made_in(program)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(program):
        if isinstance(node, ast.Call):
            yield from _of_call(node, made, parents)
        elif isinstance(node, ast.Attribute) and _is_llm(node.value) and node.attr != USAGE:
            hint = f"call an operator; of the model there is {USAGE}()"
            yield Finding("llm", node.lineno, f"self.llm.{node.attr}", hint)
    yield from unknown_keys(program, made)


def made_in(program: ast.ClassDef) -> Made:
    """What the class assigns to attributes of `self`."""
    attributes: dict[str, Operator] = {}
    unknown, others = set(), set()
    for node in program.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            others.add(node.name)
    for node in ast.walk(program):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        for target in targets:
            name = attribute_of_self(target)
            if name is None:
                continue
            kind = class_made(node.value)  # type: ignore[union-attr]
            if kind is None:
                others.add(name)
            elif kind in OPERATORS:
                attributes[name] = OPERATORS[kind]
            else:
                unknown.add(name)
    return Made(attributes, frozenset(others - attributes.keys()), frozenset(unknown))


def attribute_of_self(node: ast.AST) -> str | None:
    """NAME of `self.NAME`."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.attr if node.value.id == "self" else None
    return None


def class_made(value: ast.expr) -> str | None:
    """NAME of `operator.NAME(...)` or of a call of an operator's class by its own name."""
    if not isinstance(value, ast.Call):
        return None
    func = value.func
    if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name):
        return func.attr if func.value.id == "operator" else None
    return func.id if isinstance(func, ast.Name) and func.id in OPERATORS else None


def unknown_operators(
    program: ast.ClassDef, operators: Mapping[str, Operator]
) -> Iterator[Finding]:
    """Classes that are made and are no operators, or none that may be used here."""
    for node in ast.walk(program):
        if not isinstance(node, ast.Call):
            continue
        kind = class_made(node)
        if kind is not None and kind not in operators:
            why = f"there is no operator {kind}" if kind not in OPERATORS else f"{kind} is not here"
            yield Finding("unknown_operator", node.lineno, why, nearest(kind, operators))


def _of_call(node: ast.Call, made: Made, parents: Mapping[ast.AST, ast.AST]) -> Iterator[Finding]:
    if _is_llm(node.func):
        hint = 'call an operator, such as self.custom(input=problem, instruction="")'
        yield Finding("llm", node.lineno, "a call of the model itself", hint)
        return
    name = attribute_of_self(node.func)
    if name is None or name in made.others or name in made.unknown:
        return
    if name not in made.attributes:
        hint = f"write self.{name} = operator.NAME(self.llm) in __init__"
        yield Finding("not_made", node.lineno, f"self.{name} is no operator that was made", hint)
        return
    operator = made.attributes[name]
    if not is_awaited(node, parents):
        hint = f"write await self.{name}(...)"
        yield Finding("not_awaited", node.lineno, f"self.{name} is not awaited", hint)
    yield from keywords(node, operator)


def is_awaited(node: ast.Call, parents: Mapping[ast.AST, ast.AST]) -> bool:
    """Whether a call is awaited, or given to asyncio, or kept in a list or a name that may be."""
    above = parents[node]
    while isinstance(above, ast.List | ast.Tuple | ast.ListComp | ast.GeneratorExp | ast.Starred):
        above = parents[above]
    if isinstance(above, ast.Await):
        return True
    if isinstance(above, ast.Call):
        func = above.func
        name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
        return name in (*TOGETHER, "append")
    # A list of calls under a name, which asyncio.gather is given later.
    return isinstance(above, ast.Assign) and parents[node] is not above


def keywords(node: ast.Call, operator: Operator) -> Iterator[Finding]:
    """Arguments that the operator does not have, and required ones that are missing."""
    names = [each.name for each in operator.parameters]
    open_ = any(isinstance(each, ast.Starred) for each in node.args)
    open_ |= any(each.arg is None for each in node.keywords)
    if len(node.args) > len(names):
        problem = f"{len(node.args)} arguments"
        yield Finding("unknown_keyword", node.lineno, problem, operator.signature)
    given = {*names[: len(node.args)]}
    for keyword in node.keywords:
        if keyword.arg is not None and keyword.arg not in names:
            problem = f"{operator.attribute} has no parameter {keyword.arg!r}"
            yield Finding("unknown_keyword", node.lineno, problem, operator.signature)
        given.add(keyword.arg or "")
    for each in operator.parameters:
        if each.required and each.name not in given and not open_:
            problem = f"{operator.attribute} needs {each.name!r}"
            yield Finding("missing_keyword", node.lineno, problem, operator.signature)


def unknown_keys(program: ast.ClassDef, made: Made) -> Iterator[Finding]:
    """Keys that no operator returns whose result stands under the name."""
    for function in ast.walk(program):
        if not isinstance(function, ast.AsyncFunctionDef | ast.FunctionDef):
            continue
        results = results_in(function, made)
        for node in ast.walk(function):
            if not isinstance(node, ast.Subscript | ast.Call):
                continue
            operators = read_operators(node, results, made)
            key = key_of(node)
            if operators and key is not None and all(key not in o.returns for o in operators):
                returned = " or ".join(o.signature for o in operators)
                yield Finding("unknown_key", node.lineno, f"no key {key!r}", returned)


def results_in(function: ast.AST, made: Made) -> dict[str, list[Operator]]:
    """Names to which nothing but results of operators is assigned."""
    found: dict[str, list[Operator]] = {}
    other: set[str] = set()
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                operator = awaited_operator(node.value, made)
                if operator is None:
                    other.add(name)
                else:
                    found.setdefault(name, []).append(operator)
            case ast.arg(arg=name):
                other.add(name)
            case ast.Name(id=name, ctx=ast.Store()) if name not in found:
                pass
    stored = [n.id for n in ast.walk(function) if isinstance(n, ast.Name) and _stores(n)]
    several = {name for name in found if stored.count(name) != len(found[name])}
    return {name: each for name, each in found.items() if name not in other | several}


def _stores(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def awaited_operator(value: ast.AST | None, made: Made) -> Operator | None:
    """The operator of `await self.NAME(...)`."""
    if isinstance(value, ast.Await) and isinstance(value.value, ast.Call):
        name = attribute_of_self(value.value.func)
        return made.attributes.get(name) if name else None
    return None


def read_operators(
    node: ast.AST, results: Mapping[str, list[Operator]], made: Made
) -> list[Operator]:
    """The operators whose result a subscript or a `get` reads."""
    value: ast.AST | None = None
    if isinstance(node, ast.Subscript):
        value = node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        value = node.func.value if node.func.attr == "get" else None
    if isinstance(value, ast.Name):
        return results.get(value.id, [])
    operator = awaited_operator(value, made)
    return [operator] if operator else []


def key_of(node: ast.AST) -> str | None:
    """The text by which a subscript or a `get` reads."""
    inner: ast.AST | None = None
    if isinstance(node, ast.Subscript):
        inner = node.slice
    elif isinstance(node, ast.Call) and node.args:
        inner = node.args[0]
    is_text = isinstance(inner, ast.Constant) and isinstance(inner.value, str)
    return inner.value if is_text else None  # type: ignore[union-attr]


def _is_llm(node: ast.AST) -> bool:
    return attribute_of_self(node) == "llm" or (isinstance(node, ast.Name) and node.id == "llm")
