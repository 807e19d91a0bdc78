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

from assay.errors import InputError
from assay.labs.workflows.programs.operators import AFLOW, OPERATORS, USAGE, OperatorFacts
from assay.labs.workflows.programs.program import (
    ASYNC,
    ATTRIBUTE,
    GIVEN,
    LLM,
    OPERATOR,
    OTHER,
    Function,
    Place,
    Program,
    is_annotation,
    read_program,
)

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
USAGE_SUMMARY = "get_usage_summary"
DICT_METHODS = frozenset(dir(dict))
MOST_CHARACTERS = 200
"""Of a finding's sentence: names in it are a model's."""
MOST_LOOKED_AT = 200
"""Findings of one check: a hostile text may have thousands."""
_DUNDER = re.compile(r"__\w+__")


@dataclass(frozen=True, slots=True)
class ProgramFinding:
    """One thing that the validator has against a program."""

    code: str
    """Of `execution.CODES`, such as "unknown_operator"."""
    line: int
    """From 1; 0 where the program as a whole is meant."""
    problem: str


def validate(
    source: str, *, operators: Mapping[str, OperatorFacts] = OPERATORS, code_problem: bool = False
) -> tuple[ProgramFinding, ...]:
    """What is wrong with a program, by line; none where nothing is.

    `operators` are those that it may use, by name. `code_problem` says that `__call__` takes an
    entry point as well.
    """
    try:
        program = read_program(source)
    except InputError as error:
        return (finding(error.field or "", error.line or 0, error.problem),)
    checks = (
        check_frame(program, code_problem),
        check_names(program),
        check_calls(program, operators),
        check_results(program, operators),
    )
    findings = {each for check in checks for each in islice(check, MOST_LOOKED_AT)}
    return tuple(sorted(findings, key=lambda each: (each.line, each.code, each.problem)))


def finding(code: str, where: ast.AST | int, problem: str) -> ProgramFinding:
    """A finding at a node or a line; text that no record could hold is spelled out."""
    line = where if isinstance(where, int) else getattr(where, "lineno", 0)
    text = " ".join(problem.split())[:MOST_CHARACTERS]
    return ProgramFinding(code, line, text.encode("utf-8", "backslashreplace").decode("utf-8"))


def check_frame(program: Program, code_problem: bool) -> Iterator[ProgramFinding]:
    """Findings of the class `Workflow`, its two methods, and what `__call__` returns."""
    workflow = program.workflow
    if workflow is None:
        yield finding("no_workflow", 0, "no class Workflow")
        return
    methods = {each.name: each for each in workflow.body if isinstance(each, Function)}
    init, call = methods.get("__init__"), methods.get("__call__")
    if init is None:
        yield finding("no_init", workflow, "Workflow has no __init__")
    elif isinstance(init, ast.AsyncFunctionDef) or not takes(init, 4):
        yield finding("no_init", init, f"__init__ takes ({ast.unparse(init.args)}), or is async")
    if call is None:
        yield finding("no_call", workflow, "Workflow has no __call__")
        return
    if isinstance(call, ast.FunctionDef):
        yield finding("not_async", call, "__call__ is not async")
    if not takes(call, 3 if code_problem else 2):
        yield finding("call_arguments", call, f"it takes ({ast.unparse(call.args)})")
    returns = [n for n in program.nodes if isinstance(n, ast.Return) and program.owners[n] is call]
    if all(node.value is None for node in returns):
        yield finding("no_return", call, "__call__ never returns an answer")
    for node in returns:
        match node.value:
            case ast.Tuple(elts=parts) if len(parts) != 2:
                if not any(isinstance(each, ast.Starred) for each in parts):
                    yield finding("return_shape", node, f"a tuple of {len(parts)} is returned")


def takes(function: Function, count: int) -> bool:
    """Tell whether it can be called with so many arguments by place, `self` among them."""
    arguments = function.args
    places = len(arguments.posonlyargs) + len(arguments.args)
    needed = places - len(arguments.defaults)
    by_name_only = any(default is None for default in arguments.kw_defaults)
    enough = places >= count or arguments.vararg is not None
    return needed <= count and enough and not by_name_only


