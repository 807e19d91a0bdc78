"""Loads code from outside the package: users' files by their path.

A file is loaded once per process, by its absolute path and under a private module name, so that
its name shadows nothing. It may import modules and packages that lie beside it; they belong to its
fingerprint. Whether what is loaded is a task or a reward is judged in `task`.
"""

import ast
import inspect
import json
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
)
from importlib.util import decode_source, find_spec, module_from_spec, spec_from_loader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from assay.data.files import expanded
from assay.data.hashing import canonical_json, sha256_text
from assay.errors import InputError, nearest

SCHEME = "path:"
PRIVATE = "assay_user_file_"
"""How the private names of modules begin."""


@dataclass(frozen=True, slots=True)
class LoadedFile:
    """A file as this process has loaded it."""

    path: Path
    module: ModuleType
    sources: Mapping[str, str]
    """The text of the file and of what it imports beside it, by path from its folder."""

    @property
    def fingerprint(self) -> dict[str, str]:
        """The sha256 of each source by its path from the file's folder."""
        return {name: sha256_text(text) for name, text in self.sources.items()}


_loaded: dict[Path, LoadedFile] = {}


def load_file(name: str, root: Path) -> LoadedFile:
    """The file that `path:FILE` or `FILE` names, relative ones from `root`.

    Raises InputError for a file that is not there or raises when it is imported.
    """
    path = (root / expanded(name.removeprefix(SCHEME))).resolve()
    if path not in _loaded:
        if not path.is_file():
            raise InputError(f"{path}: no such file", fix=f"it counts from {root.resolve()}")
        sources = source_files(path)
        _loaded[path] = LoadedFile(path, _executed(path, sources), sources)
    return _loaded[path]


def forget_changed_files() -> None:
    """Let files that have changed on disk be loaded anew: a notebook runs several experiments."""
    for path, loaded in list(_loaded.items()):
        if path.is_file() and source_files(path) == loaded.sources:
            continue
        del _loaded[path]
        for name in _beside_modules(loaded.sources):
            for known in [each for each in sys.modules if each.split(".")[0] == name]:
                if _lies_in(sys.modules[known], path.parent):
                    del sys.modules[known]


def file_of(module: ModuleType) -> LoadedFile | None:
    """The user's file that a module is, or lies beside; None for every other module."""
    for loaded in _loaded.values():
        names = _beside_modules(loaded.sources)
        beside = module.__name__.split(".")[0] in names and _lies_in(module, loaded.path.parent)
        if module is loaded.module or beside:
            return loaded
    return None


def source_files(path: Path) -> dict[str, str]:
    """The text of a file and of all that it imports beside it, by path from its folder.

    Raises InputError for one that is no Python.
    """
    texts: dict[str, str] = {}
    waiting = [path]
    while waiting:
        file = waiting.pop()
        name = file.relative_to(path.parent).as_posix()
        if name not in texts:
            texts[name], tree = _parsed(file)
            waiting += _imported_beside(tree, path.parent)
    return dict(sorted(texts.items()))


def _parsed(file: Path) -> tuple[str, ast.Module]:
    try:
        text = decode_source(file.read_bytes())
        return text, ast.parse(text, filename=str(file))
    except SyntaxError as error:
        raise InputError(f"SyntaxError: {error.msg}", file=file, line=error.lineno) from None
    except ValueError as error:
        raise InputError(f"is no Python source: {error}", file=file) from None


def _imported_beside(tree: ast.Module, folder: Path) -> Iterator[Path]:
    """The files in `folder` that a module imports, wherever in it; of a package, all."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    for name in names - sys.stdlib_module_names:
        if (folder / name / "__init__.py").is_file():
            yield from (folder / name).rglob("*.py")
        elif (folder / f"{name}.py").is_file():
            yield folder / f"{name}.py"


def _beside_modules(sources: Mapping[str, str]) -> set[str]:
    """The top-level names of the modules that a file imports beside it, its own among them."""
    return {name.split("/")[0].removesuffix(".py") for name in sources}


class _FromSource(SourceFileLoader):
    """Compiles the source that is there: a cached one may be of the same second and length."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def _executed(path: Path, sources: Mapping[str, str]) -> ModuleType:
    """The module of a file, run. Raises InputError with the line in the user's files."""
    folder = str(path.parent)
    if folder not in sys.path:
        # At the end, so that what lies there shadows nothing; workers import from there too.
        sys.path.append(folder)
    # What it imports beside it is compiled from the source that is there, as it is itself.
    for beside in {str((path.parent / source).parent) for source in sources}:
        kinds = (ExtensionFileLoader, EXTENSION_SUFFIXES), (_FromSource, SOURCE_SUFFIXES)
        sys.path_importer_cache[beside] = FileFinder(beside, *kinds)
    name = f"{PRIVATE}{sha256_text(str(path))[:12]}_{path.stem}"
    spec = spec_from_loader(name, _FromSource(name, str(path)))
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    # Dataclasses and pickle look their module up.
    sys.modules[name] = module
    try:
        _refuse_shadowed(path, sources)
        with redirect_stdout(sys.stderr):  # stdout is for results: a program may read it
            spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, InputError | KeyboardInterrupt):
            raise
        raise _raised(error, path) from error
    return module


