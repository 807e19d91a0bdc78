"""Checks a workflow program without running it: frame, names, operators, the keys of results.

By simple inspection of the syntax tree: what no path could make right is a finding, and what is not
seen here fails when the sandbox runs the program. Whatever a text is, hostile or not, it gets
findings, never an exception. Nothing here protects the machine; the sandbox does.
"""

import ast
import builtins
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile

from assay.errors import nearest
from assay.labs.workflows.programs.operators import OPERATORS, Operator
from assay.labs.workflows.programs.program import (
    AFLOW,
    ASYNC,
    ATTRIBUTE,
    GIVEN,
    LLM,
    OPERATOR,
    OTHER,
    Function,
    Place,
    Program,
    UnreadableProgram,
    is_annotation,
    read_program,
)

CODES: Mapping[str, str] = {
    "syntax": "not Python",
    "too_long": "longer than the validator reads",
    "too_deep": "nested deeper than it follows",
    "no_workflow": "no class `Workflow` at the top level",
    "no_init": "`Workflow` has no plain `__init__` that takes (self, name, llm_config, dataset)",
    "no_call": "`Workflow` has no method `__call__`",
    "not_async": "`__call__` is no `async def`",
    "call_arguments": "`__call__` does not take (self, problem), for code (self, problem, "
    "entry_point)",
    "no_return": "`__call__` never returns an answer",
    "return_shape": "neither an answer nor (answer, cost) is returned",
    "result_returned": "a whole operator result is returned, not the text under a key",
    "import_not_allowed": "an import outside the allow-list",
    "forbidden_name": "a builtin such as eval, exec, open, input",
    "dunder": "a name in double underscores",
    "undefined_name": "a name that nothing binds",
    "unset_attribute": "an attribute of `self` that nothing sets",
    "unknown_operator": "no such operator",
    "unknown_attribute": "an operator has no such attribute",
    "not_instantiated": "an operator or method is called that nothing makes",
    "not_awaited": "an operator or async function is not awaited",
    "unknown_parameter": "a keyword that the operator lacks",
    "repeated_parameter": "an argument is given twice",
    "missing_parameter": "a required argument is not given",
    "too_many_arguments": "more arguments than the operator has",
    "unknown_key": "a key that the result lacks",
    "llm_attribute": "of the llm other than `get_usage_summary()`",
    "llm_called": "the llm is called without an operator",
    "unknown_prompt": "a prompt of a prompt module, which there is not",
}
"""Every code, and what is wrong; docs and pages show these sentences."""
ALLOWED = (
    *("__future__", "abc", "array", "asyncio", "base64", "binascii", "bisect", "calendar", "cmath"),
    *("collections", "collections.abc", "contextlib", "copy", "dataclasses", "datetime", "decimal"),
    *("difflib", "enum", "fnmatch", "fractions", "functools", "graphlib", "hashlib", "heapq"),
    *("html", "itertools", "json", "logging", "math", "numbers", "pprint", "queue", "random", "re"),
    *("secrets", "statistics", "string", "struct", "textwrap", "time", "traceback", "types"),
    *("typing", "unicodedata", "uuid", "warnings", "zlib"),
)
"""Modules of the standard library that a program may import."""
FORBIDDEN = frozenset(
    {"eval", "exec", "compile", "open", "input", "breakpoint", "exit", "quit", "help"}
)
NAMES = frozenset(dir(builtins)) | GIVEN | {"__name__"}
"""Names that are there without being bound."""
DUNDERS = frozenset(
    {"__init__", "__name__", "__doc__", "__call__", "__class__", "__dict__", "__len__", "__str__"}
    | {"__repr__"}
)
"""Names in double underscores that a program may read."""
REFLECTION = frozenset({"setattr", "hasattr", "getattr", "vars"})
"""With these or `__dict__` a program may set an attribute, or leave its use alone, unseen."""
COROUTINES = frozenset(f"asyncio.{name}" for name in ("gather", "sleep", "wait", "wait_for"))
TASKS = frozenset(f"asyncio.{name}" for name in ("create_task", "ensure_future", "as_completed"))
USAGE = "get_usage_summary"
USAGE_KEYS = frozenset(
    {"total_input_tokens", "total_output_tokens", "total_tokens", "total_cost", "call_count"}
    | {"history"}
)
DICT_METHODS = frozenset(dir(dict))
INIT = "def __init__(self, name, llm_config, dataset):"
CALL = "async def __call__(self, problem):"
CODE_CALL = "async def __call__(self, problem, entry_point):"
COST = "self.llm.get_usage_summary()['total_cost']"
MOST_CHARACTERS = 200
"""Of a finding's sentence: names in it are a model's."""
MOST_FINDINGS = 20
MOST_LOOKED_AT = 200
"""Findings of one check before they are ordered: a hostile text may have thousands."""
UNREADABLE = {
    "syntax": "write one complete class in plain Python",
    "too_long": "write a short program",
    "too_deep": "write it with less nesting",
}
_DUNDER = re.compile(r"__\w+__")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that the validator has against a program."""

    code: str
    """A name of `CODES`, such as "unknown_operator"."""
    line: int
    """From 1; 0 where the program as a whole is meant."""
    problem: str
    hint: str
    """How to write it right."""


def validate(
    source: str, *, operators: Mapping[str, Operator] = OPERATORS, code_problem: bool = False
) -> tuple[Finding, ...]:
    """What is wrong with a program, by line; none where nothing is, the first 20 otherwise.

    `operators` are those that it may use, by name. `code_problem` says that `__call__` takes an
    entry point as well.
    """
    try:
        program = read_program(source)
    except UnreadableProgram as error:
        return (found(error.code, error.line, error.problem, UNREADABLE[error.code]),)
    checks = (
        check_frame(program, code_problem),
        check_names(program),
        check_calls(program, operators),
        check_results(program, operators),
    )
    findings = {each for check in checks for each in islice(check, MOST_LOOKED_AT)}
    ordered = sorted(findings, key=lambda each: (each.line, each.code, each.problem))
    return tuple(ordered[:MOST_FINDINGS])


def found(code: str, where: ast.AST | int, problem: str, hint: str) -> Finding:
    """A finding at a node or a line; text that no record could hold is spelled out."""
    line = where if isinstance(where, int) else getattr(where, "lineno", 0)
    return Finding(code, line, _one_line(problem), _one_line(hint))


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line[:MOST_CHARACTERS].encode("utf-8", "backslashreplace").decode("utf-8")


def check_frame(program: Program, code_problem: bool) -> Iterator[Finding]:
    """Findings of the class `Workflow`, its two methods, and what `__call__` returns."""
    workflow = program.workflow
    if workflow is None:
        yield found("no_workflow", 0, "no class Workflow", "write class Workflow: ...")
        return
    methods = {each.name: each for each in workflow.body if isinstance(each, Function)}
    init, call = methods.get("__init__"), methods.get("__call__")
    if init is None:
        yield found("no_init", workflow, "Workflow has no __init__", f"write {INIT}")
    elif isinstance(init, ast.AsyncFunctionDef):
        yield found("no_init", init, "__init__ is async", f"write {INIT}")
    elif not takes(init, 4):
        problem = f"__init__ takes ({ast.unparse(init.args)})"
        yield found("no_init", init, problem, f"write {INIT}")
    hint = f"write {CODE_CALL if code_problem else CALL}"
    if call is None:
        yield found("no_call", workflow, "Workflow has no __call__", hint)
        return
    if isinstance(call, ast.FunctionDef):
        yield found("not_async", call, "__call__ is not async", hint)
    if not takes(call, 3 if code_problem else 2):
        yield found("call_arguments", call, f"it takes ({ast.unparse(call.args)})", hint)
    returns = [n for n in program.nodes if isinstance(n, ast.Return) and program.owners[n] is call]
    if all(node.value is None for node in returns):
        hint = f"end every path with: return answer, {COST}"
        yield found("no_return", call, "__call__ never returns an answer", hint)
    for node in returns:
        match node.value:
            case ast.Tuple(elts=parts) if len(parts) != 2:
                if not any(isinstance(each, ast.Starred) for each in parts):
                    problem = f"a tuple of {len(parts)} is returned"
                    yield found("return_shape", node, problem, "return answer, cost")


def takes(function: Function, count: int) -> bool:
    """Tell whether it can be called with so many arguments by place, `self` among them."""
    arguments = function.args
    places = len(arguments.posonlyargs) + len(arguments.args)
    needed = places - len(arguments.defaults)
    by_name_only = any(default is None for default in arguments.kw_defaults)
    enough = places >= count or arguments.vararg is not None
    return needed <= count and enough and not by_name_only


def check_names(program: Program) -> Iterator[Finding]:
    """Findings of imports and names."""
    for node in program.nodes:
        match node:
            case ast.Import(names=names):
                for alias in names:
                    if alias.name not in ALLOWED and alias.name.split(".")[0] not in AFLOW:
                        yield _refused(node, alias.name)
            case ast.ImportFrom():
                yield from _import_from(node)
            case ast.Name(id=name, ctx=ast.Load()) if name not in program.bound:
                if name in FORBIDDEN:
                    hint = "a program only calls operators and works on their texts"
                    yield found("forbidden_name", node, f"{name} is not for programs", hint)
                elif _DUNDER.fullmatch(name) and name not in DUNDERS:
                    yield _dunder(node, name)
                elif name not in NAMES and not _is_note(node, program):
                    yield found("undefined_name", node, f"nothing defines {name!r}", _defined(name))
            case ast.Attribute(attr=name) if _DUNDER.fullmatch(name) and name not in DUNDERS:
                yield _dunder(node, name)


def _import_from(node: ast.ImportFrom) -> Iterator[Finding]:
    module = node.module or ""
    aflow = module.split(".")[0] in AFLOW
    if node.level or not (aflow or module in ALLOWED):
        yield _refused(node, "." * node.level + module)
        return
    for alias in node.names:
        if alias.name == "*":
            yield _refused(node, f"everything of {module}")
        elif _is_prompts(module):
            yield _prompt(node, alias.name)


def _refused(node: ast.AST, name: str) -> Finding:
    hint = "modules of the standard library without files, processes or network, and AFlow's own"
    return found("import_not_allowed", node, f"{name} may not be imported", hint)


def _is_prompts(module: str) -> bool:
    path = module.split(".")
    return path[0] in AFLOW and path[-1].startswith("prompt")


def _prompt(node: ast.AST, name: str) -> Finding:
    hint = "write the instruction as a text in the call"
    return found("unknown_prompt", node, f"no prompt {name!r}", hint)


def _dunder(node: ast.AST, name: str) -> Finding:
    return found("dunder", node, f"{name} is not for programs", "leave it out")


def _is_note(node: ast.AST, program: Program) -> bool:
    """Tell whether an expression stands in an annotation, which Python need not evaluate."""
    around = takewhile(lambda each: isinstance(each, ast.expr), above(node, program))
    return any(is_annotation(each, program) for each in (node, *around))


def _defined(name: str) -> str:
    if name in OPERATORS:
        return f"write operator.{name}"
    if name in ALLOWED:
        return f"add: import {name}"
    return "assign it, import it, or write it as a text in quotes"


def check_calls(program: Program, operators: Mapping[str, Operator]) -> Iterator[Finding]:
    """Findings of operators' calls, of the llm and of attributes of `self`."""
    loads: dict[str, list[ast.Name]] = {}
    for node in program.nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            loads.setdefault(node.id, []).append(node)
    for node in program.nodes:
        if isinstance(node, ast.Call):
            yield from _call(node, program, operators)
            if makes_coroutine(node, program) and not awaited(node, program, loads, set()):
                shown = ast.unparse(node.func)
                hint = f"write: await {shown}(...)"
                yield found("not_awaited", node, f"{shown}(...) is not awaited", hint)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield from _attribute(node, program, operators)


