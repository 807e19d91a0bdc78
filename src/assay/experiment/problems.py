"""Turns pydantic's errors into messages with places and hints that a user can act on."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from assay.data.toml_text import KeyPath, unusable_values, written_path
from assay.errors import InputError, nearest
from assay.experiment.base_table import SpecTable
from assay.experiment.experiment import Experiment
from assay.experiment.helper_tables import file_path
from assay.experiment.overrides import keys_at

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


def made(kind: type[SomeTable], values: Mapping[str, Any]) -> SomeTable:
    """A table of values that are in no file, but on the command line. Raises InputError."""
    problems = [Problem(*each) for each in unusable_values(values)]
    if not problems:
        try:
            return kind.model_validate(values)
        except ValidationError as invalid:
            problems = problems_in(invalid.errors(include_url=False), values, kind)
    first = problems[0]
    raise InputError(first.problem, field=".".join(map(str, first.path)), fix=first.fix)


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
