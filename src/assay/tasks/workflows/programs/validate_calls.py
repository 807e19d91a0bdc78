"""Checks how a workflow program makes operators and calls them: names, arguments, await."""

import ast
from collections.abc import Iterator, Mapping

from assay.errors import nearest
from assay.tasks.workflows.programs.findings import Finding, found
from assay.tasks.workflows.programs.operators import MOST_COUNT, Operator, Parameter
from assay.tasks.workflows.programs.program_tree import Function
from assay.tasks.workflows.programs.program_values import (
    ATTRIBUTE,
    LLM,
    OPERATOR,
    SYNC,
    Place,
    Values,
)

USAGE = "get_usage_summary"
MOST_LOOPS = 3
"""Loops inside each other through which a coroutine is followed."""
SETUP = frozenset({"llm", "name"})


def check_calls(values: Values, operators: Mapping[str, Operator]) -> Iterator[Finding]:
    """Findings of operators' making and calling, of the llm and of attributes of `self`."""
    for node in values.program.nodes:
        if isinstance(node, ast.Call):
            yield from _making(node, values, operators)
            yield from _calling(node, values, operators)
            if values.makes_coroutine(node) and not awaited(node, values):
                shown = name_of(node)
                hint = f"write: await {shown}(...)"
                yield found("not_awaited", node, f"{shown}(...) is not awaited", hint)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield from _attribute(node, values, operators)
        elif isinstance(node, ast.Await) and isinstance(node.value, ast.Call):
            yield from _await(node.value, values)


def name_of(call: ast.Call) -> str:
    """What is called, as it stands."""
    return ast.unparse(call.func)


def _making(call: ast.Call, values: Values, operators: Mapping[str, Operator]) -> Iterator[Finding]:
    name = values.names.operator_class(call.func)
    if not name:
        return
    if name not in operators:
        yield found("unknown_operator", call, f"no operator {name!r}", nearest(name, operators))
        return
    keywords = {keyword.arg for keyword in call.keywords}
    right = len(call.args) + ("llm" in keywords) > 0 and len(call.args) <= len(SETUP)
    if not right or not keywords <= SETUP:
        problem = f"{name} is made with ({', '.join(map(ast.unparse, call.args))})"
        yield found("operator_setup", call, problem, f"write operator.{name}(self.llm)")


def _calling(
    call: ast.Call, values: Values, operators: Mapping[str, Operator]
) -> Iterator[Finding]:
    held = values.value(call.func)
    if held == LLM:
        hint = "call an operator instead, such as Custom"
        yield found("llm_called", call, f"{name_of(call)}(...) asks the llm itself", hint)
    place = values.place(call.func)
    if place is not None and not made_before(place, call, values):
        yield from _not_made(place, call, values, operators)
    operator = operators.get(values.operator(call))
    if operator is not None:
        yield from _arguments(call, operator)


def _not_made(
    place: Place, call: ast.Call, values: Values, operators: Mapping[str, Operator]
) -> Iterator[Finding]:
    """A finding for a call of an attribute, or of a variable that holds an operator later on."""
    name, held = name_of(call), values.value(call.func)
    if place[0] == ATTRIBUTE and not _inherits(values):
        likely = [each.name for each in operators.values() if each.attribute == place[1]]
        hint = f"in __init__: {name} = operator.{likely[0] if likely else 'NAME'}(self.llm)"
        yield found("not_instantiated", call, f"{name} is called, but nothing made it", hint)
    elif place[0] != ATTRIBUTE and held.startswith(OPERATOR):
        hint = f"above: {name} = operator.{held[len(OPERATOR) :]}(self.llm)"
        yield found("not_instantiated", call, f"{name} is called before it is made", hint)


def made_before(place: Place, use: ast.expr, values: Values) -> bool:
    """Whether a place is set, in `__init__`, in another method, or above the line of its use."""
    owner = values.program.owners.get(use)
    for setter, line in values.lines.get(place, ()):
        if setter is not owner or line < use.lineno:
            return True
    return False