def _call(call: ast.Call, program: Program, operators: Mapping[str, Operator]) -> Iterator[Finding]:
    made = program.operator_class(call.func)
    if made and made not in operators:
        yield found("unknown_operator", call, f"no operator {made!r}", nearest(made, operators))
    if program.value(call.func) == LLM:
        problem = f"{ast.unparse(call.func)}(...) asks the llm itself"
        yield found("llm_called", call, problem, "call an operator instead, such as Custom")
    if (operator := operators.get(program.operator(call))) is not None:
        yield from _arguments(call, operator)


def _arguments(call: ast.Call, operator: Operator) -> Iterator[Finding]:
    """Findings of one call's arguments; unpacked ones hide what is given."""
    names = [each.name for each in operator.parameters]
    unpacked = any(isinstance(each, ast.Starred) for each in call.args)
    given = set() if unpacked else set(names[: len(call.args)])
    write = f"write {operator.signature}"
    if len(call.args) > len(names) and not unpacked:
        problem = f"{operator.name} takes {len(names)} arguments"
        yield found("too_many_arguments", call, problem, write)
    for keyword in call.keywords:
        name = keyword.arg
        if name is None:
            unpacked = True
        elif name not in names:
            problem = f"{operator.name} has no parameter {name!r}"
            yield found("unknown_parameter", keyword, problem, nearest(name, names))
        elif name in given:
            yield found("repeated_parameter", keyword, f"{name!r} is given twice", write)
        given |= {name} if name else set()
    for parameter in operator.parameters:
        if parameter.required and parameter.name not in given and not unpacked:
            problem = f"{operator.name} needs {parameter.name}"
            yield found("missing_parameter", call, problem, write)


