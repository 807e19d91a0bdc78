"""Fills templates with counts.

`{count:items}` becomes "1 item" or "3 items"; `{count:needed items}` is a number of items to
collect, "more than 100,000 items" beyond MOST_NEEDED. Another language writes its own "more than"
in the gap, `{count:needed 超过}`, and the noun after it.
"""

import re
from collections.abc import Mapping
from string import Formatter
from typing import Any

NOUNS = (
    *("items", "rows", "parts", "steps", "seeds", "looks", "runs", "cells", "groups", "clusters"),
    *("trials", "answers", "repeats", "prompts", "errors", "warnings", "notes", "results"),
    "comparisons",
)
"""What a gap may count; one of them is written without its s."""
NEEDED = "needed "
MOST_NEEDED = 100_000
"""A needed number above this is not written out."""


def with_minus(text: str) -> str:
    """A text that is a negative number, with a true minus sign; any other text as it is."""
    return _NEGATIVE.sub("−", text)


_NEGATIVE = re.compile(r"\A-(?=\d[\d.,]*(?:e[+-]?\d+)?%?\Z)")


class _Counting(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec.startswith(NEEDED):
            return self._needed(value, format_spec.removeprefix(NEEDED))
        if format_spec not in NOUNS:
            return with_minus(super().format_field(value, format_spec))
        return f"{value} {format_spec[:-1] if str(value) == '1' else format_spec}"

    def _needed(self, value: Any, words: str) -> str:
        more = isinstance(value, int | float) and value > MOST_NEEDED
        if words not in NOUNS:
            return f"{words} {MOST_NEEDED:,}" if more else str(value)
        return f"more than {MOST_NEEDED:,} {words}" if more else self.format_field(value, words)


def filled(template: str, values: Mapping[str, Any]) -> str:
    """The template with its gaps filled; KeyError for a gap without a value."""
    return _Counting().vformat(template, (), values)