def _refuse_shadowed(path: Path, sources: Mapping[str, str]) -> None:
    """A module beside the file that Python would take from elsewhere."""
    for name in sorted(_beside_modules({n: t for n, t in sources.items() if n != path.name})):
        known = sys.modules.get(name)
        spec = known.__spec__ if known is not None else find_spec(name)
        origin = spec.origin if spec is not None else None
        if origin is None or not Path(origin).resolve().is_relative_to(path.parent):
            problem = f"imports {name!r}, which is {origin} and not what lies beside it"
            raise InputError(problem, file=path, fix=f"rename {name}.py")


def _raised(error: BaseException, path: Path) -> InputError:
    """The error with the deepest line of it that is in the user's folder."""
    if isinstance(error, SyntaxError):
        problem = f"SyntaxError: {error.msg}"
        return InputError(problem, file=error.filename or path, line=error.lineno)
    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if Path(each.filename).is_relative_to(path.parent)]
    text = " ".join(str(error).split())
    problem = f"raises {type(error).__name__}" + (f": {text}" if text else "")
    place = own[-1] if own else None
    return InputError(
        problem, file=place.filename if place else path, line=place.lineno if place else None
    )


def _lies_in(module: ModuleType, folder: Path) -> bool:
    origin = getattr(module, "__file__", None)
    return origin is not None and Path(origin).resolve().is_relative_to(folder)


def function_in(name: str, root: Path) -> tuple[Callable[..., Any], LoadedFile]:
    """The function that `path:FILE.py:FUNCTION` names, and its file. Raises InputError."""
    file, _, function = name.removeprefix(SCHEME).rpartition(":")
    if not file.endswith(".py"):
        raise InputError(f"{name!r} names no function", fix="write path:FILE.py:FUNCTION")
    loaded = load_file(file, root)
    known = {n: f for n, f in vars(loaded.module).items() if callable(f) and n[:1] != "_"}
    if function not in known:
        problem = f"there is no function {function!r}"
        raise InputError(problem, file=loaded.path, fix=nearest(function, known))
    return known[function], loaded


def inner_function(function: Any) -> Any:
    """The function that a user wrote, out of what stands for it: a signature, bound options."""
    while (inner := getattr(function, "function", getattr(function, "func", None))) is not None:
        function = inner
    return function


def _user_file(function: Any) -> LoadedFile | None:
    """The user's file that a function stands in; None for any other function."""
    inner = inner_function(function)
    module = inspect.getmodule(inner) or inspect.getmodule(type(inner))
    return file_of(module) if module is not None else None


def file_note(function: Callable[..., Any]) -> str:
    """File and fingerprint of a function of a user, or of what stands for it; "" for any other."""
    loaded = _user_file(function)
    if loaded is None:
        return ""
    return f"{loaded.path.name} {sha256_text(canonical_json(loaded.fingerprint))[:12]}"


def line_note(function: Any) -> str:
    """File and line of a user's reward; "" for any other."""
    inner = inner_function(function)
    code = getattr(inner, "__code__", getattr(type(inner).__call__, "__code__", None))
    if code is None or _user_file(inner) is None:
        return ""
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}"


def in_a_line(error: BaseException) -> str:
    """What was raised, with the deepest line of it that is in a user's file."""
    files = {str(f.path.parent / name) for f in _loaded.values() for name in f.sources}
    lines = [
        f" ({Path(frame.f_code.co_filename).name}:{number})"
        for frame, number in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_filename in files
    ]
    name = type(error).__name__
    return (f"{name}: {error}" if str(error) else name) + (lines[-1] if lines else "")


def place_of(function: Callable[..., Any]) -> str:
    """Where a worker finds a function: "package.module:name", or of a user's file path, name and
    fingerprint in JSON.

    Raises InputError for one without an importable name (a lambda, or defined in a function).
    """
    name = getattr(function, "__qualname__", "<unnamed>")
    if "<" in name or "." in name:
        problem = f"the unsafe reward {name} cannot run in a worker"
        raise InputError(problem, fix="define it in a module")
    module = sys.modules[function.__module__]
    for loaded in _loaded.values():
        if module is loaded.module:
            return json.dumps([str(loaded.path), name, loaded.fingerprint])
    return f"{module.__name__}:{name}"


def function_at(place: str) -> Callable[..., Any]:
    """The function that `place_of` describes. Raises what importing raises, and InputError for a
    file that is no longer what the lab has loaded."""
    if not place.startswith("["):
        module, _, name = place.partition(":")
        return getattr(import_module(module), name)
    path, name, fingerprint = json.loads(place)
    loaded = load_file(path, Path("/"))
    if loaded.fingerprint != fingerprint:
        raise InputError("has changed since the run began", file=path, fix="restore it")
    return getattr(loaded.module, name)
