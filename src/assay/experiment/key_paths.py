"""Walks the models of the experiment file by dotted path: which keys exist, and of what type.

Looks at types only; values are checked by pydantic.
"""

from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from assay.data.toml_text import KeyPath
from assay.experiment.base_table import Table
from assay.experiment.experiment import Experiment


def alternatives(annotation: Any) -> list[Any]:
    """The members of a union, with annotations taken off, without None."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return alternatives(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return [leaf for member in get_args(annotation) for leaf in alternatives(member)]
    return [] if annotation is type(None) else [annotation]


def keys_at(path: KeyPath, raw: Any, model: type[Table] = Experiment) -> dict[str, FieldInfo]:
    """The keys that a table at `path` may have, given the values `raw` of the whole file.

    `model` is what the file holds. Where the table's kind is not settled by its values, the keys of
    all kinds.
    """
    found: dict[str, FieldInfo] = {}
    for annotation in annotations_at(path, raw, model):
        if isinstance(annotation, type) and issubclass(annotation, Table):
            found |= annotation.model_fields
    return found


def annotations_at(path: KeyPath, raw: Any, model: type[Table] = Experiment) -> list[Any]:
    """The types a value at `path` may have; empty where there is no such key."""
    here: list[Any] = [model]
    for part in path:
        raw = raw.get(part) if isinstance(raw, Mapping) else None
        here = _settled([leaf for annotation in here for leaf in _step(annotation, part)], raw)
    return here


def _step(annotation: Any, part: str | int) -> list[Any]:
    if isinstance(annotation, type) and issubclass(annotation, Table):
        field = annotation.model_fields.get(str(part))
        return alternatives(field.annotation) if field else []
    if get_origin(annotation) is dict:
        return alternatives(get_args(annotation)[1])
    if get_origin(annotation) is tuple and isinstance(part, int):
        return alternatives(get_args(annotation)[0])
    return []


def _settled(annotations: list[Any], value: Any) -> list[Any]:
    """Only the tables whose tag (`method`, `kind`) agrees with `value`, if any does."""
    agreeing = [a for a in annotations if isinstance(value, Mapping) and _tag_agrees(a, value)]
    return agreeing or annotations


def _tag_agrees(annotation: Any, value: Mapping[str, Any]) -> bool:
    if not (isinstance(annotation, type) and issubclass(annotation, Table)):
        return False
    tags = {name: field for name, field in annotation.model_fields.items() if _is_tag(field)}
    return any(value.get(name) in get_args(field.annotation) for name, field in tags.items())


def _is_tag(field: FieldInfo) -> bool:
    return get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1
