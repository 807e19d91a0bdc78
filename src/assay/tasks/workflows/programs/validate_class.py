"""Checks the frame of a workflow program: the class, its methods, and what `__call__` returns."""

import ast
from collections.abc import Iterator, Sequence

from assay.tasks.workflows.programs.findings import Finding, found
from assay.tasks.workflows.programs.program_tree import Function, Program

ENDINGS = (ast.Return, ast.Yield, ast.YieldFrom)
INIT = "def __init__(self, name, llm_config, dataset):"
CALL = "async def __call__(self, problem):"
CODE_CALL = "async def __call__(self, problem, entry_point):"


def check_class(program: Program, code_problem: bool) -> Iterator[Finding]:
    """Findings of the class `Workflow`; of everything else none."""
    if program.workflow is None:
        yield found("no_workflow", 0, "no class Workflow", "write class Workflow: ...")
        return
    yield from _init(program.workflow)
    call = method(program.workflow, "__call__")
    call_hint = CODE_CALL if code_problem else CALL
    if call is None:
        yield found("no_call", program.workflow, "Workflow has no __call__", f"write {call_hint}")
        return
    if isinstance(call, ast.FunctionDef):
        yield found("not_async", call, "__call__ is not async", f"write {call_hint}")
    if not takes(call, 3 if code_problem else 2):
        yield found("call_arguments", call, f"it takes {shown(call)}", f"write {call_hint}")
    yield from _returns(call, program)


def method(owner: ast.ClassDef, name: str) -> Function | None:
    """The last method of a class by a name; None where it has none."""
    methods = [each for each in owner.body if isinstance(each, Function) and each.name == name]
    return methods[-1] if methods else None


def takes(function: Function, count: int) -> bool:
    """Whether it can be called with so many arguments by place, `self` among them."""
    arguments = function.args
    places = len(arguments.posonlyargs) + len(arguments.args)
    needed = places - len(arguments.defaults)
    by_name_only = any(default is None for default in arguments.kw_defaults)
    enough = places >= count or arguments.vararg is not None
    return needed <= count and enough and not by_name_only


def shown(function: Function) -> str:
    """Its parameters as they stand."""
    return f"({ast.unparse(function.args)})"


def _init(workflow: ast.ClassDef) -> Iterator[Finding]:
    init = method(workflow, "__init__")
    if init is None:
        yield found("no_init", workflow, "Workflow has no __init__", f"write {INIT}")
    elif isinstance(init, ast.AsyncFunctionDef):
        yield found("no_init", init, "__init__ is async", f"write {INIT}")
    elif not takes(init, 4):
        yield found("no_init", init, f"__init__ takes {shown(init)}", f"write {INIT}")


def _returns(call: Function, program: Program) -> Iterator[Finding]:
    hint = "end every path with: return answer, self.llm.get_usage_summary()['total_cost']"
    if not ends(call.body):
        yield found("no_return", call, "a path of __call__ ends without return", hint)
    for node in program.nodes:
        if not isinstance(node, ENDINGS) or program.owners[node] is not call:
            continue
        if isinstance(node, ast.Yield | ast.YieldFrom):
            yield found("not_async", node, "__call__ yields", "return the answer")
        elif isinstance(node, ast.Return):
            if node.value is None or _is_none(node.value):
                yield found("no_return", node, "it returns nothing", hint)
            elif isinstance(node.value, ast.Tuple) and not _is_pair(node.value):
                count = len(node.value.elts)
                problem = f"a tuple of {count} is returned"
                yield found("return_shape", node, problem, "return answer, cost")
            elif isinstance(node.value, ast.Tuple) and _is_none(node.value.elts[0]):
                yield found("no_return", node, "it returns None as the answer", hint)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_pair(node: ast.Tuple) -> bool:
    starred = any(isinstance(each, ast.Starred) for each in node.elts)
    return starred or len(node.elts) == 2


def ends(body: Sequence[ast.stmt]) -> bool:
    """Whether no path leaves a block at its end: each returns, raises or loops for ever.

    Conditions are not looked into, except for `while True`; an unreachable end behind other
    conditions still counts as one.
    """
    return any(_ends(statement) for statement in body)


def _ends(statement: ast.stmt) -> bool:
    match statement:
        case ast.Return() | ast.Raise():
            return True
        case ast.If(body=body, orelse=orelse):
            return ends(body) and ends(orelse)
        case ast.With(body=body) | ast.AsyncWith(body=body):
            return ends(body)
        case ast.Try() | ast.TryStar():
            handled = all(ends(handler.body) for handler in statement.handlers)
            whole = ends(statement.body) or ends(statement.orelse)
            return (whole and handled) or ends(statement.finalbody)
        case ast.While(test=ast.Constant(value=value), body=body) if value:
            return not _breaks(body)
        case ast.For(body=body, orelse=orelse) | ast.AsyncFor(body=body, orelse=orelse):
            return ends(orelse) and not _breaks(body)
        case ast.While(body=body, orelse=orelse):
            return ends(orelse) and not _breaks(body)
        case ast.Match(cases=cases):
            return any(map(_catches_all, cases)) and all(ends(case.body) for case in cases)
    return False


def _catches_all(case: ast.match_case) -> bool:
    pattern = case.pattern
    return case.guard is None and isinstance(pattern, ast.MatchAs) and pattern.pattern is None


def _breaks(body: Sequence[ast.stmt]) -> bool:
    """Whether a block holds a `break` of the loop that it is the body of."""
    for statement in body:
        if isinstance(statement, ast.Break):
            return True
        loop = isinstance(statement, ast.For | ast.AsyncFor | ast.While)
        blocks = [statement.orelse] if loop else list(_blocks(statement))
        if any(map(_breaks, blocks)):
            return True
    return False


def _blocks(statement: ast.stmt) -> Iterator[Sequence[ast.stmt]]:
    """The blocks of a statement that is no loop and no function."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return
    for name in ("body", "orelse", "finalbody"):
        yield getattr(statement, name, [])
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield part.body
