"""Reads an experiment, from its file or from plain values, with overrides, into frozen models, and
turns pydantic's errors into messages with places and hints that a user can act on.

Overrides, `--set stage.grpo.steps=20`, replace values by dotted path before any is checked, so that
they are validated like the file itself; paths are resolved against the models' types.

Every problem becomes one line with file, line and dotted field. Names of registers are checked in
`lab.session.validate`.
"""

import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from assay.data.toml_text import (
    DEEPEST,
    KeyPath,
    key_lines,
    line_of,
    load_toml,
    unusable_values,
    written_path,
)
from assay.errors import InputError, nearest
from assay.experiment.base_table import SpecTable
from assay.experiment.experiment import Experiment, ExperimentOrigin
from assay.experiment.helper_tables import (
    HELPERS,
    MODEL,
    POLICY,
    field_path,
    file_path,
    models_apart,
)
from assay.experiment.toml_write import experiment_toml

SomeTable = TypeVar("SomeTable", bound=SpecTable)
MISSING = "missing"
UNKNOWN = "unknown key"
EMPTY = "must not be empty"
"""Also said of an array whose elements are all wrong."""
DTYPE = "remove it: weights are kept in float32, products are computed in bfloat16 where the "
DTYPE += "machine is faster in it; 'assay export --dtype' writes others"
GREEDY = "a stage learns from answers that differ, and greedy ones are all the same: write 1.0"
_EXPECTED = {
    "int_type": "an integer",
    "float_type": "a number",
    "string_type": "a string",
    "bool_type": "true or false",
    "tuple_type": "an array",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
}
_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with the value at `path`."""

    path: KeyPath
    problem: str
    fix: str = ""
    expected: str = ""
    """What the value should have been, where its type is wrong; members of a union add up."""


NOWHERE = ExperimentOrigin()
ExperimentSource = str | Path | Mapping[str, Any] | Experiment
"""An experiment: its TOML file, the values of one, or one that was read."""


def read_experiment(source: ExperimentSource, overrides: Sequence[str] = ()) -> Experiment:
    """The resolved experiment of `source` with `--set` overrides applied in order.

    Raises InputError with every problem that can be known from it alone, and for an override that
    names nothing.
    """
    file = None
    if isinstance(source, Mapping):
        raw = dict(source)
    elif isinstance(source, Experiment):
        raw = load_toml(experiment_toml(source))
    else:
        raw = parse_toml(read_text(file := Path(source)), file)
    if "base" in raw:  # which every sweep has, and no experiment
        fix = "run it with 'assay fill', see it with 'assay matrix', or give the file of one of "
        fix += f"its experiments: {raw['base']}"
        raise InputError("is a sweep, not an experiment", file=file, fix=fix)
    origin = ExperimentOrigin(file, tuple(overrides))
    values = apply_overrides(raw, [parse_override(override) for override in overrides])
    experiment = made(Experiment, values, origin)
    refuse([_unknown_vary(path) for path in experiment.vary if not _is_field(path, values)], origin)
    return experiment.read_from(origin)


def read_table(kind: type[SomeTable], file: Path) -> SomeTable:
    """The table that is all of a file. Raises InputError with all problems."""
    return made(kind, parse_toml(read_text(file), file), ExperimentOrigin(file))


def made(
    kind: type[SomeTable], values: Mapping[str, Any], origin: ExperimentOrigin = NOWHERE
) -> SomeTable:
    """A table of plain values. Raises InputError with all problems, each where `origin` has it."""
    problems = [Problem(*each) for each in unusable_values(values)]
    if kind is Experiment and HELPERS in values:
        problems.append(Problem((HELPERS,), UNKNOWN, "a helper model is written [model.NAME]"))
    try:
        table = kind.model_validate(values)
    except ValidationError as invalid:
        paths = {problem.path for problem in problems}
        others = problems_in(invalid.errors(include_url=False), values, kind)
        refuse([*problems, *(other for other in others if other.path not in paths)], origin)
        raise
    refuse(problems, origin)
    return table


def read_text(file: Path) -> str:
    """The text of a file. Raises InputError."""
    if file.is_dir():
        raise InputError("is a folder", file=file, fix="name the file in it")
    if not file.is_file():
        there = [each.name for each in file.parent.glob("*.toml")]
        fix = nearest(file.name, there) if there else "restore it, or name another file"
        raise InputError("no such file", file=file, fix=fix)
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError("not UTF-8 text", file=file) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=file) from error


def parse_toml(text: str, file: str | Path) -> dict[str, Any]:
    """The plain values of a TOML text. Raises InputError with the line."""
    try:
        return load_toml(text)
    except InputError as invalid:
        problem = f"not valid TOML: {invalid.problem}"
        fix = _both_models(text, invalid.line)
        raise InputError(problem, file=file, line=invalid.line, fix=fix) from None


def _both_models(text: str, line: int | None) -> str | None:
    """The fix where `model` is a string and, at this line, a table."""
    lines = text.splitlines()
    at = lines[line - 1] if line is not None and line <= len(lines) else ""
    trained = re.search(r"(?m)^[ \t]*model[ \t]*=[ \t]*(.*?)[ \t]*$", text)
    if trained is None or not re.match(r"[ \t]*\[?[ \t]*model[ \t]*\.", at):
        return None
    return f"with helper models, write model.{POLICY} = {trained[1]} in place of model = ..."


def _is_field(dotted: str, values: Mapping[str, Any]) -> bool:
    """Whether the path may be written; the control may have stages that this file has not."""
    path = tuple(dotted.split("."))
    if path[0] in NAMED and path[1:2]:
        names = values.get(path[0])
        values = {path[0]: names if isinstance(names, Mapping) and path[1] in names else {}}
    return bool(annotations_at(path, values))


def _unknown_vary(dotted: str) -> Problem:
    first = dotted.split(".")[0]
    fix = "write a dotted path such as stage.NAME.reward"
    if first not in Experiment.model_fields:
        fix = nearest(first, Experiment.model_fields)
    return Problem(("vary",), f"{dotted!r} is not a field of an experiment", fix)


def refuse(problems: Sequence[Problem], origin: ExperimentOrigin) -> None:
    """Raise InputError for problems, if there are any."""
    if problems:
        raise first_error(problems, origin) from None


def first_error(problems: Sequence[Problem], origin: ExperimentOrigin) -> InputError:
    """The error for problems, that which comes first in the file before the others.

    Missing keys come after the others, because a misspelt key explains one; overrides come last.
    """
    place_of = _places(origin)
    placed = [(problem, *place_of(problem.path)) for problem in problems]
    placed.sort(key=lambda p: (p[1] != origin.file, p[0].problem == MISSING, p[3]))
    others = len(problems) - 1
    count = f"{others} more problem{'s' * (others > 1)}" if others else ""
    error, *each = (
        InputError(
            problem.problem,
            file=file,
            line=line,
            field=".".join(map(str, problem.path)),
            fix="; ".join(filter(None, (problem.fix, more))),
        )
        for (problem, file, line, _), more in [(placed[0], count), *((one, "") for one in placed)]
    )
    error.each = tuple(each) if others else ()
    return error


Place = tuple[str | Path | None, int | None, int]
"""Where a key was written: file and line, or the last override that wrote it; and the line by which
it is sorted."""


def _places(origin: ExperimentOrigin) -> Callable[[KeyPath], Place]:
    """What says where a key was written."""
    lines = key_lines(read_text(origin.file)) if origin.file and origin.file.is_file() else {}
    settings = [parse_override(each) for each in reversed(origin.overrides)]

    def place_of(path: KeyPath) -> Place:
        line = line_of(path, lines)
        for setting in settings:
            if path[: len(setting.path)] == setting.path:
                return place(setting.text), None, line or 0
        return origin.file, line, line or 0

    return place_of


@contextmanager
def lines_named(origin: ExperimentOrigin) -> Iterator[None]:
    """Inside, an InputError of a field of an experiment also names its file and line, or the
    override that wrote the field."""
    try:
        yield
    except InputError as error:
        name_line(error, origin)
        raise


def name_line(error: InputError, origin: ExperimentOrigin) -> None:
    """Make an error of a field of an experiment name the file and line, or the override."""
    path = tuple((error.field or "").split("."))
    if error.file is None and path[0] in Experiment.model_fields:
        file, line, _ = _places(origin)(path)
        where: dict[str, Any] = {"file": file, "line": line, "field": error.field}
        InputError.__init__(error, error.problem, fix=error.fix, **where)


def problems_in(
    errors: list[ErrorDetails], raw: Mapping[str, Any], model: type[SpecTable] = Experiment
) -> list[Problem]:
    """One problem per place, the branches of a union merged, in the order pydantic met them."""
    problems: dict[KeyPath, Problem] = {}
    for error in errors:
        for problem in _problems(error, raw, model):
            before = problems.get(problem.path)
            if before is not None and problem.expected and not before.expected:
                continue  # The branch of a union whose type fits knows more than one it does not.
            merged = problem
            if before is not None and before.expected and problem.expected:
                expected = f"{before.expected} or {problem.expected}"
                merged = _wrong_type(problem.path, expected, error["input"])
            problems[problem.path] = merged
    # What is said of an element is not said of its array; the branch of a union that looked deeper
    # knows more than the one that wanted another type.
    above = {path[:size] for path in problems for size in range(len(path))}
    return [
        p
        for p in problems.values()
        if p.path not in above or not (p.expected or p.problem == EMPTY)
    ]


def _problems(
    error: ErrorDetails, raw: Mapping[str, Any], model: type[SpecTable]
) -> Iterator[Problem]:
    """What one error of pydantic says: a validator's may hold several, as may a table of unknown
    keys.
    """
    kind, context = error["type"], error.get("ctx", {})
    location = file_path(error["loc"], raw) if model is Experiment else error["loc"]
    path = written_path(location, raw, missing=kind == MISSING)
    if kind == "refused":
        for each in context.get("all", [context]):
            yield Problem(
                (*path, *filter(None, each["field"].split("."))), each["problem"], each["fix"]
            )
        return
    if kind == "extra_forbidden":
        keys = keys_at(path[:-1], raw, model)
        yield Problem(path, UNKNOWN, DTYPE if path[-1] == "dtype" else nearest(str(path[-1]), keys))
    else:
        yield _problem(error, path, raw, model)


def _problem(
    error: ErrorDetails, path: KeyPath, raw: Mapping[str, Any], model: type[SpecTable]
) -> Problem:
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind == MISSING and isinstance(path[-1], int):
        return Problem(path[:-1], "has too few elements")
    if kind == MISSING:
        meaning = keys_at(path[:-1], raw, model)[str(path[-1])].description or ""
        sentence = re.split(r"\.\s|\.$", " ".join(meaning.split()))[0]
        return Problem(path, MISSING, f"add it: {sentence[:1].lower()}{sentence[1:]}")
    if kind == "union_tag_not_found":
        return Problem((*path, context["discriminator"].strip("'")), MISSING, "add it")
    if kind == "union_tag_invalid":
        path = (*path, context["discriminator"].strip("'"))
        return _wrong_choice(path, context["tag"], context["expected_tags"])
    if kind == "literal_error":
        return _wrong_choice(path, value, context["expected"])
    if kind in _BOUNDS:
        words, key = _BOUNDS[kind]
        bound = context[key]
        limit = f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"
        fix = GREEDY if path[0] == "stage" and path[-1] == "temperature" and not value else ""
        return Problem(path, f"must be {words} {limit}, not {value}", fix)
    if kind in _EXPECTED:
        return _wrong_type(path, _EXPECTED[kind], value)
    if kind == "string_pattern_mismatch":
        fix = "start with a letter or digit and use letters, digits, '_' and '-'"
        return Problem(path, f"{value!r} cannot be a name", fix)
    if kind == "finite_number":
        return Problem(path, f"must be a finite number, not {value}")
    plain = {"too_short": EMPTY, "too_long": "has too many elements"}
    message = error["msg"]
    return Problem(path, plain.get(kind, message[:1].lower() + message[1:]))


def _wrong_choice(path: KeyPath, value: Any, expected: str) -> Problem:
    if not isinstance(value, str):
        return _wrong_type(path, expected, value)
    choices = re.findall(r"'([^']*)'", expected)
    return Problem(path, f"unknown value {value!r}", nearest(value, choices), expected)


def _wrong_type(path: KeyPath, expected: str, value: Any) -> Problem:
    kinds = {str: "the string ", int: "the integer ", float: "the number "}
    described = kinds.get(type(value), "") + repr(value)
    if isinstance(value, bool):
        described = described.lower()
    elif isinstance(value, Mapping | list):
        described = "a table" if isinstance(value, Mapping) else "an array"
    return Problem(path, f"expected {expected}, got {described}", expected=expected)


def alternatives(annotation: Any) -> list[Any]:
    """The members of a union, with annotations taken off, without None."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return alternatives(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return [leaf for member in get_args(annotation) for leaf in alternatives(member)]
    return [] if annotation is type(None) else [annotation]


