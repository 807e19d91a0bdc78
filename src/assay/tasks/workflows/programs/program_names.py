"""What the names of a workflow program stand for: imports, AFlow's modules, bindings by scope.

Flow does not count here: a name is bound in a function if anything in it binds the name.
"""

import ast
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from assay.tasks.workflows.programs.program_tree import Owner, Program

ALLOWED = (
    *("asyncio", "collections", "collections.abc", "itertools", "json", "math", "random", "re"),
    *("statistics", "typing"),
)
"""Modules of the standard library that a program may import."""
AFLOW = ("workspace", "scripts", "prompt", "prompt_custom")
"""Roots of the modules of AFlow's repository, which the sandbox has stand-ins for."""
GIVEN = frozenset(
    {"operator", "create_llm_instance", "AsyncLLM", "DatasetType", "prompt_custom", "logger"}
)
"""Names that AFlow's template imports and a program may use without importing them."""
ASYNCIO = frozenset(
    {"gather", "sleep", "wait", "wait_for", "create_task", "ensure_future", "as_completed"}
    | {"Task", "Future", "Semaphore", "Lock", "Event", "Queue", "timeout", "TaskGroup"}
    | {"TimeoutError", "CancelledError", "ALL_COMPLETED", "FIRST_COMPLETED", "FIRST_EXCEPTION"}
)
"""What a program may use of asyncio: the rest starts processes, sockets or further loops."""
EVALUATING = frozenset({"get_type_hints", "ForwardRef"})
"""Of typing: they evaluate text."""
BINDING = (
    *(ast.Name, ast.arg, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler),
    *(ast.MatchAs, ast.MatchStar, ast.MatchMapping, ast.Global),
)
OPERATOR_MODULES = ("operator", "operators")


@dataclass(frozen=True, slots=True)
class Names:
    """The meaning of a program's names."""

    bound: Mapping[Owner | None, frozenset[str]]
    """What assignments, parameters, definitions and imports bind, by function; None: top level."""
    imported: Mapping[str, str]
    """Dotted meaning of a name that only imports bind: "re", "workspace.X.operator.Custom"."""
    anywhere: frozenset[str]
    """All that is bound anywhere."""

    def dotted(self, node: ast.AST) -> str:
        """What an expression of names and attributes stands for, imports resolved; "" otherwise."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        if node.id in self.imported:
            root = self.imported[node.id]
        elif node.id in GIVEN and node.id not in self.anywhere:
            root = f"scripts.{node.id}"
        else:
            return ""
        return ".".join((root, *reversed(parts)))

    def operator_class(self, node: ast.AST) -> str:
        """The operator's name where an expression is a class of AFlow's operators; else ""."""
        *path, name = self.dotted(node).split(".")
        return name if path and path[0] in AFLOW and path[-1] in OPERATOR_MODULES else ""

    def llm_maker(self, node: ast.AST) -> bool:
        """Whether an expression makes an llm when called."""
        root, _, rest = self.dotted(node).partition(".")
        return root in AFLOW and rest.split(".")[-1] in ("create_llm_instance", "AsyncLLM")


def read_names(program: Program) -> Names:
    """The names of a program."""
    bound: dict[Owner | None, set[str]] = {}
    imported: dict[str, str] = {}
    otherwise: set[str] = set()
    for node in program.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            meanings = dict(imports_of(node))
            imported |= meanings
            bound.setdefault(program.owners[node], set()).update(meanings)
        elif isinstance(node, BINDING) and (names := binds(node, program)):
            bound.setdefault(scope(node, program), set()).update(names)
            otherwise.update(names)
    only = {name: meaning for name, meaning in imported.items() if name not in otherwise}
    scopes = {owner: frozenset(names) for owner, names in bound.items()}
    return Names(scopes, only, frozenset(otherwise | imported.keys()))


def imports_of(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """Each name that an import binds, and its dotted meaning."""
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            yield alias.asname or alias.name, f"{node.module or ''}.{alias.name}"
        elif alias.asname:
            yield alias.asname, alias.name
        else:
            root = alias.name.split(".")[0]
            yield root, root


def binds(node: ast.AST, program: Program) -> tuple[str, ...]:
    """The names that one node binds, imports aside; a method is no name."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
            return (name,)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return () if isinstance(program.parents.get(node), ast.ClassDef) else (name,)
        case ast.ClassDef(name=name):
            return (name,)
        case ast.ExceptHandler(name=str(name)):
            return (name,)
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return (name,)
        case ast.MatchMapping(rest=str(name)):
            return (name,)
        case ast.Global(names=names):
            return tuple(names)
        case _:
            return ()


def scope(node: ast.AST, program: Program) -> Owner | None:
    """Where a node binds: its function, or the top level for `global`."""
    return None if isinstance(node, ast.Global) else program.owners[node]


def visible(name: str, node: ast.AST, names: Names, program: Program) -> bool:
    """Whether something binds `name` in the functions around a node, or at the top level."""
    owner = program.owners[node]
    while name not in names.bound.get(owner, ()):
        if owner is None:
            return False
        owner = program.owners[owner]
    return True


@functools.cache
def public_names(module: str) -> frozenset[str]:
    """What a program may use of an allowed module: nothing private and no further module."""
    if module == "asyncio":
        return ASYNCIO
    held = vars(import_module(module))
    public = {name for name in held if not name.startswith("_")} - EVALUATING
    inner = {name for name in public if isinstance(held[name], ModuleType)}
    return frozenset(public - inner) | ({"abc"} if module == "collections" else frozenset())
