"""Checks what a workflow program imports and names: nothing that reaches beyond the program."""

import ast
import builtins
import re
from collections.abc import Collection, Iterator

from assay.errors import nearest
from assay.tasks.workflows.programs.findings import Finding, found
from assay.tasks.workflows.programs.operators import OPERATORS
from assay.tasks.workflows.programs.program_names import (
    AFLOW,
    ALLOWED,
    GIVEN,
    OPERATOR_MODULES,
    Names,
    public_names,
    visible,
)
from assay.tasks.workflows.programs.program_tree import Program

FORBIDDEN = frozenset(
    {"eval", "exec", "compile", "open", "input", "getattr", "setattr", "delattr", "globals"}
    | {"locals", "vars", "dir", "breakpoint", "exit", "quit", "help", "memoryview"}
)
"""Builtins that reach beyond the program or hide what it does."""
OUTSIDE = frozenset(
    {"os", "sys", "subprocess", "socket", "shutil", "pathlib", "Path", "requests", "urllib"}
    | {"http", "httpx", "aiohttp", "ftplib", "pickle", "ctypes", "importlib", "builtins", "io"}
    | {"tempfile", "glob", "threading", "multiprocessing", "signal", "gc", "inspect"}
)
"""Modules of files, processes and networks, as names that nothing binds."""
INNARDS = frozenset(
    {"cr_frame", "gi_frame", "ag_frame", "f_globals", "f_locals", "f_builtins", "f_back"}
    | {"tb_frame", "tb_next", "func_globals", "gi_code", "cr_code", "f_code", "mro"}
)
"""Attributes that lead out of an object into the interpreter."""
LOOKED_AT = (
    *(ast.Name, ast.Attribute, ast.Constant, ast.Import, ast.ImportFrom),
    *(ast.FunctionDef, ast.AsyncFunctionDef),
)
METHODS = frozenset({"__init__", "__call__"})
"""Dunder methods that a program may define."""
BUILTINS = frozenset(dir(builtins)) - FORBIDDEN
_DUNDER = re.compile(r"__\w+__")
_FORMAT = re.compile(r"\{[^{}]*__")


def check_names(program: Program, names: Names, prompts: Collection[str]) -> Iterator[Finding]:
    """Findings of imports, names, attributes and texts, in the tree's order."""
    for node in program.nodes:
        if not isinstance(node, LOOKED_AT):
            continue
        match node:
            case ast.Name():
                yield from _name(node, names, program)
            case ast.Attribute():
                yield from _attribute(node, names, prompts)
            case ast.Import():
                yield from _import(node)
            case ast.ImportFrom():
                yield from _import_from(node, prompts)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if _DUNDER.fullmatch(name) and name not in METHODS:
                    yield _dunder(node, name)
            case ast.Constant(value=str(text)):
                if _FORMAT.search(text):
                    yield _dunder(node, "a format text with one")


def _import(node: ast.Import) -> Iterator[Finding]:
    for alias in node.names:
        if alias.name not in ALLOWED and alias.name.split(".")[0] not in AFLOW:
            yield _refused(node, alias.name)


def _import_from(node: ast.ImportFrom, prompts: Collection[str]) -> Iterator[Finding]:
    module = node.module or ""
    aflow = module.split(".")[0] in AFLOW
    if node.level or not (aflow or module in ALLOWED):
        yield _refused(node, "." * node.level + module)
        return
    for alias in node.names:
        name = alias.name
        if name == "*":
            yield _refused(node, f"everything of {module}")
        elif _is_prompts(module):
            yield from _prompt(node, name, prompts)
        elif aflow and not _of_aflow(module, name):
            hint = f"AFlow's modules hold {', '.join(sorted(GIVEN))} and the operators"
            yield found("import_not_allowed", node, f"{module} has no {name!r}", hint)
        elif not aflow and name not in public_names(module):
            yield _missing(node, module, name)


def _of_aflow(module: str, name: str) -> bool:
    """Whether the sandbox's stand-in of a module of AFlow has a name.

    An unknown operator of an operator module and a prompt are found where they are used.
    """
    last = module.split(".")[-1]
    held = name in GIVEN or name in OPERATORS or last in OPERATOR_MODULES
    return held or name.startswith(("prompt", "operator"))


def _name(node: ast.Name, names: Names, program: Program) -> Iterator[Finding]:
    name = node.id
    if _DUNDER.fullmatch(name):
        yield _dunder(node, name)
    elif isinstance(node.ctx, ast.Store) or visible(name, node, names, program):
        return
    elif name in FORBIDDEN or name in OUTSIDE:
        hint = "a program only calls operators and works on their texts"
        yield found("forbidden_name", node, f"{name} is not for programs", hint)
    elif name not in BUILTINS and name not in GIVEN and not _is_note(node, program):
        yield found("undefined_name", node, f"nothing defines {name!r}", _defined(name))


def _is_note(node: ast.AST, program: Program) -> bool:
    """Whether it stands in an annotation of a variable of a function, which is never evaluated."""
    while isinstance(node, ast.expr):
        parent = program.parents[node]
        if isinstance(parent, ast.AnnAssign):
            return node is parent.annotation and program.owners[parent] is not None
        node = parent
    return False


def _defined(name: str) -> str:
    if name in OPERATORS:
        return f"write operator.{name}"
    if name in ALLOWED:
        return f"add: import {name}"
    return "assign it, import it, or write it as a text in quotes"


def _attribute(node: ast.Attribute, names: Names, prompts: Collection[str]) -> Iterator[Finding]:
    if _DUNDER.fullmatch(node.attr):
        if not _is_super_init(node):
            yield _dunder(node, node.attr)
        return
    if node.attr in INNARDS:
        hint = "a program only calls operators and works on their texts"
        yield found("forbidden_name", node, f"{node.attr} is not for programs", hint)
    module = names.dotted(node.value)
    if module in ALLOWED and node.attr not in public_names(module):
        yield _missing(node, module, node.attr)
    elif _is_prompts(module):
        yield from _prompt(node, node.attr, prompts)


def _prompt(node: ast.AST, name: str, prompts: Collection[str]) -> Iterator[Finding]:
    if name not in prompts:
        hint = "write the instruction as a text in the call"
        yield found("unknown_prompt", node, f"no prompt {name!r}", hint)


def _is_prompts(module: str) -> bool:
    path = module.split(".")
    return path[0] in AFLOW and path[-1].startswith("prompt")


def _is_super_init(node: ast.Attribute) -> bool:
    match node:
        case ast.Attribute(attr="__init__", value=ast.Call(func=ast.Name(id="super"))):
            return True
    return False


def _refused(node: ast.AST, name: str) -> Finding:
    hint = f"allowed: {', '.join(ALLOWED)} and AFlow's own modules"
    return found("import_not_allowed", node, f"{name} may not be imported", hint)


def _missing(node: ast.AST, module: str, name: str) -> Finding:
    hint = nearest(name, public_names(module))
    return found("unknown_attribute", node, f"{module} has no {name!r} for programs", hint)


def _dunder(node: ast.AST, name: str) -> Finding:
    return found("dunder", node, f"{name} is not for programs", "only __init__ and __call__ are")
