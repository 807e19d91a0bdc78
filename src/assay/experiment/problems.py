"""Turns what pydantic found wrong with an experiment into places and words a user can act on."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from assay.data.toml_lines import KeyPath, written_path
from assay.data.toml_text import unusable_values
from assay.errors import InputError, nearest
from assay.experiment.aliases import foreign_keys
from assay.experiment.base_table import Table
from assay.experiment.experiment import Experiment
from assay.experiment.key_paths import keys_at

SomeTable = TypeVar("SomeTable", bound=Table)
MISSING = "missing"
UNKNOWN = "unknown key"
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
_TABLES = {"dict_type", "model_type", "model_attributes_type"}
_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}


class ValueRefused(InputError):
    """A value that no table may hold."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with the value at `path`."""

    path: KeyPath
    problem: str
    fix: str = ""
    expected: str = ""
    """What the value should have been, where its type is wrong; members of a union add up."""


def problems_in(
    errors: list[ErrorDetails], raw: Mapping[str, Any], model: type[Table] = Experiment
) -> list[Problem]:
    """One problem per place, the branches of a union merged, in the order pydantic met them."""
    found: dict[KeyPath, Problem] = {}
    for error in errors:
        for problem in _problems(error, raw, model):
            before = found.get(problem.path)
            merged = problem
            if before is not None and before.expected and problem.expected:
                expected = f"{before.expected} or {problem.expected}"
                merged = _wrong_type(problem.path, expected, error["input"])
            found[problem.path] = merged
    # The branch of a union that looked deeper knows more than the one that wanted another type.
    return [p for p in found.values() if not _looked_into(p, found)]


def made(kind: type[SomeTable], values: Mapping[str, Any]) -> SomeTable:
    """A table of values that are in no file, but on the command line. Raises ValueRefused."""
    found = [Problem(*each) for each in unusable_values(values)]
    if not found:
        try:
            return kind.model_validate(values)
        except ValidationError as invalid:
            found = problems_in(invalid.errors(include_url=False), values, kind)
    first = found[0]
    raise ValueRefused(first.problem, field=".".join(map(str, first.path)), fix=first.fix)


def _looked_into(problem: Problem, found: Mapping[KeyPath, Problem]) -> bool:
    size = len(problem.path)
    deeper = (path for path in found if len(path) > size and path[:size] == problem.path)
    return bool(problem.expected) and any(deeper)


def _problems(error: ErrorDetails, raw: Mapping[str, Any], model: type[Table]) -> Iterator[Problem]:
    """What one error of pydantic says: a validator's may hold several, as may a table of unknown
    keys.
    """
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    path = written_path(error["loc"], raw, missing=kind == MISSING)
    if kind == "refused":
        for each in context.get("all", [context]):
            yield Problem((*path, *each["field"].split(".")), each["problem"], each["fix"])
        return
    foreign = foreign_keys(path, value, raw) if model is Experiment else []
    if kind == "extra_forbidden":
        keys = keys_at(path[:-1], raw, model)
        unknown = Problem(path, UNKNOWN, nearest(str(path[-1]), keys))
        yield from [Problem(at, UNKNOWN, fix) for at, fix in foreign] or [unknown]
    elif foreign and kind in _TABLES:
        yield from (Problem(at, UNKNOWN, fix) for at, fix in foreign)
    else:
        yield _problem(error, path, raw, model)


def _problem(
    error: ErrorDetails, path: KeyPath, raw: Mapping[str, Any], model: type[Table]
) -> Problem:
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind == MISSING:
        return _missing(path, raw, model)
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        return _wrong_tag(path, kind, context)
    if kind == "literal_error":
        return _wrong_choice(path, value, context["expected"])
    if kind in _BOUNDS:
        words, key = _BOUNDS[kind]
        bound = context[key]
        limit = f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"
        return Problem(path, f"must be {words} {limit}, not {value}")
    if kind in _EXPECTED:
        return _wrong_type(path, _EXPECTED[kind], value)
    return _other(path, kind, value, error["msg"])


def _other(path: KeyPath, kind: str, value: Any, message: str) -> Problem:
    if kind == "string_pattern_mismatch":
        fix = "start with a letter or digit and use letters, digits, '_' and '-'"
        return Problem(path, f"{value!r} cannot be a name", fix)
    if kind == "too_short":
        return Problem(path, "must not be empty")
    if kind == "finite_number":
        return Problem(path, f"must be a finite number, not {value}")
    if kind == "too_long":
        return Problem(path, "has too many elements")
    return Problem(path, message[:1].lower() + message[1:])


def _missing(path: KeyPath, raw: Mapping[str, Any], model: type[Table]) -> Problem:
    if isinstance(path[-1], int):
        return Problem(path[:-1], "has too few elements")
    meaning = keys_at(path[:-1], raw, model)[str(path[-1])].description or ""
    return Problem(path, MISSING, f"add it: {_first_sentence(meaning)}")


def _first_sentence(text: str) -> str:
    sentence = re.split(r"\.\s|\.$", " ".join(text.split()))[0]
    return sentence[:1].lower() + sentence[1:]


def _wrong_tag(path: KeyPath, kind: str, context: Mapping[str, Any]) -> Problem:
    path = (*path, context["discriminator"].strip("'"))
    if kind == "union_tag_not_found":
        return Problem(path, MISSING, "add it")
    return _wrong_choice(path, context["tag"], context["expected_tags"])


def _wrong_choice(path: KeyPath, value: Any, expected: str) -> Problem:
    if not isinstance(value, str):
        return _wrong_type(path, expected, value)
    choices = re.findall(r"'([^']*)'", expected)
    return Problem(path, f"unknown value {value!r}", nearest(value, choices), expected)


def _wrong_type(path: KeyPath, expected: str, value: Any) -> Problem:
    problem = f"expected {expected}, got {_described(value)}"
    return Problem(path, problem, expected=expected)


def _described(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list):
        return "an array"
    kinds = {str: "the string ", int: "the integer ", float: "the number "}
    return kinds.get(type(value), "") + repr(value)