def _arguments(call: ast.Call, operator: Operator) -> Iterator[Finding]:
    """Findings of one call's arguments; unpacked ones hide what is given."""
    unpacked = any(isinstance(each, ast.Starred) for each in call.args)
    if len(call.args) > len(operator.parameters) and not unpacked:
        problem = f"{operator.name} takes {len(operator.parameters)} arguments"
        yield found("too_many_arguments", call, problem, f"write {operator.signature}")
    given: dict[str, ast.expr] = {}
    if not unpacked:
        places = zip(operator.parameters, call.args, strict=False)
        given = {parameter.name: value for parameter, value in places}
    for keyword in call.keywords:
        yield from _keyword(keyword, given, operator)
    unpacked = unpacked or any(keyword.arg is None for keyword in call.keywords)
    for parameter in operator.parameters:
        if parameter.name in given:
            yield from _type(given[parameter.name], parameter, operator)
        elif parameter.required and not unpacked:
            problem = f"{operator.name} needs {parameter.name}"
            yield found("missing_parameter", call, problem, f"write {operator.signature}")


def _keyword(
    keyword: ast.keyword, given: dict[str, ast.expr], operator: Operator
) -> Iterator[Finding]:
    """Findings of one keyword, which is added to what is given."""
    known = [each.name for each in operator.parameters]
    if keyword.arg is None:
        return
    if keyword.arg not in known:
        problem = f"{operator.name} has no parameter {keyword.arg!r}"
        yield found("unknown_parameter", keyword, problem, nearest(keyword.arg, known))
    elif keyword.arg in given:
        problem = f"{keyword.arg!r} is given twice"
        yield found("repeated_parameter", keyword, problem, f"write {operator.signature}")
    given[keyword.arg] = keyword.value


def _type(value: ast.expr, parameter: Parameter, operator: Operator) -> Iterator[Finding]:
    """A finding where a literal cannot be what the parameter needs."""
    if (wanted := NO[parameter.kind](value)) is not None:
        problem = f"{parameter.name} of {operator.name} is not {wanted}"
        yield found("wrong_type", value, problem, f"give {wanted}")


def _no_text(value: ast.expr) -> str | None:
    wrong = isinstance(value, ast.Lambda) or (
        isinstance(value, ast.Constant) and value.value is None
    )
    return "a text" if wrong else None


def _no_texts(value: ast.expr) -> str | None:
    single = ast.Constant | ast.JoinedStr | ast.Dict | ast.Await | ast.Lambda
    empty = isinstance(value, ast.List | ast.Tuple) and not value.elts
    return "a list of texts" if empty or isinstance(value, single) else None


def _no_count(value: ast.expr) -> str | None:
    if not isinstance(value, ast.Constant):
        return None
    whole = type(value.value) is int and 1 <= value.value <= MOST_COUNT
    return None if whole else f"a whole number from 1 to {MOST_COUNT}"


NO = {"text": _no_text, "texts": _no_texts, "count": _no_count}


def _attribute(
    node: ast.Attribute, values: Values, operators: Mapping[str, Operator]
) -> Iterator[Finding]:
    parent = values.program.parents.get(node)
    called = isinstance(parent, ast.Call) and parent.func is node
    held = values.value(node.value)
    if held == LLM and not (called and node.attr == USAGE):
        problem = f"{ast.unparse(node)} is not there"
        yield found("llm_attribute", node, problem, f"an llm has only {USAGE}(), called")
    elif held.startswith(OPERATOR):
        hint = f"await it: {ast.unparse(node.value)}(...)"
        yield found("unknown_attribute", node, f"an operator has no {node.attr!r}", hint)
    place = values.place(node)
    read = place is not None and place[0] == ATTRIBUTE and not called
    if read and place not in values.lines and not _inherits(values):
        hint = f"set self.{node.attr} in __init__"
        yield found("unset_attribute", node, f"nothing sets self.{node.attr}", hint)


