"""Checks which keys a workflow program reads of operator results, along its assignments.

A small interpreter of one function at a time: what a variable holds follows the statements,
branches are joined, and what a loop rebinds is not known any more. Only what no path could make
right is a finding.
"""

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.errors import nearest
from assay.tasks.workflows.programs.findings import Finding, found
from assay.tasks.workflows.programs.operators import Operator
from assay.tasks.workflows.programs.program_tree import Function
from assay.tasks.workflows.programs.program_values import Values
from assay.tasks.workflows.programs.validate_calls import USAGE

UNSURE = "?"
TEXT = "str"
PENDING = "pending "
"""Before the name of an operator whose call is not awaited yet."""
USAGE_KEYS = dict.fromkeys(
    ("total_input_tokens", "total_output_tokens", "total_tokens", "total_cost", "call_count"), "?"
) | {"history": "?"}
DICT_METHODS = frozenset(dir(dict))
LATER = frozenset(f"asyncio.{name}" for name in ("create_task", "ensure_future", "wait_for"))


@dataclass(frozen=True, slots=True)
class Held:
    """What an expression may hold: names of operators whose result it is, "str", or "?"."""

    results: frozenset[str] = frozenset()
    elements: frozenset[str] = frozenset()
    """Of a list: what its elements may be."""

    def __or__(self, other: "Held") -> "Held":
        """Either of both."""
        return Held(self.results | other.results, self.elements | other.elements)


UNKNOWN = Held(frozenset({UNSURE}), frozenset({UNSURE}))
Variables = dict[str, Held]


@dataclass(frozen=True, slots=True)
class Reading:
    """One pass over one function."""

    values: Values
    keys: Mapping[str, Mapping[str, str]]
    """The keys of each thing that has keys, and their types."""
    is_call: bool
    """Whether it is `__call__`, whose results are the answer."""
    findings: list[Finding] = field(default_factory=list)


def check_results(values: Values, operators: Mapping[str, Operator]) -> Iterator[Finding]:
    """Findings of the results of operators and of the llm's usage."""
    keys = {name: operator.keys for name, operator in operators.items()}
    keys = {**keys, "usage": USAGE_KEYS, TEXT: {}}
    for node in values.program.nodes:
        if isinstance(node, Function):
            is_call = node.name == "__call__"
            reading = Reading(values, keys, is_call)
            texts = [each.arg for each in node.args.args[1:]] if is_call else []
            block(node.body, {name: Held(frozenset({TEXT})) for name in texts}, reading)
            yield from reading.findings


def block(
    body: Sequence[ast.stmt], variables: Variables | None, reading: Reading
) -> Variables | None:
    """What variables hold after statements; None where nothing gets past them."""
    for statement in body:
        if variables is None:
            return None
        variables = step(statement, variables, reading)
    return variables


def step(statement: ast.stmt, variables: Variables, reading: Reading) -> Variables | None:
    """What they hold after one statement; `variables` is changed."""
    rule = RULES.get(type(statement), _simple)
    return rule(statement, variables, reading)


