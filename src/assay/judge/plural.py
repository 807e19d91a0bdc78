"""Fills the gaps of a template; `{count:items}` becomes "1 item" or "3 items"."""

from collections.abc import Mapping
from string import Formatter
from typing import Any

ONE: Mapping[str, str] = {
    "items": "item",
    "rows": "row",
    "steps": "step",
    "seeds": "seed",
    "looks": "look",
    "cells": "cell",
    "groups": "group",
    "clusters": "cluster",
}
"""Nouns that a gap may count, with their singular."""


class _Counting(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec not in ONE:
            return super().format_field(value, format_spec)
        return f"{value} {ONE[format_spec] if str(value) == '1' else format_spec}"


def filled(template: str, values: Mapping[str, Any]) -> str:
    """The template with its gaps filled; KeyError for a gap without a value."""
    return _Counting().vformat(template, (), values)
