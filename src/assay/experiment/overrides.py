"""Applies `--set stage.grpo.steps=20`: replaces values of an experiment file by dotted path.

Paths are resolved against the models' types, before any value is checked, so that an override is
validated like the file itself.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from assay.data.toml_text import DEEPEST, KeyPath, load_toml
from assay.errors import InputError, nearest
from assay.experiment.base_table import SpecTable
from assay.experiment.experiment import Experiment
from assay.experiment.helper_tables import field_path, models_apart, path_set


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
    fields: dict[str, FieldInfo] = {}
    for annotation in annotations_at(path, raw, model):
        if isinstance(annotation, type) and issubclass(annotation, SpecTable):
            fields |= {field.alias or key: field for key, field in annotation.model_fields.items()}
    return fields


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
    if isinstance(annotation, type) and issubclass(annotation, SpecTable):
        field = annotation.model_fields.get(str(part))
        return alternatives(field.annotation) if field else []
    if get_origin(annotation) is dict:
        return alternatives(get_args(annotation)[1])
    if get_origin(annotation) is tuple and isinstance(part, int):
        return alternatives(get_args(annotation)[0])
    return []


def _tag_agrees(annotation: Any, value: Mapping[str, Any]) -> bool:
    if not (isinstance(annotation, type) and issubclass(annotation, SpecTable)):
        return False
    tags = {
        name: field
        for name, field in annotation.model_fields.items()
        if (get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1)
    }
    return any(value.get(name) in get_args(field.annotation) for name, field in tags.items())


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
        here = result
        path = path_set(override.path, result)
        for depth, part in enumerate(path[:-1]):
            here = here.setdefault(str(part), {})
            if depth == 0 and part in NAMED and len(path) > 2:
                tables = here
                kind, name = override.path[:2]
                if not isinstance(tables, Mapping):
                    tables = {}  # a model without helpers is a string
                if name not in tables:
                    fix = nearest(str(name), tables) if tables else "the file has none"
                    raise InputError(
                        f"no {kind} named {name!r}", file=place(override.text), fix=fix
                    )
            if not isinstance(here, dict):
                dotted = ".".join(map(str, path[: depth + 1]))
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
    annotations = annotations_at(override.path, raw)
    if not annotations or any(map(_holds_string, annotations)):
        return override.value  # an unknown key is for validation to report
    dotted = ".".join(map(str, override.path))
    problem = f"{short(repr(override.value))} is not a TOML value"
    raise InputError(problem, file=place(override.text), field=dotted)


def _holds_string(annotation: Any) -> bool:
    choices = get_args(annotation) if get_origin(annotation) is Literal else ()
    return annotation in (str, Any) or any(isinstance(choice, str) for choice in choices)


def place(text: str) -> str:
    """How a message names an override, on one line."""
    return "--set " + short(" ".join(text.splitlines()))


def short(text: str) -> str:
    """The beginning of a text, for a message of one line."""
    return text if len(text) <= LONG else f"{text[:LONG]}..."
