"""Writes a function or a class of a notebook as the text of a module that means the same elsewhere.

What it uses goes with it: imports of installed modules, functions and classes as their source,
literals as they are written. Every other value, and a function without a source (a lambda, one
that a decorator made), is there as cloudpickle's bytes, whose loading runs code as any import does.
"""

import ast
import base64
import builtins
import inspect
import linecache
import re
import symtable
import sys
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions
from types import FunctionType, ModuleType
from typing import Any

from assay.errors import InputError

PLAIN = (type(None), bool, int, float, str, bytes, tuple, list, dict, set, frozenset)


CALLED = """\
_{name} = {loaded}


def {name}(*values, **named):
    return _{name}(*values, **named)


{name}.__signature__ = inspect.signature(_{name})
for _key in {{"unsafe", "lowest"}} & {{*dir(_{name})}}:
    setattr({name}, _key, getattr(_{name}, _key))"""
"""A function that was pickled belongs to the file, whose sha256 is then its fingerprint."""


def module_text(name: str, value: Any) -> str:
    """The text of a module in which `name` is `value`. Raises InputError for what no text holds."""
    parts: dict[str, str] = {}
    _enter(parts, {}, name, value)
    return "\n\n".join(parts.values()) + "\n"


def _enter(parts: dict[str, str], values: dict[str, Any], name: str, value: Any) -> None:
    """Enter what binds `name`, behind all that it uses."""
    if name in values:
        if values[name] is not value and repr(values[name]) != repr(value):
            problem = f"uses two things by the name {name!r}, and a file has one"
            raise InputError(problem, fix="give one another name")
        return
    values[name] = value
    text = _imported(name, value) or _literal(name, value)
    if text is None and (source := _source(value)) is not None:
        whole = inspect.unwrap(value)
        for needed, held in _used(source, whole).items():
            if held is not value:
                _enter(parts, values, needed, held)
        own = whole.__name__
        if own != name:
            _enter(parts, values, own, value)
        text = f"{name} = {own}" if own != name else source + _attributes(own, value)
    parts[name] = text or _pickled(name, value)


def _imported(name: str, value: Any) -> str | None:
    """The import of a module, or of what an installed one has; None for anything else."""
    if isinstance(value, ModuleType):
        if not _installed(value.__name__):
            fix = f"import the functions that are used: from {value.__name__} import ..."
            raise InputError(f"uses the module {value.__name__!r}, which no package has", fix=fix)
        return f"import {value.__name__}" + (f" as {name}" if name != value.__name__ else "")
    module, own = getattr(value, "__module__", None), getattr(value, "__qualname__", ".")
    if not isinstance(module, str) or not own.isidentifier() or not _installed(module):
        return None
    if getattr(sys.modules.get(module), own, None) is not value:
        return None
    return f"from {module} import {own}" + (f" as {name}" if name != own else "")


@cache
def _distributions() -> frozenset[str]:
    return frozenset((*packages_distributions(), *sys.stdlib_module_names)) - {"__main__"}


def _installed(module: str) -> bool:
    """Whether every process of this Python has the module, wherever it is started."""
    return module.split(".")[0] in _distributions()


def _literal(name: str, value: Any) -> str | None:
    """`name = VALUE` for a pattern and what Python reads back alike; None for anything else."""
    if isinstance(value, re.Pattern):
        return f"import re\n\n{name} = re.compile({value.pattern!r}, {value.flags})"
    if type(value) not in PLAIN:
        return None
    try:
        alike = repr(ast.literal_eval(repr(value))) == repr(value)
    except (ValueError, SyntaxError):
        return None
    return f"{name} = {value!r}" if alike else None


