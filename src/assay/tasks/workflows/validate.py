"""Validates a workflow program before it runs: by its syntax tree alone, nothing is executed.

What is refused here is safe in the sandbox as well; the findings are for the policy's error
taxonomy and for whoever writes a program by hand. `CODES` says what each means.
"""

import ast
import builtins
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from assay.tasks.workflows.execution import Finding
from assay.tasks.workflows.operators import OPERATORS, Operator
from assay.tasks.workflows.validate_calls import call_findings

CODES: Mapping[str, str] = {
    "too_long": "the source is longer than 20,000 characters",
    "syntax": "the source is no Python",
    "too_deep": "the source is nested more deeply than 60 levels",
    "no_class": "there is no class Workflow",
    "no_call": "the class has no method __call__",
    "not_async": "__call__ is no async function",
    "parameters": "__call__ has other parameters than its problems give",
    "no_return": "a path through __call__ ends without a return",
    "import": "an import that programs have no use for",
    "forbidden_name": "a name that runs code, reads files or looks behind objects",
    "dunder": "an attribute with two underscores, or of frames and code",
    "undefined_name": "a name that nothing defines",
    "llm": "a use of the model beside the operators and get_usage_summary",
    "unknown_operator": "an operator that there is not, or that is not allowed here",
    "not_made": "a call of an operator that __init__ does not make",
    "not_awaited": "a call of an operator without await",
    "unknown_keyword": "a keyword that the operator does not have",
    "missing_keyword": "a required argument is missing",
    "unknown_key": "a key that the operator does not return",
}
"""Code -> what it means."""
LONGEST = 20_000
DEEPEST = 60
GIVEN = ("operator", "create_llm_instance", "DatasetType", "AsyncLLM")
"""Names that a program has without an import."""
STANDARD = frozenset(
    (
        *("typing", "asyncio", "re", "math", "json", "random", "collections", "itertools"),
        *("statistics", "functools", "string", "fractions", "decimal", "dataclasses", "pathlib"),
    )
)
"""Modules of the standard library that programs may import; of `pathlib` the sandbox has a
stand-in."""
AFLOW = ("workspace", "scripts", "prompt", "operator", "template")
"""First parts of AFlow's own modules, for which the sandbox has stand-ins."""
FORBIDDEN = frozenset(
    (
        *("eval", "exec", "compile", "open", "input", "__import__", "globals", "locals", "vars"),
        *("getattr", "setattr", "delattr", "dir", "breakpoint", "exit", "quit", "memoryview"),
        *("__builtins__", "__loader__", "__spec__", "help"),
    )
)
FRAMES = ("f_", "gi_", "cr_", "ag_", "tb_", "co_")
"""How attributes of frames, generators, coroutines, tracebacks and code begin."""
OWN_METHODS = ("__init__", "__call__")


def validate(
    source: str, *, operators: Mapping[str, Operator] = OPERATORS, code_problem: bool = False
) -> tuple[Finding, ...]:
    """What is wrong with a program, by line; nothing where it may run.

    `operators` are those that it may use. Never raises, whatever the source.
    """
    if len(source) > LONGEST:
        return (Finding("too_long", 0, f"{len(source)} characters", f"at most {LONGEST}"),)
    parsed = parse(source)
    if isinstance(parsed, Finding):
        return (parsed,)
    program = next(classes_of(parsed), None)
    if program is None:
        hint = "write class Workflow: with async def __call__(self, problem)"
        return (Finding("no_class", 0, "there is no class Workflow", hint),)
    found = [
        *structure(program, code_problem),
        *imports(parsed),
        *names(parsed),
        *attributes(parsed),
        *call_findings(parsed, program, operators),
    ]
    return tuple(sorted(set(found), key=lambda each: (each.line, each.code, each.problem)))