def keys_at(path: KeyPath, raw: Any, model: type[SpecTable] = Experiment) -> dict[str, FieldInfo]:
    """The keys that a table at `path` may have, given the values `raw` of the whole file.

    `model` is what the file holds. Where the table's kind is not settled by its values, the keys of
    all kinds.
    """
    tables = map(fields_of, annotations_at(path, raw, model))
    return {key: field for fields in tables for key, field in fields.items()}


def fields_of(annotation: Any) -> dict[str, FieldInfo]:
    """The keys of a table; none of another type."""
    is_table = isinstance(annotation, type) and issubclass(annotation, SpecTable)
    return annotation.model_fields if is_table else {}


def annotations_at(path: KeyPath, raw: Any, model: type[SpecTable] = Experiment) -> list[Any]:
    """The types a value at `path` may have; empty where there is no such key."""
    here: list[Any] = [model]
    if model is Experiment and isinstance(raw, Mapping):
        path, raw = field_path(path), models_apart(raw)
    for part in path:
        raw = raw.get(part) if isinstance(raw, Mapping) else None
        annotations = [leaf for annotation in here for leaf in _step(annotation, part)]
        agreeing = [a for a in annotations if isinstance(raw, Mapping) and _tag_agrees(a, raw)]
        here = agreeing or annotations
    return here


