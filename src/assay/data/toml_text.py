"""Reads TOML text, with everything that can be wrong with it as one kind of error.

What the values mean is known where they are used; the lines of keys are `toml_lines`' part.
"""

import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from assay.data.toml_lines import KeyPath

LARGEST = 2**63 - 1
"""What TOML promises of integers."""
DIGITS = sys.get_int_max_str_digits() or sys.int_info.default_max_str_digits
"""The most that Python reads and writes of an integer."""
UNWRITABLE = 10**DIGITS
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


class TomlInvalid(ValueError):
    """A text that is not TOML, or not as Python reads it."""

    def __init__(self, problem: str, line: int | None = None):
        """`line` counts from 1; None where it is not known."""
        super().__init__(problem)
        self.problem, self.line = problem, line


def load_toml(text: str, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
    """The values of a TOML text. Raises TomlInvalid."""
    try:
        values = tomllib.loads(text, parse_float=parse_float)
    except RecursionError:
        raise TomlInvalid("nested too deeply") from None
    except tomllib.TOMLDecodeError as invalid:
        message, _, place = str(invalid).partition(" (at ")
        numbers = re.findall(r"\d+", place)
        line = int(numbers[0]) if numbers else text.count("\n") + 1
        raise TomlInvalid(message, line) from None
    except ValueError:
        raise _too_long(rf"[0-9][0-9_]{{{DIGITS},}}", text) from None
    # Python reads such an integer in another base, and cannot write it.
    if any(isinstance(value, int) and abs(value) >= UNWRITABLE for _, value in _leaves(values)):
        raise _too_long(rf"0[xob][0-9A-Fa-f_]{{{UNWRITABLE.bit_length() // 4},}}", text)
    return values


def _too_long(digits: str, text: str) -> TomlInvalid:
    """The error about an integer beyond Python's limit, which looks like `digits`."""
    found = re.search(digits, text)
    line = text.count("\n", 0, found.start()) + 1 if found else None
    return TomlInvalid(f"an integer of more than {DIGITS} digits", line)


def unusable_values(values: Any) -> Iterator[tuple[KeyPath, str, str]]:
    """Path, problem and fix of integers beyond TOML's 64 bits, and of texts with characters that
    steer a terminal or are none.
    """
    yield from long_integers(values)
    for path, value in _leaves(values):
        if isinstance(value, str) and (found := _CONTROL.search(value)):
            yield path, f"holds the control character {found[0]!r}", "take it out"


def long_integers(values: Any) -> Iterator[tuple[KeyPath, str, str]]:
    """The integers alone."""
    for path, value in _leaves(values):
        if isinstance(value, int) and not -LARGEST - 1 <= value <= LARGEST:
            yield path, "an integer of more than 64 bits", "write a smaller one"


def _leaves(values: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Keys and values that are no tables or arrays, with where they are."""
    if isinstance(values, Mapping):
        for key, value in values.items():
            yield (*path, key), key
            yield from _leaves(value, (*path, key))
    elif isinstance(values, list):
        for number, value in enumerate(values):
            yield from _leaves(value, (*path, number))
    else:
        yield path, values