def _simple(statement: ast.stmt, variables: Variables, reading: Reading) -> Variables | None:
    """Every statement without blocks."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return variables | {statement.name: UNKNOWN}
    check_all(statement, variables, reading)
    match statement:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                bind(target, value, variables, reading)
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            bind(target, value, variables, reading)
        case ast.Expr(value=ast.Call() as call):
            _append(call, variables, reading)
        case ast.Return(value=ast.expr() as value):
            _returned(value, variables, reading)
            return None
        case ast.Return() | ast.Raise() | ast.Break() | ast.Continue():
            return None
        case _:
            forget(stored(statement), variables)
    return variables


def _if(statement: ast.If, variables: Variables, reading: Reading) -> Variables | None:
    check(statement.test, variables, reading)
    after = block(statement.body, dict(variables), reading)
    return join(after, block(statement.orelse, variables, reading))


def _loop(
    statement: ast.For | ast.AsyncFor | ast.While, variables: Variables, reading: Reading
) -> Variables | None:
    """The body once, with what it rebinds unknown; afterwards that is unknown again."""
    rebound = stored(statement)
    if any(isinstance(node, ast.Break | ast.Continue) for node in ast.walk(statement)):
        rebound |= appended(statement)
    if isinstance(statement, ast.While):
        forget(rebound, variables)
        check(statement.test, variables, reading)
        inside = dict(variables)
    else:
        check(statement.iter, variables, reading)
        elements = element(kind(statement.iter, variables, reading))
        forget(rebound, variables)
        inside = dict(variables)
        if isinstance(statement.target, ast.Name):
            inside[statement.target.id] = elements
    after = join(block(statement.body, inside, reading), variables) or variables
    return block(statement.orelse, after, reading) if statement.orelse else after


def _try(
    statement: ast.Try | ast.TryStar, variables: Variables, reading: Reading
) -> Variables | None:
    broken = dict(variables)
    for part in statement.body:
        forget(stored(part) | appended(part), broken)
    after = block(statement.body, variables, reading)
    after = block(statement.orelse, after, reading)
    for handler in statement.handlers:
        start = broken | ({handler.name: UNKNOWN} if handler.name else {})
        after = join(after, block(handler.body, start, reading))
    if not statement.finalbody:
        return after
    # It is also run where nothing gets past the rest.
    last = block(statement.finalbody, broken if after is None else after, reading)
    return None if after is None else last


def _with(
    statement: ast.With | ast.AsyncWith, variables: Variables, reading: Reading
) -> Variables | None:
    for item in statement.items:
        check(item.context_expr, variables, reading)
        if item.optional_vars is not None:
            forget(stored(item.optional_vars), variables)
    return block(statement.body, variables, reading)


def _match(statement: ast.Match, variables: Variables, reading: Reading) -> Variables | None:
    check(statement.subject, variables, reading)
    after: Variables | None = dict(variables)
    for case in statement.cases:
        inside = dict(variables)
        forget(stored(case.pattern), inside)
        after = join(after, block(case.body, inside, reading))
    return after


RULES: Mapping[type[ast.stmt], Callable[..., Variables | None]] = {
    ast.If: _if,
    ast.For: _loop,
    ast.AsyncFor: _loop,
    ast.While: _loop,
    ast.Try: _try,
    ast.TryStar: _try,
    ast.With: _with,
    ast.AsyncWith: _with,
    ast.Match: _match,
}


def join(one: Variables | None, other: Variables | None) -> Variables | None:
    """What variables hold where two paths meet; what only one of them bound is not known."""
    if one is None or other is None:
        return other if one is None else one
    return {name: one[name] | other[name] for name in one.keys() & other.keys()}


def forget(names: set[str], variables: Variables) -> None:
    """Variables that hold anything from here on."""
    for name in names:
        variables.pop(name, None)


def stored(node: ast.AST) -> set[str]:
    """The names that something binds, however deep."""
    names = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load):
            names.add(each.id)
        elif isinstance(each, ast.MatchAs | ast.MatchStar) and each.name:
            names.add(each.name)
    return names


def appended(node: ast.AST) -> set[str]:
    """The names of lists that something changes by a method, however deep."""
    return {
        each.func.value.id
        for each in ast.walk(node)
        if isinstance(each, ast.Call)
        and isinstance(each.func, ast.Attribute)
        and isinstance(each.func.value, ast.Name)
    }


def bind(target: ast.expr, value: ast.expr, variables: Variables, reading: Reading) -> None:
    """Assign an expression to a target."""
    if isinstance(target, ast.Name):
        variables[target.id] = kind(value, variables, reading)
        return
    forget(stored(target), variables)
    targets = target.elts if isinstance(target, ast.Tuple | ast.List) else []
    parts = gathered(value, reading)
    for name, part in zip(targets, parts if len(parts) == len(targets) else (), strict=False):
        if isinstance(name, ast.Name):
            variables[name.id] = done(kind(part, variables, reading))


def gathered(value: ast.expr, reading: Reading) -> list[ast.expr]:
    """The arguments of an awaited `asyncio.gather` without unpacking; none for anything else."""
    match value:
        case ast.Await(value=ast.Call(func=func, args=args)):
            unpacked = any(isinstance(each, ast.Starred) for each in args)
            is_gather = reading.values.names.dotted(func) == "asyncio.gather"
            return args if is_gather and not unpacked else []
    return []


def _append(call: ast.Call, variables: Variables, reading: Reading) -> None:
    """A list that a method changes: `append` adds an element, others may do anything."""
    match call:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr), args=args):
            if name in variables and attr == "append" and len(args) == 1:
                added = kind(args[0], variables, reading).results
                old = variables[name]
                variables[name] = Held(old.results, old.elements | (added or {UNSURE}))
            elif attr in ("extend", "insert", "clear", "update", "pop"):
                forget({name}, variables)


def _returned(value: ast.expr, variables: Variables, reading: Reading) -> None:
    """A finding where the answer is a whole result."""
    answer = value.elts[0] if isinstance(value, ast.Tuple) and value.elts else value
    results = kind(answer, variables, reading).results
    if reading.is_call and results and all(reading.keys.get(name) for name in results):
        names, keys = ", ".join(sorted(results)), next(iter(reading.keys[min(results)]))
        problem = f"the whole result of {names} is returned"
        hint = f"return the text under a key, such as ['{keys}']"
        reading.findings.append(found("result_returned", answer, problem, hint))


def kind(node: ast.expr, variables: Variables, reading: Reading) -> Held:
    """What an expression may hold."""
    match node:
        case ast.Name(id=name):
            return variables.get(name, UNKNOWN)
        case ast.Await(value=value):
            return done(kind(value, variables, reading))
        case ast.Call():
            return _called(node, variables, reading)
        case ast.Subscript(value=value, slice=key):
            return _item(kind(value, variables, reading), key, reading)
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return listed(elements, variables, reading)
        case ast.ListComp(elt=each) | ast.GeneratorExp(elt=each):
            inside = comprehended(node, variables, reading)
            return Held(elements=kind(each, inside, reading).results or UNKNOWN.results)
        case ast.IfExp(body=one, orelse=other):
            return kind(one, variables, reading) | kind(other, variables, reading)
        case ast.NamedExpr(value=value):
            return kind(value, variables, reading)
        case ast.JoinedStr() | ast.Constant(value=str()):
            return Held(frozenset({TEXT}))
    return UNKNOWN


def done(held: Held) -> Held:
    """What is there once it is awaited; what was not pending stays unknown."""

    def settled(names: frozenset[str]) -> frozenset[str]:
        pending = (name.removeprefix(PENDING) for name in names if name.startswith(PENDING))
        rest = {UNSURE} if any(not name.startswith(PENDING) for name in names) else set()
        return frozenset({*pending, *rest})

    return Held(settled(held.results), settled(held.elements))


def _called(call: ast.Call, variables: Variables, reading: Reading) -> Held:
    if name := reading.values.operator(call):
        return Held(frozenset({PENDING + name})) if name in reading.keys else UNKNOWN
    if isinstance(call.func, ast.Attribute) and call.func.attr == USAGE:
        return Held(frozenset({"usage"}))
    dotted = reading.values.names.dotted(call.func)
    if dotted in LATER and call.args:
        return kind(call.args[0], variables, reading)
    if dotted == "asyncio.gather":
        return listed(call.args, variables, reading)
    return UNKNOWN


def listed(elements: Sequence[ast.expr], variables: Variables, reading: Reading) -> Held:
    """A list of elements, unpacked ones included."""
    names: set[str] = set()
    for each in elements:
        if isinstance(each, ast.Starred):
            names |= kind(each.value, variables, reading).elements or {UNSURE}
        else:
            names |= kind(each, variables, reading).results or {UNSURE}
    return Held(elements=frozenset(names))


def element(held: Held) -> Held:
    """What one element of a list holds."""
    return Held(held.elements) if held.elements else UNKNOWN


def _item(held: Held, key: ast.expr, reading: Reading) -> Held:
    match key:
        case ast.Constant(value=str(name)):
            types = {reading.keys.get(each, {}).get(name, UNSURE) for each in held.results}
            return Held(frozenset(types)) if types == {TEXT} else UNKNOWN
        case ast.Slice():
            return held
    return element(held)


def comprehended(
    node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp,
    variables: Variables,
    reading: Reading,
) -> Variables:
    """The variables inside a comprehension."""
    inside = dict(variables)
    for part in node.generators:
        elements = element(kind(part.iter, inside, reading))
        forget(stored(part.target), inside)
        if isinstance(part.target, ast.Name):
            inside[part.target.id] = elements
    return inside


def check_all(node: ast.AST, variables: Variables, reading: Reading) -> None:
    """Look at every expression of a statement."""
    for child in reading.values.program.below[node]:
        check(child, variables, reading)


def check(node: ast.AST, variables: Variables, reading: Reading) -> None:
    """Findings of an expression and of all inside it."""
    rule = EXPRESSIONS.get(type(node))
    check_all(node, variables if rule is None else rule(node, variables, reading), reading)


def _check_comprehension(node: Any, variables: Variables, reading: Reading) -> Variables:
    return comprehended(node, variables, reading)


def _check_lambda(node: ast.Lambda, variables: Variables, reading: Reading) -> Variables:
    inside = dict(variables)
    forget({each.arg for each in node.args.args}, inside)
    return inside


def _check_walrus(node: ast.NamedExpr, variables: Variables, reading: Reading) -> Variables:
    bind(node.target, node.value, variables, reading)
    return variables


def _check_subscript(node: ast.Subscript, variables: Variables, reading: Reading) -> Variables:
    match node:
        case ast.Subscript(slice=ast.Constant(value=str(key)), ctx=ast.Load()):
            _key(node, kind(node.value, variables, reading), key, reading)
    return variables


def _check_get(node: ast.Call, variables: Variables, reading: Reading) -> Variables:
    match node:
        case ast.Call(
            func=ast.Attribute(value=value, attr="get"), args=[ast.Constant(value=str(key)), *_]
        ):
            _key(node, kind(value, variables, reading), key, reading)
    return variables


def _check_attribute(node: ast.Attribute, variables: Variables, reading: Reading) -> Variables:
    held = kind(node.value, variables, reading).results
    if held and TEXT not in held and node.attr not in DICT_METHODS:
        _key(node, Held(held), node.attr, reading, only_missing=False)
    return variables


EXPRESSIONS: Mapping[type[ast.AST], Callable[..., Variables]] = {
    ast.ListComp: _check_comprehension,
    ast.SetComp: _check_comprehension,
    ast.GeneratorExp: _check_comprehension,
    ast.DictComp: _check_comprehension,
    ast.Lambda: _check_lambda,
    ast.NamedExpr: _check_walrus,
    ast.Subscript: _check_subscript,
    ast.Call: _check_get,
    ast.Attribute: _check_attribute,
}


def _key(node: ast.AST, held: Held, key: str, reading: Reading, only_missing: bool = True) -> None:
    """A finding where none of the things held has the key, or where it is read as attribute."""
    names = held.results or held.elements
    if not names or any(name not in reading.keys for name in names):
        return
    keys = sorted({key for name in names for key in reading.keys[name]})
    if held.results and only_missing and key in keys:
        return
    whose = ", ".join(sorted(names))
    known = nearest(key, keys) if held.results and keys else "it is no result of an operator"
    hint = known if only_missing else f"write ['{key}']" if key in keys else known
    problem = f"{whose} has no key {key!r}" if only_missing else f"{whose} has no .{key}"
    reading.findings.append(found("unknown_key", node, problem, hint))