def _attribute(
    node: ast.Attribute, program: Program, operators: Mapping[str, Operator]
) -> Iterator[Finding]:
    parent, place, held = program.parents[node], program.place(node), program.value(node.value)
    called = isinstance(parent, ast.Call) and parent.func is node
    if held == LLM and not (called and node.attr == USAGE):
        problem = f"{ast.unparse(node)} is not there"
        yield found("llm_attribute", node, problem, f"an llm has only {USAGE}(), called")
    elif held.startswith(OPERATOR):
        hint = f"await it: {ast.unparse(node.value)}(...)"
        yield found("unknown_attribute", node, f"an operator has no {node.attr!r}", hint)
    elif _is_prompts(program.dotted(node.value)):
        yield _prompt(node, node.attr)
    if place is None or place[0] != ATTRIBUTE or place in program.assigned:
        return
    if _DUNDER.fullmatch(node.attr) or _is_open(program):
        return
    if called:
        likely = [each.name for each in operators.values() if each.attribute == node.attr]
        name = ast.unparse(node)
        hint = f"in __init__: {name} = operator.{likely[0] if likely else 'NAME'}(self.llm)"
        yield found("not_instantiated", parent, f"{name} is called, but nothing made it", hint)
    else:
        hint = f"set self.{node.attr} in __init__"
        yield found("unset_attribute", node, f"nothing sets self.{node.attr}", hint)


