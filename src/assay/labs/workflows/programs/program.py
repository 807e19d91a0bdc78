"""A workflow program as it was written: its source, its syntax tree and what its names stand for.

Programs are parsed and never run, and a hostile text is an `InputError`, whatever it does to
the parser. Flow does not count here: a place holds what is put there anywhere.

Fenced blocks of code in text that a model wrote are read as CommonMark does: with any info string,
either kind of fence and line end, indented or not; one that is never closed goes to the end.
"""

import ast
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from markdown_it import MarkdownIt

from assay.errors import InputError
from assay.labs.workflows.programs.operators import AFLOW, OPERATORS

CLASS = "Workflow"
FILE = "workflow.py"
MOST_CHARACTERS = 20_000
"""Of a source; the longest published program has 6 336."""
MOST_DEPTH = 60
"""Levels of the syntax tree; ordinary programs have about 15."""
GIVEN = frozenset(
    {"operator", "create_llm_instance", "AsyncLLM", "DatasetType", "prompt_custom", "logger"}
)
"""Names that AFlow's template imports and a program may use without importing them."""
OPERATOR_MODULES = ("operator", "operators")
OPERATOR, LLM, ASYNC, OTHER = "operator:", "llm", "async function", ""
ATTRIBUTE = "self"
SHARED = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
"""Nodes of which the parser makes one for all places."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
Owner = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Place = tuple[Owner | str | None, str]
"""A variable of a function or of the top level (None), or ("self", an attribute)."""
T = TypeVar("T")

_MARKDOWN = MarkdownIt("zero").enable("fence")
_INLINE = re.compile(r"(?<=[^\s`])[ \t]*(```[ \t]*[A-Za-z]\w*[ \t]*\r?\n)")
"""A fence at the end of a line of text, which CommonMark does not know: "Here it is: ```python"."""
PYTHON = ("", "python", "py", "python3", "python2", "py3", "ipython")
"""Languages, in small letters, whose blocks may hold Python; "" is none."""


@dataclass(frozen=True, slots=True)
class FencedBlock:
    """One fenced block."""

    language: str
    """The first word of the info string in small letters, without a brace or a dot."""
    code: str
    """Its lines, each with a line feed."""


def fenced_blocks(text: str) -> list[FencedBlock]:
    """The blocks of a text in their order."""
    tokens = _MARKDOWN.parse(_INLINE.sub(r"\n\1", text))
    return [
        FencedBlock(
            re.split(r"[\s,:{}]+", token.info.strip(" {}.") + " ")[0].lower(), token.content
        )
        for token in tokens
        if token.type == "fence"
    ]


_START = re.compile(r"^class Workflow\b", re.MULTILINE)
_END = re.compile(r"^[ \t]*```", re.MULTILINE)


def program_of(completion_text: str) -> str | None:
    """The first block that is marked as Python, else the text from `class Workflow` on; None for
    neither. It is neither repaired nor judged.

    A block that is never closed goes to the end of the text, as that of a cut completion does; the
    text from the class on ends at the next fence.
    """
    marked = [b.code for b in fenced_blocks(completion_text) if b.language in PYTHON[1:]]
    if marked:
        program = marked[0]
    elif start := _START.search(completion_text):
        program = _END.split(completion_text[start.start() :])[0]
    else:
        return None
    return program.rstrip() + "\n" if program.strip() else None


def unreadable(code: str, line: int, problem: str) -> InputError:
    """A text that is no program, or none that is looked at; the field is the finding's code."""
    return InputError(problem, field=code, line=line)