def check_names(program: Program) -> Iterator[ProgramFinding]:
    """Findings of imports and names."""
    for node in program.nodes:
        match node:
            case ast.Import(names=names):
                for alias in names:
                    if alias.name not in ALLOWED and alias.name.split(".")[0] not in AFLOW:
                        yield finding("import_not_allowed", node, f"import {alias.name}")
            case ast.ImportFrom():
                module = "." * node.level + (node.module or "")
                aflow = module.split(".")[0] in AFLOW
                for alias in node.names:
                    if alias.name == "*" or not (aflow or module in ALLOWED):
                        yield finding(
                            "import_not_allowed", node, f"from {module} import {alias.name}"
                        )
                    elif _is_prompts(module):
                        yield finding("unknown_prompt", node, f"no prompt {alias.name!r}")
            case ast.Name(id=name, ctx=ast.Load()) if name not in program.bound:
                if name in FORBIDDEN:
                    yield finding("forbidden_name", node, f"{name} is not for programs")
                elif _DUNDER.fullmatch(name) and name not in DUNDERS:
                    yield finding("dunder", node, f"{name} is not for programs")
                elif name not in NAMES and not _is_note(node, program):
                    yield finding("undefined_name", node, f"nothing defines {name!r}")
            case ast.Attribute(attr=name) if _DUNDER.fullmatch(name) and name not in DUNDERS:
                yield finding("dunder", node, f"{name} is not for programs")


def _is_prompts(module: str) -> bool:
    path = module.split(".")
    return path[0] in AFLOW and path[-1].startswith("prompt")


def _is_note(node: ast.AST, program: Program) -> bool:
    """Tell whether an expression stands in an annotation, which Python need not evaluate."""
    around = takewhile(lambda each: isinstance(each, ast.expr), above(node, program))
    return any(is_annotation(each, program) for each in (node, *around))


def check_calls(
    program: Program, operators: Mapping[str, OperatorFacts]
) -> Iterator[ProgramFinding]:
    """Findings of operators' calls, of the llm and of attributes of `self`."""
    loads: dict[str, list[ast.Name]] = {}
    for node in program.nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            loads.setdefault(node.id, []).append(node)
    for node in program.nodes:
        if isinstance(node, ast.Call):
            yield from _call(node, program, operators)
            if makes_coroutine(node, program) and not awaited(node, program, loads, set()):
                yield finding("not_awaited", node, f"{ast.unparse(node.func)}(...) is not awaited")
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield from _attribute(node, program)


def _call(
    call: ast.Call, program: Program, operators: Mapping[str, OperatorFacts]
) -> Iterator[ProgramFinding]:
    """Findings of one call and its arguments; unpacked ones hide what is given."""
    made = program.operator_class(call.func)
    if made and made not in operators:
        yield finding("unknown_operator", call, f"no operator {made!r}")
    if program.value(call.func) == LLM:
        yield finding("llm_called", call, f"{ast.unparse(call.func)}(...) asks the llm itself")
    if (operator := operators.get(program.operator(call))) is None:
        return
    names = [each.name for each in operator.parameters]
    unpacked = any(isinstance(each, ast.Starred) for each in call.args)
    arguments = set() if unpacked else set(names[: len(call.args)])
    if len(call.args) > len(names) and not unpacked:
        yield finding("too_many_arguments", call, f"{operator.name} takes {len(names)} arguments")
    for keyword in call.keywords:
        name = keyword.arg
        unpacked |= name is None
        if name in arguments:
            yield finding("repeated_parameter", keyword, f"{name!r} is given twice")
        elif name is not None and name not in names:
            problem = f"{operator.name} has no parameter {name!r}"
            yield finding("unknown_parameter", keyword, problem)
        arguments |= {name} if name else set()
    for parameter in operator.parameters:
        if parameter.required and parameter.name not in arguments and not unpacked:
            yield finding("missing_parameter", call, f"{operator.name} needs {parameter.name}")