def _is_open(program: Program) -> bool:
    """Tell whether attributes may come from another class, or be set by their names as texts."""
    bases = program.workflow.bases if program.workflow is not None else []
    if any(not (isinstance(each, ast.Name) and each.id == "object") for each in bases):
        return True
    names = (getattr(n, "id", getattr(n, "attr", "")) for n in program.nodes)
    return any(name in REFLECTION or name == "__dict__" for name in names)


def makes_coroutine(call: ast.Call, program: Program) -> bool:
    """Tell whether what a call gives has to be awaited."""
    value = program.value(call.func)
    is_own = value == ASYNC or value.startswith(OPERATOR)
    return is_own or program.dotted(call.func) in COROUTINES


def awaited(
    node: ast.AST, program: Program, loads: Mapping[str, Sequence[ast.Name]], seen: set[str]
) -> bool:
    """Tell whether what an expression gives is awaited, handed to asyncio, or kept under a name
    whose value is. What a helper function returns is left to its caller.

    `loads` are the places where each name is read; `seen` are the names that were followed.
    """
    owner, is_whole = program.owners[node], True

    def name_is(name: str) -> bool:
        """Tell whether some use of a name awaits what it holds."""
        if name in seen:
            return False
        seen.add(name)
        uses = [use for use in loads.get(name, ()) if program.owners[use] is owner]
        return any(awaited(use, program, loads, seen) for use in uses)

    while (parent := program.parents.get(node)) is not None:
        match parent:
            case ast.Await():
                return True
            case ast.Call() if parent.func is not node:
                dotted = program.dotted(parent.func)
                match parent.func:
                    case ast.Attribute(value=ast.Name(id=name), attr="append" | "add" | "extend"):
                        return name_is(name)
                    case ast.Attribute(attr="create_task"):
                        return True
                if dotted in TASKS or not dotted.startswith("asyncio."):
                    return dotted in TASKS
            case ast.Assign() | ast.AnnAssign() | ast.NamedExpr():
                targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
                kept = [n for each in targets for n in ast.walk(each) if isinstance(n, ast.Name)]
                return any(name_is(each.id) for each in kept)
            case ast.For() | ast.AsyncFor() | ast.comprehension() if parent.iter is node:
                targets = [n for n in ast.walk(parent.target) if isinstance(n, ast.Name)]
                return any(name_is(each.id) for each in targets)
            case ast.Return() | ast.Lambda():
                is_call = isinstance(owner, Function) and owner.name == "__call__"
                return is_whole and not is_call
            case ast.Subscript() | ast.Attribute():
                is_whole = False
            case ast.stmt():
                return False
        node = parent
    return False