def _source(value: Any) -> str | None:
    """The source of a function or class that means the same at the top of a file, else None."""
    whole = inspect.unwrap(value) if callable(value) else value
    if not isinstance(whole, FunctionType | type):
        return None
    try:
        text = _class_text(whole) if isinstance(whole, type) else inspect.getsource(whole)
        source = textwrap.dedent(text)
        (node,) = ast.parse(source).body
    except (OSError, TypeError, SyntaxError):
        return None
    if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    # One that stands around another, which a decorator was handed: the other's source has it.
    cells = getattr(whole, "__closure__", None) or ()
    within = any((_source(cell.cell_contents) or "").startswith("@") for cell in cells)
    writes = any(isinstance(each, ast.Global | ast.Nonlocal) for each in ast.walk(node))
    return None if within or writes or node.name != whole.__name__ else source


def _class_text(kind: Any) -> str:
    """The source of a class by one of its methods; `inspect` finds none of a notebook's before
    Python 3.13. Raises OSError."""
    for method in filter(inspect.isfunction, vars(kind).values()):
        lines, at = linecache.getlines(method.__code__.co_filename), method.__code__.co_firstlineno
        for node in ast.walk(ast.parse("".join(lines))):
            if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                if first <= at <= (node.end_lineno or 0):
                    return "".join(lines[first - 1 : node.end_lineno])
    raise OSError(f"{kind.__name__} has no method with a source")


def _used(source: str, value: Any) -> Mapping[str, Any]:
    """What the names that a source takes from around it stand for, in order of name."""
    members = [value] if isinstance(value, FunctionType) else vars(value).values()
    scope: dict[str, Any] = {**vars(sys.modules.get(value.__module__, builtins))}
    for each in filter(inspect.isfunction, members):
        cells = zip(each.__code__.co_freevars, each.__closure__ or (), strict=True)
        scope |= each.__globals__ | {name: cell.cell_contents for name, cell in cells}
    names = sorted(set(_global_names(symtable.symtable(source, value.__name__, "exec"))))
    return {name: scope[name] for name in names if name in scope}


def _global_names(table: symtable.SymbolTable) -> Iterator[str]:
    """The names that a text reads from the module that it stands in."""
    outermost = table.get_type() == "module"
    for symbol in table.get_symbols():
        own = outermost and symbol.is_assigned()
        if symbol.is_referenced() and not own and (outermost or symbol.is_global()):
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _global_names(inner)


def _attributes(name: str, value: Any) -> str:
    """What was set on a function after it was defined, such as `lowest`."""
    own = vars(value) if isinstance(value, FunctionType) else {}
    lines = [_literal(f"{name}.{key}", each) for key, each in own.items() if key != "__wrapped__"]
    return "".join(f"\n{line}" for line in lines if line is not None)


def _pickled(name: str, value: Any) -> str:
    if type(value).__module__.startswith("assay.tasks.") and callable(value):
        fix = 'define it in a file: reward = "path:rewards.py:NAME"'
        raise InputError(f"{name!r} is a {type(value).__name__}, and no function", fix=fix)
    try:
        import cloudpickle
    except ImportError:
        problem = f"{name!r} has no source that a file can hold"
        raise InputError(problem, fix="write it with def, or pip install cloudpickle") from None
    own = [m for n, m in [*sys.modules.items()] if n != "__main__" and not _installed(n)]
    try:
        for module in own:  # another process may not find the user's modules
            cloudpickle.register_pickle_by_value(module)
        held = base64.b64encode(cloudpickle.dumps(value)).decode()
    except Exception as error:  # what pickling raises is its own
        line = " ".join(f"{type(error).__name__}: {error}".split())
        fix = "make it inside the function, of values that can be stored"
        raise InputError(f"{name!r} cannot be stored: {line}", fix=fix) from error
    finally:
        for module in own:
            cloudpickle.unregister_pickle_by_value(module)
    loaded = f'cloudpickle.loads(base64.b64decode("{held}"))'
    imports = "import base64\nimport inspect\n\nimport cloudpickle\n\n"
    if not callable(value) or isinstance(value, type):
        return f"{imports}{name} = {loaded}"
    return imports + CALLED.format(name=name, loaded=loaded)
