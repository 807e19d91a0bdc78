"""Loads code from outside the package, users' files by their path, and takes functions as rewards.

A file is loaded once per process, by its absolute path and under a private module name, so that
its name shadows nothing. It may import modules and packages that lie beside it; they belong to its
fingerprint. Whether what is loaded is a task or a reward is judged in `task`.

A function of one of three signatures is a reward; the names of its parameters tell them apart:

- `(row, completion) -> Reward`: Assay's own.
- `(prompt, completion, row) -> float`: texts in, a number out; None abstains.
- `(prompts, completions, **columns) -> list[float]`: TRL's. It is called with one completion, as
  text where the file's prompt is text and as messages elsewhere, and gets the columns that it
  names, by their names in the file, or all where it takes `**kwargs` (TRL 1.16,
  `trainer/grpo_trainer.py: _calculate_rewards`). `id` and `gold` are always there; `trainer_state`
  and `environments` never are.

Whether a function may run in this process is its own word: the attribute `unsafe`. What any of them
returns becomes a reward in `as_value`, and nowhere else.
"""

import ast
import asyncio
import inspect
import json
import math
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
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

from assay.data.conversation import stored_messages
from assay.data.episode import Completion, Reward
from assay.data.files import canonical_json, expanded, sha256_text
from assay.data.row import Message, Row
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


Judge = Callable[[Row, Completion], Reward]
TRL = {"prompts", "completions", "completion_ids"}
"""Parameters that only TRL's signature has; a function names at least one of them."""

ACCEPTED = (
    "write (prompt, completion, row) -> float, (row, completion) -> Reward, or TRL's "
    "(prompts, completions, **columns) -> list[float]"
)


@dataclass(frozen=True, slots=True)
class TextReward:
    """A function `(prompt, completion, row)` as a reward: both texts, and a number back."""

    function: Callable[..., Any]

    def __call__(self, row: Row, completion: Completion) -> Reward:
        """Raises InputError."""
        value = self.function(prompt=question(row), completion=completion.text, row=row)
        return as_value(value, self.function)

    @property
    def unsafe(self) -> bool:
        """Whether it has to run in a worker."""
        return bool(getattr(self.function, "unsafe", False))

    @property
    def lowest(self) -> float:
        """The value of an answer on which it fails."""
        return float(getattr(self.function, "lowest", 0.0))


@dataclass(frozen=True, slots=True)
class TrlReward(TextReward):
    """A function of TRL's signature as a reward, called with lists of one.

    What it logs (`log_metric`, `log_extra`) become the reward's parts and facts.
    """

    def __call__(self, row: Row, completion: Completion) -> Reward:
        """Raises InputError, also for anything but a list of one number."""
        parts: dict[str, float] = {}
        facts: dict[str, str] = {}

        def log_metric(name: str, value: float) -> None:
            parts[name] = float(value)

        def log_extra(column: str, values: Sequence[object]) -> None:
            facts[column] = str(values[0])

        arguments = {
            **{name: [value] for name, value in columns(row, completion).items()},
            "log_metric": log_metric,
            "log_extra": log_extra,
        }
        if lacking := [name for name in required(self.function) if name not in arguments]:
            known = ", ".join(sorted(arguments.keys() - {"log_metric", "log_extra"}))
            problem = f"{named(self.function)} asks for {', '.join(map(repr, lacking))}, and the "
            raise TypeError(f"{problem}columns here are: {known}{_at(self.function)}")
        scores = self.function(**taken(self.function, arguments))
        if inspect.isawaitable(scores):
            scores = finished(scores)
        if not isinstance(scores, list | tuple) or len(scores) != 1:
            problem = f"{named(self.function)} returned {scores!r:.80}, not a list of one number"
            raise InputError(problem + _at(self.function))
        return replace(as_value(scores[0], self.function), parts=parts, facts=facts)