@dataclass(slots=True)
class Program:
    """A parsed program and the meaning of its names."""

    nodes: list[ast.AST] = field(default_factory=list)
    """All statements, expressions and the like, parents before children."""
    parents: dict[ast.AST, ast.AST] = field(default_factory=dict)
    owners: dict[ast.AST, Owner | None] = field(default_factory=dict)
    """The innermost function or lambda around a node; None at the top level."""
    workflow: ast.ClassDef | None = None
    """The last class `Workflow` at the top level, which is the one that counts."""
    selves: dict[Owner | None, str] = field(default_factory=dict)
    """What `self` is called in a method of `Workflow` and in the functions inside of it."""
    assigned: dict[Place, list[ast.AST | None]] = field(default_factory=dict)
    """What is put into each place; None for a value that is not simply said."""
    imported: dict[str, str] = field(default_factory=dict)
    """Dotted meaning of a name that only imports bind: "re", "workspace.X.operator.Custom"."""
    bound: frozenset[str] = frozenset()
    """All names that anything binds anywhere."""
    held: dict[Place, str] = field(default_factory=dict)
    """"operator:NAME", "llm", "async function", or "" for anything else."""

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
        elif node.id in GIVEN and node.id not in self.bound:
            root = f"scripts.{node.id}"
        else:
            return ""
        return ".".join((root, *reversed(parts)))

    def operator_class(self, node: ast.AST) -> str:
        """The operator's name where an expression is a class of AFlow's operators; else ""."""
        *path, name = self.dotted(node).split(".")
        return name if path and path[0] in AFLOW and path[-1] in OPERATOR_MODULES else ""

    def place(self, node: ast.AST) -> Place | None:
        """The variable or attribute that an expression names; None for anything else."""
        owner = self.owners.get(node)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return (ATTRIBUTE, node.attr) if node.value.id == self.selves.get(owner) else None
        if not isinstance(node, ast.Name):
            return None
        while owner is not None and (owner, node.id) not in self.assigned:
            owner = self.owners[owner]
        return owner, node.id

    def value(self, node: ast.AST | None) -> str:
        """What an expression or a definition gives, as in `held`."""
        if isinstance(node, ast.AsyncFunctionDef):
            own = (each for each in self.nodes if self.owners[each] is node)
            return OTHER if any(isinstance(each, ast.Yield) for each in own) else ASYNC
        if isinstance(node, ast.Call):
            if name := self.operator_class(node.func):
                return OPERATOR + name
            root, _, rest = self.dotted(node.func).partition(".")
            makes_llm = rest.split(".")[-1] in ("create_llm_instance", "AsyncLLM")
            return LLM if root in AFLOW and makes_llm else OTHER
        place = self.place(node) if node is not None else None
        return self.held.get(place, OTHER) if place else OTHER

    def operator(self, call: ast.Call) -> str:
        """The name of the operator that is called; "" where it is none."""
        value = self.value(call.func)
        return value[len(OPERATOR) :] if value.startswith(OPERATOR) else ""


def read_program(source: str) -> Program:
    """Parse a source. Raises InputError."""
    if len(source) > MOST_CHARACTERS:
        raise unreadable("too_long", 0, f"{len(source)} characters")
    tree = _python(lambda: ast.parse(source, FILE))
    program = _indexed(tree)
    # The compiler alone refuses `return` outside of a function and the like. Nothing is run.
    _python(lambda: compile(tree, FILE, "exec", dont_inherit=True))
    for each in tree.body:
        if isinstance(each, ast.ClassDef) and each.name == CLASS:
            program.workflow = each
    program.selves = _selves(program)
    otherwise: set[str] = set()
    for node in program.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name, meaning in _imports(node):
                program.imported[name] = meaning
                program.assigned.setdefault((program.owners[node], name), [])
        else:
            for place, value in _bindings(node, program):
                program.assigned.setdefault(place, []).append(value)
                otherwise |= {place[1]} if place[0] != ATTRIBUTE else set()
    program.bound = frozenset(otherwise | program.imported.keys())
    program.imported = {n: each for n, each in program.imported.items() if n not in otherwise}
    for aliases in (False, True):
        program.held = _held(program, aliases)
    return program


def _python(step: Callable[[], T]) -> T:
    """The result of a step of Python's parser or compiler. Raises InputError."""
    try:
        with warnings.catch_warnings():
            # Strange escapes and the like: a model's text, not the lab's.
            warnings.simplefilter("ignore")
            return step()
    except SyntaxError as error:
        deep = "too many nested" in error.msg or "too many levels" in error.msg
        code = "too_deep" if deep else "syntax"
        raise unreadable(code, error.lineno or 0, error.msg) from None
    except ValueError:
        raise unreadable("syntax", 0, "it holds null bytes or lone surrogates") from None
    except (RecursionError, MemoryError, OverflowError):
        raise unreadable("too_deep", 0, "too deep for the parser") from None