def _attribute(node: ast.Attribute, program: Program) -> Iterator[ProgramFinding]:
    parent, place, held = program.parents[node], program.place(node), program.value(node.value)
    called, name = isinstance(parent, ast.Call) and parent.func is node, ast.unparse(node)
    if held == LLM and not (called and node.attr == USAGE_SUMMARY):
        yield finding("llm_attribute", node, f"{name} is not there")
    elif held.startswith(OPERATOR):
        yield finding("unknown_attribute", node, f"an operator has no {node.attr!r}")
    elif _is_prompts(program.dotted(node.value)):
        yield finding("unknown_prompt", node, f"no prompt {node.attr!r}")
    if place is None or place[0] != ATTRIBUTE or place in program.assigned:
        return
    if _DUNDER.fullmatch(node.attr) or _is_open(program):
        return
    if called:
        yield finding("not_instantiated", parent, f"{name} is called, but nothing made it")
    else:
        yield finding("unset_attribute", node, f"nothing sets {name}")


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


def check_results(
    program: Program, operators: Mapping[str, OperatorFacts]
) -> Iterator[ProgramFinding]:
    """Findings of the results of operators and of the llm's usage: keys that none of the operators
    has whose results a variable may hold, and whole results that are returned."""
    keys = {name: frozenset(operator.keys) for name, operator in operators.items()}
    keys |= {USAGE_SUMMARY: frozenset({*USAGE, "history"})}
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

    tested = {  # a key that is looked for first is read where it is there
        node.left.value
        for node in program.nodes
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Constant)
    }
    for node in program.nodes:
        if each := _result(node, program, results_in, keys):
            key = getattr(getattr(node, "slice", None), "value", None)
            if key is None or key not in tested:
                yield each


def _result(
    node: ast.AST,
    program: Program,
    results_in: Callable[[ast.AST], frozenset[str]],
    keys: Mapping[str, frozenset[str]],
) -> ProgramFinding | None:
    """The finding of one use of a result."""

    def unknown(value: ast.AST, key: str, shown: str) -> ProgramFinding | None:
        whose = results_in(value)
        if not whose or (shown != f".{key}" and any(key in keys[name] for name in whose)):
            return None
        return finding("unknown_key", node, f"{', '.join(sorted(whose))} has no {shown}")

    match node:
        case ast.Subscript(value=value, slice=ast.Constant(value=str(key)), ctx=ast.Load()):
            return unknown(value, key, f"key {key!r}")
        case ast.Call(
            func=ast.Attribute(value=value, attr="get"), args=[ast.Constant(value=str(key))]
        ):
            # `get(...) or ...` is one path of two.
            either = isinstance(program.parents[node], ast.BoolOp | ast.IfExp)
            return None if either else unknown(value, key, f"key {key!r}")
        case ast.Attribute(value=value, attr=key, ctx=ast.Load()) if key not in DICT_METHODS:
            return unknown(value, key, f".{key}")
        case ast.Return(value=ast.expr() as value):
            answer = value.elts[0] if isinstance(value, ast.Tuple) and value.elts else value
            owner, whose = program.owners[node], results_in(answer)
            if whose and isinstance(owner, Function) and owner.name == "__call__":
                problem = f"the whole result of {', '.join(sorted(whose))} is returned"
                return finding("result_returned", answer, problem)
    return None


def above(node: ast.AST, program: Program) -> Iterator[ast.AST]:
    """The nodes around a node, innermost first."""
    while (parent := program.parents.get(node)) is not None:
        yield parent
        node = parent


def result_of(node: ast.AST | None, program: Program) -> str:
    """The operator whose result an expression is, or USAGE_SUMMARY; "" for anything else."""
    match node:
        case ast.Await(value=ast.Call() as call):
            return program.operator(call)
        case ast.Call(func=ast.Attribute(attr="get_usage_summary")):
            return USAGE_SUMMARY
    return OTHER


def changed(node: ast.AST) -> ast.Name | None:
    """The name of a dictionary whose keys a node changes."""
    match node:
        case ast.Subscript(value=ast.Name() as name, ctx=ast.Store() | ast.Del()):
            return name
        case ast.Attribute(value=ast.Name() as name, attr="update" | "setdefault"):
            return name
    return None