def _step(annotation: Any, part: str | int) -> list[Any]:
    if field := fields_of(annotation).get(str(part)):
        return alternatives(field.annotation)
    if get_origin(annotation) is dict:
        return alternatives(get_args(annotation)[1])
    is_element = get_origin(annotation) is tuple and isinstance(part, int)
    return alternatives(get_args(annotation)[0]) if is_element else []


def _tag_agrees(annotation: Any, value: Mapping[str, Any]) -> bool:
    kinds = {name: field.annotation for name, field in fields_of(annotation).items()}
    tags = {name: get_args(kind) for name, kind in kinds.items() if get_origin(kind) is Literal}
    return any(len(one) == 1 and value.get(name) in one for name, one in tags.items())


INSTEAD = {"steps": "epochs", "epochs": "steps"}
"""A stage's length is given in one of two ways: setting one takes the other's place."""
LONG = 120
"""Characters of a value that a message shows."""
NAMED = ("data", "selections", "synthesise", "stage", "evaluate", "guard", "milestone", "model")


@dataclass(frozen=True, slots=True)
class Override:
    """A value for the key at `path`."""

    path: KeyPath
    value: str
    """As typed: TOML, or bare text for a key that holds a string."""
    text: str
    """The whole override, for messages."""


def parse_override(text: str) -> Override:
    """Read `dotted.path=VALUE`. Raises InputError."""
    key, equals, value = text.partition("=")
    if not equals:
        raise InputError("no '='", file=place(text), fix="write PATH=VALUE")
    try:
        here: Any = load_toml(f"{key.strip()} = 0")
    except InputError:
        fix = f"write at most {DEEPEST} names with dots between them"
        raise InputError(f"{short(repr(key))} is not a path", file=place(text), fix=fix) from None
    path: list[str] = []
    while isinstance(here, Mapping):
        (part,) = here
        path.append(part)
        here = here[part]
    return Override(tuple(path), value.strip(), text)


