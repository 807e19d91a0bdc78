"""Writes an experiment, or any table of plain values, as TOML. `tomllib` reads TOML."""

import json
import re
from collections.abc import Mapping
from typing import Any

from assay.experiment.experiment import Experiment
from assay.experiment.helper_tables import HELPERS, MODEL, POLICY

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_TABLES = (HELPERS, "data", "selections", "synthesise", "stage", "evaluate", "guard", "milestone")


def experiment_toml(experiment: Experiment) -> str:
    """The resolved experiment with every default written out; omitted values stay left out."""
    values = experiment.model_dump(exclude_none=True)
    # TOML has no table beside a string of the same name.
    written = {MODEL: f"{MODEL}.{POLICY}"} if experiment.helpers else {}
    lines = [
        f"{written.get(key, key)} = {inline(value)}"
        for key, value in values.items()
        if key not in _TABLES
    ]
    for kind in _TABLES:
        for name, table in values[kind].items():
            lines += ["", f"[{MODEL if kind == HELPERS else kind}.{name}]"]
            lines += [f"{inline_key(key)} = {inline(value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


def inline(value: Any) -> str:
    """One value on one line: strings, numbers, booleans, arrays and inline tables."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{inline_key(key)} = {inline(item)}" for key, item in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(inline(item) for item in value) + "]"
    return str(value)


def inline_key(key: str) -> str:
    """A key, in quotes where it must be."""
    return key if _BARE_KEY.fullmatch(key) else _string(key)


def _string(text: str) -> str:
    # TOML has JSON's escapes, and allows no raw DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