def check_results(program: Program, operators: Mapping[str, Operator]) -> Iterator[Finding]:
    """Findings of the results of operators and of the llm's usage: keys that none of the operators
    has whose results a variable may hold, and whole results that are returned."""
    keys = {name: frozenset(operator.keys) for name, operator in operators.items()}
    keys |= {USAGE: USAGE_KEYS}
    held: dict[Place, frozenset[str]] = {}
    for place, values in program.assigned.items():
        results = [result_of(each, program) for each in values]
        if place[0] != ATTRIBUTE and all(name in keys for name in results):
            held[place] = frozenset(results)
    for node in program.nodes:
        if (name := changed(node)) is not None:
            held.pop(program.place(name) or (None, ""), None)

    def results_in(node: ast.AST) -> frozenset[str]:
        """The operators one of whose results an expression gives; none where it may be else, as
        where a name is assigned in a branch that the expression does not stand in."""
        if (name := result_of(node, program)) in keys:
            return frozenset({name})
        place = program.place(node)
        if place not in held:
            return frozenset()
        around = {node, *above(node, program)}
        values = [each for each in program.assigned[place] if each is not None]
        statements = [next(n for n in above(v, program) if isinstance(n, ast.stmt)) for v in values]
        inside = all(program.parents[each] in around for each in statements)
        return held[place] if inside else frozenset()

    asked_for = {  # a key that is looked for first is read where it is there
        node.left.value
        for node in program.nodes
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Constant)
    }
    for node in program.nodes:
        if finding := _result(node, program, results_in, keys):
            key = getattr(getattr(node, "slice", None), "value", None)
            if key is None or key not in asked_for:
                yield finding


def _result(
    node: ast.AST,
    program: Program,
    results_in: Callable[[ast.AST], frozenset[str]],
    keys: Mapping[str, frozenset[str]],
) -> Finding | None:
    """The finding of one use of a result."""
    match node:
        case (
            ast.Subscript(value=value, slice=ast.Constant(value=str(key)), ctx=ast.Load())
            | ast.Call(
                func=ast.Attribute(value=value, attr="get"), args=[ast.Constant(value=str(key))]
            )
        ):
            # `get(...) or ...` is one path of two.
            either = isinstance(program.parents[node], ast.BoolOp | ast.IfExp)
            whose = results_in(value)
            known = {each for name in whose for each in keys[name]}
            if whose and key not in known and not (either and isinstance(node, ast.Call)):
                problem = f"{', '.join(sorted(whose))} has no key {key!r}"
                return found("unknown_key", node, problem, nearest(key, sorted(known)))
        case ast.Attribute(value=value, attr=key, ctx=ast.Load()) if key not in DICT_METHODS:
            whose = results_in(value)
            known = {each for name in whose for each in keys[name]}
            if whose:
                problem = f"{', '.join(sorted(whose))} has no .{key}"
                hint = f"write ['{key}']" if key in known else nearest(key, sorted(known))
                return found("unknown_key", node, problem, hint)
        case ast.Return(value=ast.expr() as value):
            answer = value.elts[0] if isinstance(value, ast.Tuple) and value.elts else value
            owner, whose = program.owners[node], results_in(answer)
            if whose and isinstance(owner, Function) and owner.name == "__call__":
                problem = f"the whole result of {', '.join(sorted(whose))} is returned"
                hint = f"return the text under a key, such as ['{min(keys[min(whose)])}']"
                return found("result_returned", answer, problem, hint)
    return None


def above(node: ast.AST, program: Program) -> Iterator[ast.AST]:
    """The nodes around a node, innermost first."""
    while (parent := program.parents.get(node)) is not None:
        yield parent
        node = parent


def result_of(node: ast.AST | None, program: Program) -> str:
    """The operator whose result an expression is, or USAGE; "" for anything else."""
    match node:
        case ast.Await(value=ast.Call() as call):
            return program.operator(call)
        case ast.Call(func=ast.Attribute(attr="get_usage_summary")):
            return USAGE
    return OTHER


def changed(node: ast.AST) -> ast.Name | None:
    """The name of a dictionary whose keys a node changes."""
    match node:
        case ast.Subscript(value=ast.Name() as name, ctx=ast.Store() | ast.Del()):
            return name
        case ast.Attribute(value=ast.Name() as name, attr="update" | "setdefault"):
            return name
    return None