def as_reward(function: Callable[..., Any], name: str) -> Judge:
    """A function of any of the signatures as a reward. Raises InputError."""
    if not callable(function) or isinstance(function, type):
        raise InputError(f"{name} is {function!r:.80}, not a function", fix=ACCEPTED)
    names = required(function)
    if names == ["row", "completion"]:
        return function
    if set(names) == {"prompt", "completion", "row"}:
        return TextReward(function)
    if TRL & {*names} and not {"prompt", "completion", "row"} & {*names}:
        return TrlReward(function)
    raise InputError(f"{name} takes ({', '.join(names)})", fix=ACCEPTED)


def required(function: Callable[..., Any]) -> list[str]:
    """The parameters that have no default. Raises InputError where Python cannot tell."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        problem = f"the parameters of {named(function)} cannot be read"
        raise InputError(problem, fix=ACCEPTED) from None
    loose = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in loose]


def taken(function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What of the arguments a function takes: all where it has `**kwargs`."""
    known = inspect.signature(function).parameters
    if any(each.kind is each.VAR_KEYWORD for each in known.values()):
        return dict(arguments)
    return {name: value for name, value in arguments.items() if name in known}


def named(function: Callable[..., Any]) -> str:
    """The name of a function, or of the class of an object in its place."""
    return getattr(function, "__name__", type(function).__name__)


def as_value(value: Any, function: Callable[..., Any]) -> Reward:
    """What a function returned as a reward that records can hold: a number is a value, and None
    abstains. Raises InputError for anything else, and for a number that is not finite."""
    try:
        if value is None:
            return Reward(
                None, why=f"{named(inner_function(function))} returned None{_at(function)}"
            )
        return _recordable(value, named(inner_function(function)))
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{error}{_at(function)}") from None


def _at(function: Callable[..., Any]) -> str:
    """Where a user's function stands, to be appended to what is wrong with it."""
    line = line_note(function)
    return f" ({line})" if line else ""


def _recordable(value: Any, name: str) -> Reward:
    """What `name` returned as a reward of plain numbers and texts. Raises TypeError, ValueError or
    OverflowError."""
    if inspect.iscoroutine(value):
        value.close()  # nothing will await it, of which Python would warn
    if not isinstance(value, Reward):
        return Reward(_number(value, name))
    mappings = isinstance(value.parts, Mapping) and isinstance(value.facts, Mapping)
    if not mappings or not all(
        isinstance(text, str) for text in (*value.parts, *value.facts, value.why, value.outcome)
    ):
        raise TypeError(f"{name} returned a Reward of which a name, `why` or `outcome` is no text")
    return replace(
        value,
        value=None if value.value is None else _number(value.value, name),
        parts={key: _number(each, name, f"part {key!r}: ") for key, each in value.parts.items()},
        facts={
            key: each if isinstance(each, str) else _number(each, name, f"fact {key!r}: ")
            for key, each in value.facts.items()
        },
    )


def _number(value: Any, name: str, part: str = "") -> float:
    """One number (Python's, numpy's, a tensor without dimensions) as Python has it."""
    kind = type(value)
    single = getattr(value, "shape", ()) == () and hasattr(kind, "__float__")
    if not single:
        raise TypeError(f"{part}{name} returned {kind.__name__}, not a number or a Reward")
    number = value if kind in (int, float) else float(value)
    if not math.isfinite(number):
        raise ValueError(f"{part}the value is {number}")
    return number


def question(row: Row) -> str:
    """The text of the row's last user message; "" without one."""
    return next((m.content for m in reversed(row.prompt) if m.role == "user"), "")


def columns(row: Row, completion: Completion) -> dict[str, Any]:
    """The columns that TRL passes on, of one completion: those of the file, and of the row where
    the file has none of that name."""
    own = dict(row.columns)
    text = own.pop("prompt", None)
    prompt, answer = text, completion.text
    if text is None or completion.messages:
        prompt = stored_messages(row.prompt)
        answer = stored_messages(completion.messages or (Message("assistant", answer),))
    return {
        "id": row.id,
        **row.extra,
        **own,
        "gold": row.gold,
        "prompts": prompt,
        "completions": answer,
        "completion_ids": list(completion.tokens),
    }


def finished(awaitable: Awaitable[Any]) -> Any:
    """The result of an asynchronous function, in a loop of its own: a notebook has one running."""

    async def wait() -> Any:
        return await awaitable

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(wait())).result()