def apply_overrides(raw: Mapping[str, Any], overrides: Sequence[Override]) -> dict[str, Any]:
    """A copy of the file's values with every override set, in order. Raises InputError."""
    result = copy.deepcopy(dict(raw))
    for override in overrides:
        # `model` and `model.policy` are one key, however the file writes it.
        trained = override.path in ((MODEL,), (MODEL, POLICY))
        here, path = result, file_path((MODEL,), result) if trained else override.path
        if path[0] in NAMED and len(path) > 2:
            kind, name = path[:2]
            tables = result.get(str(kind))
            names = tables if isinstance(tables, Mapping) else {}  # a model may be a string
            if name not in names:
                fix = nearest(str(name), names) if names else "the file has none"
                raise InputError(f"no {kind} named {name!r}", file=place(override.text), fix=fix)
        for depth, part in enumerate(path[:-1], 1):
            here = here.setdefault(str(part), {})
            if not isinstance(here, dict):
                dotted = ".".join(map(str, path[:depth]))
                raise InputError("is not a table", file=place(override.text), field=dotted)
        *_, last = map(str, path)
        here[last] = _value(override, result)
        if override.path[0] == "stage" and len(override.path) == 3:
            here.pop(INSTEAD.get(last, ""), None)
    return result


def _value(override: Override, raw: Mapping[str, Any]) -> Any:
    """The value as TOML; text that is not TOML is taken as it is where a string may stand."""
    try:
        parsed = load_toml(f"value = {override.value}")
    except InputError:
        parsed = {}
    if list(parsed) == ["value"]:
        return parsed["value"]
    kinds = annotations_at(override.path, raw)
    choices = [c for kind in kinds if get_origin(kind) is Literal for c in get_args(kind)]
    if not kinds or str in kinds or Any in kinds or any(isinstance(c, str) for c in choices):
        return override.value  # an unknown key is for validation to report
    dotted = ".".join(map(str, override.path))
    problem = f"{short(repr(override.value))} is not a TOML value"
    raise InputError(problem, file=place(override.text), field=dotted)


def place(text: str) -> str:
    """How a message names an override, on one line."""
    return "--set " + short(" ".join(text.splitlines()))


def short(text: str) -> str:
    """The beginning of a text, for a message of one line."""
    return text if len(text) <= LONG else f"{text[:LONG]}..."