def _indexed(tree: ast.Module) -> Program:
    """All nodes level by level, so that no text makes it recurse. Raises InputError."""
    program, level = Program(owners={tree: None}), list[ast.AST]([tree])
    for _ in range(MOST_DEPTH):
        program.nodes += level
        above, level = level, []
        for parent in above:
            children = [c for c in ast.iter_child_nodes(parent) if not isinstance(c, SHARED)]
            level += children
            program.parents |= dict.fromkeys(children, parent)
            owner = parent if isinstance(parent, Owner) else program.owners[parent]
            program.owners |= dict.fromkeys(children, owner)
        if not level:
            return program
    line = getattr(level[0], "lineno", 0)
    raise unreadable("too_deep", line, f"more than {MOST_DEPTH} levels deep")


def _selves(program: Program) -> dict[Owner | None, str]:
    selves: dict[Owner | None, str] = {}
    for node in program.nodes:
        if isinstance(node, Function) and program.parents[node] is program.workflow:
            arguments = (*node.args.posonlyargs, *node.args.args)
            selves[node] = arguments[0].arg if arguments else ""
        elif isinstance(node, Owner):
            selves[node] = selves.get(program.owners[node], "")
    return selves


def _imports(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """Each name that an import binds, and its dotted meaning."""
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            yield alias.asname or alias.name, f"{node.module or ''}.{alias.name}"
        elif alias.asname:
            yield alias.asname, alias.name
        else:
            root = alias.name.split(".")[0]
            yield root, root


def _bindings(node: ast.AST, program: Program) -> Iterator[tuple[Place, ast.AST | None]]:
    """The places that a node puts something into, imports aside, and what it puts there."""
    owner, parent = program.owners[node], program.parents.get(node)
    match node:
        case ast.Attribute(ctx=ast.Store()) if place := program.place(node):
            yield place, _value_of(node, program)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            if parent is program.workflow:
                yield (ATTRIBUTE, name), node
            elif not isinstance(parent, ast.ClassDef):
                yield (owner, name), node
        case ast.Name(id=name, ctx=ast.Store()):
            if parent is not None and program.parents[parent] is program.workflow:
                yield (ATTRIBUTE, name), _value_of(node, program)
                yield (None, name), None
            else:
                yield (owner, name), _value_of(node, program)
        case ast.Global(names=names):
            yield from (((None, name), None) for name in names)
        case (
            ast.arg(arg=name)
            | ast.ClassDef(name=name)
            | ast.ExceptHandler(name=str(name))
            | ast.MatchAs(name=str(name))
            | ast.MatchStar(name=str(name))
            | ast.MatchMapping(rest=str(name))
        ):
            yield (owner, name), None


def _value_of(target: ast.AST, program: Program) -> ast.AST | None:
    """The expression that a target is assigned."""
    parent = program.parents[target]
    match parent:
        case ast.Assign(value=value) | ast.AnnAssign(value=value) | ast.NamedExpr(value=value):
            return value
        case ast.Tuple(elts=targets):
            match program.parents[parent]:
                case ast.Assign(value=ast.Tuple(elts=values)) if len(values) == len(targets):
                    return next(v for t, v in zip(targets, values, strict=True) if t is target)
    return None


def _held(program: Program, aliases: bool) -> dict[Place, str]:
    """What each place holds where all that is put there is the same; names and attributes that are
    put there are resolved by what the program knows until now, or left out."""
    held: dict[Place, str] = {}
    for place, values in program.assigned.items():
        plain = [v for v in values if aliases or not isinstance(v, ast.Name | ast.Attribute)]
        kinds = {program.value(each) for each in plain}
        if len(kinds) == 1:
            held[place] = kinds.pop()
    return held


def is_annotation(node: ast.AST, program: Program) -> bool:
    """Tell whether an expression is a type's."""
    parent = program.parents[node]
    if isinstance(parent, Function):
        return node is parent.returns
    return isinstance(parent, ast.arg | ast.AnnAssign) and node is parent.annotation


def shape_of(source: str) -> str:
    """A valid program without its names and constants, but for the operators that it makes: equal
    where two trees are."""
    nodes = ast.walk(_python(lambda: ast.parse(source, FILE)))
    names = ((getattr(node, "attr", ""), type(node).__name__) for node in nodes)
    return " ".join(attribute if attribute in OPERATORS else kind for attribute, kind in names)
