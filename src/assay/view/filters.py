"""What a reader asks of completions, as the fields of an address."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any
from urllib.parse import urlencode

from assay.errors import InputError

PAGE, MOST = 50, 500
"""Completions of one page: as a rule, and at most."""
SORTS = ("", "-", "score", "-score", "length", "-length", "advantage", "-advantage")
"""Columns to sort by, "-" before one: the largest first; "" as they were recorded."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter; what is empty keeps everything."""

    stage: str = ""
    step_from: float | None = None
    step_to: float | None = None
    evaluation: str = ""
    """The folder of its records."""
    checkpoint: str = ""
    score_from: float | None = None
    score_to: float | None = None
    part: str = ""
    part_from: float | None = None
    part_to: float | None = None
    length_from: float | None = None
    length_to: float | None = None
    outcome: str = ""
    ended: str = ""
    row: str = ""
    """A row or an item."""
    text: str = ""
    """Any text that the completion holds, in capitals or not."""
    unscored: bool = False
    sort: str = ""
    page: int = 1
    size: int = PAGE

    def address(self, **changes: Any) -> str:
        """The filter as the query of an address, with changes."""
        changed, plain = replace(self, **changes), Filter()
        pairs = {
            each.name: _written(value)
            for each in fields(Filter)
            if (value := getattr(changed, each.name)) != getattr(plain, each.name)
        }
        return urlencode(pairs)


def _written(value: str | float | bool) -> str:
    return "1" if value is True else f"{value:g}" if isinstance(value, float) else str(value)


def read_filter(query: Mapping[str, str]) -> Filter:
    """The filter of an address. Raises InputError for a value that its field cannot have."""
    found: dict[str, Any] = {}
    for each in fields(Filter):
        text = query.get(each.name, "").strip()
        if text:
            found[each.name] = text if each.type is str else _number(each.name, text, each.type)
    if found.get("sort", "") not in SORTS:
        fix = "choose " + ", ".join(filter(None, SORTS))
        raise InputError(f"cannot be {found['sort']!r}", field="sort", fix=fix)
    found["size"] = min(found.get("size", PAGE), MOST)
    return Filter(**found)


def _number(name: str, text: str, kind: Any) -> float | int | bool:
    if kind is bool:
        return text not in ("0", "")
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    whole = kind is not int or (number.is_integer() and 1 <= number <= 10_000_000)
    if not math.isfinite(number) or not whole:
        raise InputError(f"{text!r} is no such number", field=name, fix="for example 1")
    return int(number) if kind is int else number