def parse(source: str) -> ast.Module | Finding:
    """The syntax tree, or why there is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except SyntaxError as error:
        hint = "write Python that parses, and close every bracket and text"
        return Finding("syntax", error.lineno or 0, error.msg, hint)
    except (ValueError, MemoryError, RecursionError, OverflowError) as error:
        return Finding("syntax", 0, f"{type(error).__name__}: {error}", "write plain text")
    deepest = depth(tree)
    if deepest > DEEPEST:
        return Finding("too_deep", 0, f"{deepest} levels", f"at most {DEEPEST}")
    return tree


def depth(tree: ast.AST) -> int:
    """Levels of the tree, found without recursion."""
    level, found = [tree], 0
    while level:
        found += 1
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    return found


def classes_of(tree: ast.Module) -> Iterator[ast.ClassDef]:
    """The classes called Workflow, the last first: that is the one that would run."""
    yield from (
        node
        for node in reversed(tree.body)
        if isinstance(node, ast.ClassDef) and node.name == "Workflow"
    )


def structure(program: ast.ClassDef, code_problem: bool) -> Iterator[Finding]:
    """The method `__call__`: async, with the parameters of its problems, a return on every path."""
    wanted = ["self", "problem", "entry_point"] if code_problem else ["self", "problem"]
    stub = f"async def __call__({', '.join(wanted)}):"
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    calls = [n for n in program.body if isinstance(n, functions) and n.name == "__call__"]
    if not calls:
        yield Finding("no_call", program.lineno, "the class has no __call__", f"write {stub}")
        return
    call = calls[-1]
    if isinstance(call, ast.FunctionDef):
        yield Finding("not_async", call.lineno, "__call__ is not async", f"write {stub}")
    if not takes(call.args, len(wanted)):
        problem = f"__call__ has the parameters {', '.join(a.arg for a in call.args.args)}"
        yield Finding("parameters", call.lineno, problem, f"write {stub}")
    if not ends(call.body):
        hint = "end every path with return answer, cost"
        yield Finding("no_return", call.lineno, "a path ends without a return", hint)
    bare = (n for n in inside(call) if isinstance(n, ast.Return) and n.value is None)
    for node in bare:
        yield Finding("no_return", node.lineno, "the return has no value", "return the answer")


def takes(given: ast.arguments, count: int) -> bool:
    """Whether a function can be called with so many positional arguments and no other."""
    positional = [*given.posonlyargs, *given.args]
    least = len(positional) - len(given.defaults)
    most = float("inf") if given.vararg else len(positional)
    keywords = all(default is not None for default in given.kw_defaults)
    return least <= count <= most and keywords


def inside(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions and classes inside it."""
    stack = [*ast.iter_child_nodes(function)]
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            stack.extend(ast.iter_child_nodes(node))


def ends(body: list[ast.stmt]) -> bool:
    """Whether no path leaves these statements at their end."""
    return any(map(_never_goes_on, body))


def _never_goes_on(node: ast.stmt) -> bool:
    match node:
        case ast.Return() | ast.Raise():
            return True
        case ast.If():
            return ends(node.body) and ends(node.orelse)
        case ast.With() | ast.AsyncWith():
            return ends(node.body)
        case ast.Try() | ast.TryStar():
            handled = all(ends(handler.body) for handler in node.handlers)
            whole = ends(node.body) or ends(node.orelse)
            return ends(node.finalbody) or (whole and handled)
        case ast.While():
            forever = isinstance(node.test, ast.Constant) and bool(node.test.value)
            return forever and not any(isinstance(each, ast.Break) for each in inside(node))
        case ast.Match():
            last = node.cases[-1]
            open_ = isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None
            return open_ and last.guard is None and all(ends(case.body) for case in node.cases)
    return False


def imports(tree: ast.Module) -> Iterator[Finding]:
    """Imports of anything but the allow-list."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        else:
            continue
        for module in modules:
            first = module.partition(".")[0]
            if first not in STANDARD and first not in AFLOW:
                hint = f"programs may import {', '.join(sorted(STANDARD))}"
                yield Finding("import", node.lineno, f"import of {module or '.'}", hint)


@dataclass
class Names:
    """Names that a tree binds anywhere, and those that it reads."""

    bound: set[str] = field(default_factory=set)
    read: list[tuple[str, int]] = field(default_factory=list)


def names(tree: ast.Module) -> Iterator[Finding]:
    """Forbidden names, and names that nothing in the program defines."""
    found = names_in(tree)
    known = {*found.bound, *GIVEN, *(n for n in dir(builtins) if not n.startswith("_"))}
    for name, line in found.read:
        if name in FORBIDDEN:
            hint = "programs work with operators and plain Python"
            yield Finding("forbidden_name", line, f"the name {name}", hint)
        elif name not in known and name != "__name__":
            hint = "define it, or take a parameter of __call__"
            yield Finding("undefined_name", line, f"{name} is not defined", hint)


def names_in(tree: ast.Module) -> Names:
    """All names of a tree, whatever their scope."""
    found = Names()
    for node in ast.walk(tree):
        match node:
            case ast.Name(ctx=ast.Load()):
                found.read.append((node.id, node.lineno))
            case ast.Name():
                found.bound.add(node.id)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found.bound.add(node.name)
            case ast.arg():
                found.bound.add(node.arg)
            case ast.alias():
                found.bound.add(node.asname or node.name.partition(".")[0])
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                found.bound.add(name)
            case ast.MatchStar(name=str(name)):
                found.bound.add(name)
    return found


def attributes(tree: ast.Module) -> Iterator[Finding]:
    """Attributes that look behind objects."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute):
            continue
        name = node.attr
        dunder = name.startswith("__") and not (name in OWN_METHODS and _of_super(node.value))
        if dunder or name.startswith(FRAMES):
            yield Finding("dunder", node.lineno, f"the attribute {name}", "leave it out")


def _of_super(value: ast.expr) -> bool:
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Name)
        and value.func.id == "super"
    )
