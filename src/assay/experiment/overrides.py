"""`--set stage.grpo.steps=20`: values of an experiment file replaced from the command line.

Works on the plain values before they are checked, so that an override is checked like the file.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from assay.data.toml_text import KeyPath, TomlInvalid, load_toml
from assay.errors import InputError, nearest
from assay.experiment.key_paths import annotations_at

INSTEAD = {"steps": "epochs", "epochs": "steps"}
"""A stage's length is given in one of two ways: setting one takes the other's place."""
LONG = 120
"""Characters of a value that a message shows."""
_NAMED = ("data", "stage", "evaluate", "guard", "milestone")


class OverrideError(InputError):
    """An override that cannot be read or names nothing in the file."""


@dataclass(frozen=True, slots=True)
class Override:
    """A value for the key at `path`."""

    path: KeyPath
    value: str
    """As typed: TOML, or bare text for a key that holds a string."""
    text: str
    """The whole override, for messages."""


def parse_override(text: str) -> Override:
    """Read `dotted.path=VALUE`. Raises OverrideError."""
    key, equals, value = text.partition("=")
    if not equals:
        raise OverrideError("no '='", file=place(text), fix="write PATH=VALUE")
    try:
        here: Any = load_toml(f"{key.strip()} = 0")
    except TomlInvalid:
        fix = "write names with dots between them"
        raise OverrideError(
            f"{short(repr(key))} is not a path", file=place(text), fix=fix
        ) from None
    path: list[str] = []
    while isinstance(here, Mapping):
        (part,) = here
        path.append(part)
        here = here[part]
    return Override(tuple(path), value.strip(), text)


def apply_overrides(raw: Mapping[str, Any], overrides: Sequence[Override]) -> dict[str, Any]:
    """A copy of the file's values with every override set, in order. Raises OverrideError."""
    result = copy.deepcopy(dict(raw))
    for override in overrides:
        _set(result, override)
    return result


def _set(raw: dict[str, Any], override: Override) -> None:
    here = raw
    for depth, part in enumerate(override.path[:-1]):
        if depth == 1 and override.path[0] in _NAMED and part not in here:
            problem = f"no {override.path[0]} named {part!r}"
            fix = nearest(str(part), here) if here else "the file has none"
            raise OverrideError(problem, file=place(override.text), fix=fix)
        here = here.setdefault(str(part), {})
        if not isinstance(here, dict):
            dotted = ".".join(map(str, override.path[: depth + 1]))
            raise OverrideError("is not a table", file=place(override.text), field=dotted)
    last = str(override.path[-1])
    here[last] = _value(override, raw)
    if override.path[0] == "stage" and len(override.path) == 3:
        here.pop(INSTEAD.get(last, ""), None)


def _value(override: Override, raw: Mapping[str, Any]) -> Any:
    """The value as TOML; text that is not TOML is taken as it is where a string may stand."""
    try:
        parsed = load_toml(f"value = {override.value}")
    except TomlInvalid:
        parsed = {}
    if list(parsed) == ["value"]:
        return parsed["value"]
    annotations = annotations_at(override.path, raw)
    if not annotations or any(map(_holds_string, annotations)):
        return override.value  # an unknown key is for validation to report
    dotted = ".".join(map(str, override.path))
    problem = f"{short(repr(override.value))} is not a TOML value"
    raise OverrideError(problem, file=place(override.text), field=dotted)


def _holds_string(annotation: Any) -> bool:
    choices = get_args(annotation) if get_origin(annotation) is Literal else ()
    return annotation in (str, Any) or any(isinstance(choice, str) for choice in choices)


def place(text: str) -> str:
    """How a message names an override, on one line."""
    return "--set " + short(" ".join(text.splitlines()))


def short(text: str) -> str:
    """The beginning of a text, for a message of one line."""
    return text if len(text) <= LONG else f"{text[:LONG]}..."
