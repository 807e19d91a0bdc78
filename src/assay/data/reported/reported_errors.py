"""The errors of reading reported results, and pydantic's problems in one line with its place."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from assay.data.reported.reported_record import Part, Reported
from assay.data.toml_text import KeyPath, key_lines, line_of, written_path
from assay.errors import InputError, nearest

EXPECTED = {
    "number": "a number",
    "int_type": "an integer",
    "string_type": "a string",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "tuple_type": "an array",
    "dict_type": "a table",
    "model_type": "a table",
}


class ReportedError(InputError):
    """A file of reported results that cannot be read."""


class NothingReported(InputError):
    """A file in which no result is recognised."""


def validated(values: Mapping[str, Any], text: str, file: Path) -> Reported:
    """The record of these values of a TOML text. Raises ReportedError for the first problem."""
    try:
        return Reported.model_validate(values)
    except ValidationError as invalid:
        lines = key_lines(text)
        errors = [(_path(e, values), e) for e in invalid.errors(include_url=False)]
        path, error = min(errors, key=lambda e: line_of(e[0], lines) or 0)
        problem, fix = _words(error, path)
        field = ".".join(str(part) for part in path) or None
        line = line_of(path, lines)
        raise ReportedError(problem, file=file, line=line, field=field, fix=fix) from None


def _path(error: ErrorDetails, values: Mapping[str, Any]) -> KeyPath:
    """The place of a problem, as it is written."""
    path = written_path(error["loc"], values, missing=error["type"] == "missing")
    if error["type"] == "refused":
        parts = error.get("ctx", {})["field"].split(".")
        return (*path, *(int(part) if part.isdecimal() else part for part in parts))
    return path


def _words(error: ErrorDetails, path: KeyPath) -> tuple[str, str | None]:
    """The problem in words, and its fix."""
    kind, context = error["type"], error.get("ctx", {})
    if kind == "refused":
        return context["problem"], context["fix"] or None
    if kind == "extra_forbidden":
        return "unknown key", nearest(str(path[-1]), _keys(path[:-1]))
    if kind == "missing":
        return "missing", "add it"
    if kind == "literal_error":
        return f"unknown value {error['input']!r}", f"choose {context['expected']}"
    if kind in EXPECTED:
        return f"expected {EXPECTED[kind]}, got {error['input']!r}", None
    message = error["msg"]
    return message[:1].lower() + message[1:], None


def _keys(path: KeyPath) -> list[str]:
    """The keys that the table at `path` may have."""
    table: type[BaseModel] = Reported
    for part in path:
        if isinstance(part, str):
            field = table.model_fields.get(part)
            table = _table_of(field.annotation) if field else Part
    return [name for name in table.model_fields if name not in ("line",)]


def _table_of(annotation: Any) -> type[BaseModel]:
    """The model that a field or the elements of its tuple are."""
    inner = [annotation, *getattr(annotation, "__args__", ())]
    models = (a for a in inner if isinstance(a, type) and issubclass(a, BaseModel))
    return next(models, Part)
