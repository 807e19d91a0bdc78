"""Checks that a text fits a JSON schema or a pattern, in a worker process that can be killed.

Patterns and references may take for ever to check. Nothing is fetched: a schema may
refer only to its own parts. `format` is not checked, as JSON Schema leaves that open.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from assay.data.json_files import refuse_constant

MOST_CHARACTERS = 300
"""Characters of a problem; jsonschema shows the whole value."""
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def check(schema: Any, text: str | None) -> dict[str, str]:
    """The problem under `schema` or under `text`; empty where a text, if there is one, fits."""
    # A worker that searches for a pattern imports none of this.
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    kind = validator_for(schema, default=Draft202012Validator)
    try:
        if not isinstance(schema, dict):
            return {"schema": "is no object"}
        if away := next((one for one in references(schema) if not one.startswith("#")), None):
            return {"schema": f"refers to {shown(away)}; nothing is fetched"}
        kind.check_schema(schema)
        return {} if text is None else unfit(kind(schema, registry=Registry()), text)
    except SchemaError as error:
        return {"schema": f"{error.json_path}: {shown(error.message)}"}
    except Unresolvable as error:
        return {"schema": f"refers to {shown(error.ref)}, which it does not hold"}
    except RecursionError:
        return {"schema": "is nested too deeply"}


def unfit(validator: Any, text: str) -> dict[str, str]:
    """Why a text does not fit, if it does not."""
    try:
        # 1e999 is a number to JSON Schema, though no float holds it.
        value = json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        return {"text": f"is not JSON: {shown(str(error))}"}
    first = next(validator.iter_errors(value), None)
    return {} if first is None else {"text": f"{first.json_path}: {shown(first.message)}"}


def references(value: Any) -> Iterator[str]:
    """All references of a schema."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if isinstance(value, dict):
        yield from (value[key] for key in REFERENCES if isinstance(value.get(key), str))
    for part in parts:
        yield from references(part)


def shown(text: str) -> str:
    """A text fit for a message of one line."""
    text = " ".join(text.split())
    return text if len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS] + "…"


def search(pattern: str, text: str) -> bool | str:
    """Whether a pattern occurs in a text; why where it is none."""
    try:
        return re.search(pattern, text) is not None
    except re.error as error:
        return f"the pattern is not a regular expression: {error}"