def _inherits(values: Values) -> bool:
    """Whether attributes may come from another class."""
    workflow = values.program.workflow
    bases = workflow.bases if workflow is not None else []
    return any(not (isinstance(each, ast.Name) and each.id == "object") for each in bases)


def _await(call: ast.Call, values: Values) -> Iterator[Finding]:
    """A finding where something is awaited of which it is known that it is not async."""
    usage = isinstance(call.func, ast.Attribute) and call.func.attr == USAGE
    if usage or values.value(call.func) == SYNC:
        hint = f"write {name_of(call)}(...) without await"
        yield found("needless_await", call, f"{name_of(call)}(...) is not async", hint)


def awaited(call: ast.Call, values: Values) -> bool:
    """Whether what a call gives is awaited, handed to asyncio, or kept where something awaits it.

    A call that a helper function returns is left to the helper's caller.
    """
    parents = values.program.parents
    node: ast.AST = call
    while (parent := parents.get(node)) is not None:
        match parent:
            case ast.Await():
                return True
            case ast.Call() if parent.func is not node:
                return _handed_over(parent, values)
            case ast.Assign() | ast.AnnAssign() | ast.NamedExpr():
                return any(_awaits(name, call, values) for name in _targets(parent))
            case ast.Return() | ast.Lambda():
                return _is_helper(values.program.owners.get(call), values)
            case ast.List() | ast.Tuple() | ast.ListComp() | ast.GeneratorExp() | ast.Starred():
                node = parent
            case ast.keyword() | ast.IfExp() | ast.BoolOp() | ast.Dict() | ast.DictComp():
                node = parent
            case ast.SetComp() | ast.Set():
                node = parent
            case _:
                return False
    return False


def _handed_over(outer: ast.Call, values: Values) -> bool:
    """Whether the call that a coroutine is an argument of takes care of it."""
    dotted = values.names.dotted(outer.func)
    if dotted in ("asyncio.create_task", "asyncio.ensure_future", "asyncio.as_completed"):
        return True
    if dotted.startswith("asyncio."):
        return awaited(outer, values)
    match outer.func:
        case ast.Attribute(value=ast.Name(id=name), attr="append" | "add" | "extend"):
            return _awaits(name, outer, values)
        case ast.Attribute(attr="create_task"):
            return True
    return False


def _targets(node: ast.Assign | ast.AnnAssign | ast.NamedExpr) -> Iterator[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    for target in targets:
        yield from (each.id for each in ast.walk(target) if isinstance(each, ast.Name))


def _awaits(name: str, near: ast.AST, values: Values, through: tuple[str, ...] = ()) -> bool:
    """Whether the function around a node awaits a name, hands it to asyncio, or awaits each of it.

    `through` are the names of loops that led here.
    """
    if name in through or len(through) > MOST_LOOPS:
        return False
    owner = values.program.owners.get(near)
    return any(
        _taken(use, values, (*through, name))
        for use in values.loads.get(name, ())
        if values.program.owners[use] is owner
    )


def _taken(name: ast.Name, values: Values, through: tuple[str, ...]) -> bool:
    """Whether one use of a name awaits what it holds, or each of what it holds."""
    parents = values.program.parents
    node: ast.AST = name
    while isinstance(node, ast.expr | ast.comprehension):
        parent = parents[node]
        if isinstance(parent, ast.Await):
            return True
        if isinstance(parent, ast.Call) and parent.func is not node:
            return values.names.dotted(parent.func).startswith("asyncio.")
        if isinstance(parent, ast.For | ast.AsyncFor | ast.comprehension) and parent.iter is node:
            each = parent.target
            return isinstance(each, ast.Name) and _awaits(each.id, name, values, through)
        node = parent
    return False


def _is_helper(owner: ast.AST | None, values: Values) -> bool:
    """Whether a function is another than `__call__`."""
    return not (isinstance(owner, Function) and owner.name == "__call__")
