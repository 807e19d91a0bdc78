"""Parses TOML, with one kind of error for everything wrong with it, and finds each key's line.

`key_lines` covers tables, arrays of tables, dotted and quoted keys, inline tables, arrays and all
strings of valid TOML; `tomllib` reads the values and refuses the rest first. What the values mean
is not known here.
"""

import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

KeyPath = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\r\n,]|#[^\n]*)*")
_KEY_PART = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|[A-Za-z0-9_-]+')
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"""(?:"{0,2}(?!"))|\'\'\'.*?\'\'\'(?:\'{0,2}(?!\'))'
    r'|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'',
    re.DOTALL,
)
_BARE = re.compile(r"[^,\]}#\n]*")


def key_lines(text: str) -> dict[KeyPath, int]:
    """The 1-based line on which each key or array element of a valid TOML text begins."""
    scanner = _Scanner(text)
    table: KeyPath = ()
    while scanner.skip_blank():
        if scanner.peek() == "[":
            table = scanner.header()
        else:
            scanner.assignment(table)
    return scanner.lines


def line_of(path: KeyPath, lines: dict[KeyPath, int]) -> int | None:
    """The line of a key, or of the innermost table around it that is written down."""
    for end in range(len(path), 0, -1):
        if path[:end] in lines:
            return lines[path[:end]]
    return None


def written_path(
    location: Sequence[str | int], values: Mapping[str, Any], *, missing: bool = False
) -> KeyPath:
    """A validator's location without the names of union branches, which nobody wrote.

    `values` are those of the text; the last part of a `missing` value's location is kept.
    """
    path: KeyPath = ()
    here: Any = values
    for part in location:
        known: Any = dict(enumerate(here)) if isinstance(here, list) else here
        if isinstance(known, Mapping) and part in known:
            path, here = (*path, part), known[part]
    return (*path, location[-1]) if missing else path


class _Scanner:
    """A position in the text, and the lines found so far."""

    def __init__(self, text: str):
        self.text = text
        self.at = 0
        self.counted = 0, 1
        """A place whose line is known, and that line."""
        self.lines: dict[KeyPath, int] = {}
        self.elements: dict[KeyPath, int] = {}
        """Elements seen so far of each array of tables."""

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        assert match is not None, "the text was checked by tomllib"
        self.at = match.end()
        return match[0]

    def skip_blank(self) -> bool:
        """Move past white space, commas and comments; whether anything is left."""
        self.skip(_BLANK)
        return self.at < len(self.text)

    def note(self, path: KeyPath, known_from: int) -> None:
        """Record the current line for `path` and for its parents longer than `known_from`."""
        place, line = self.counted
        # `header` goes back, so the place may lie behind.
        line += self.text.count("\n", place, self.at) - self.text.count("\n", self.at, place)
        self.counted = self.at, line
        for end in range(known_from + 1, len(path) + 1):
            self.lines.setdefault(path[:end], line)

    def dotted_key(self) -> KeyPath:
        parts: list[str] = []
        while True:
            self.skip_blank()
            part = self.skip(_KEY_PART)
            parts.append(tomllib.loads(f"key = {part}")["key"] if part[0] in "\"'" else part)
            self.skip_blank()
            if self.peek() != ".":
                return tuple(parts)
            self.at += 1

    def header(self) -> KeyPath:
        """Read `[a.b]` or `[[a.b]]`; the table that the following keys belong to."""
        start = self.at
        array = self.text.startswith("[[", start)
        self.at += 2 if array else 1
        key = self.dotted_key()
        end, self.at = self.at, start
        path: KeyPath = ()
        for part in key:
            path = (*path, part)
            if path in self.elements and not (array and part is key[-1]):
                path = (*path, self.elements[path] - 1)
        if array:
            self.elements[path] = self.elements.get(path, 0) + 1
            path = (*path, self.elements[path] - 1)
        self.note(path, 0)
        self.at = end + (2 if array else 1)
        return path

    def assignment(self, table: KeyPath) -> None:
        start = self.at
        path = table + self.dotted_key()
        end, self.at = self.at, start
        self.note(path, len(table))
        self.at = end + 1
        self.skip_blank()
        self.value(path)

    def value(self, path: KeyPath) -> None:
        if self.peek() == "{":
            self.at += 1
            while self.skip_blank() and self.peek() != "}":
                self.assignment(path)
            self.at += 1
        elif self.peek() == "[":
            self.array(path)
        elif self.peek() in ('"', "'"):
            self.skip(_STRING)
        else:
            self.skip(_BARE)

    def array(self, path: KeyPath) -> None:
        self.at += 1
        index = 0
        while self.skip_blank() and self.peek() != "]":
            self.note((*path, index), len(path))
            self.value((*path, index))
            index += 1
        self.at += 1


LARGEST = 2**63 - 1
"""What TOML promises of integers."""
DIGITS = sys.get_int_max_str_digits() or sys.int_info.default_max_str_digits
"""The most that Python reads and writes of an integer."""
UNWRITABLE = 10**DIGITS
DEEPEST = 64
"""Tables and arrays in one another; Python's own limit is met anywhere behind."""
_DEEP = f"nested too deeply: more than {DEEPEST} levels"
_APART = re.compile(rf"{_STRING.pattern}|#[^\n]*", re.DOTALL)
_DOTTED = re.compile(rf"(?<![\w-])[\w-]++(?:[ \t]*+\.[ \t]*+[\w-]++){{{DEEPEST}}}")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


class TomlInvalid(ValueError):
    """A text that is not TOML, or not as Python reads it."""

    def __init__(self, problem: str, line: int | None = None):
        """`line` counts from 1; None where it is not known."""
        super().__init__(problem)
        self.problem, self.line = problem, line


def load_toml(text: str, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
    """The values of a TOML text. Raises TomlInvalid."""
    _refuse_deep(text)
    try:
        values = tomllib.loads(text, parse_float=parse_float)
    except tomllib.TOMLDecodeError as invalid:
        message, _, place = str(invalid).partition(" (at ")
        numbers = re.findall(r"\d+", place)
        line = int(numbers[0]) if numbers else text.count("\n") + 1
        raise TomlInvalid(message, line) from None
    except ValueError:
        raise _too_long(rf"[0-9][0-9_]{{{DIGITS},}}", text) from None
    if _too_deep(values):
        lines = (line for path, line in key_lines(text).items() if len(path) > DEEPEST)
        raise TomlInvalid(_DEEP, min(lines, default=None))
    # Python reads such an integer in another base, and cannot write it.
    if any(isinstance(value, int) and abs(value) >= UNWRITABLE for _, value in _leaves(values)):
        raise _too_long(rf"0[xob][0-9A-Fa-f_]{{{UNWRITABLE.bit_length() // 4},}}", text)
    return values


def _refuse_deep(text: str) -> None:
    """Raise TomlInvalid for names with too many dots, and brackets too deep in one another, which
    cost `tomllib` time and memory by their square."""
    # Strings and comments apart, only keys have several dots.
    plain = _APART.sub(lambda found: "q" * (found[0][0] != "#") + "\n" * found[0].count("\n"), text)
    dotted, depth = _DOTTED.search(plain), 0
    places = [dotted.start()] if dotted else []
    for bracket in re.finditer(r"[\[\]{}]", plain):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > DEEPEST:
            places.append(bracket.start())
            break
    if places:
        raise TomlInvalid(_DEEP, plain.count("\n", 0, min(places)) + 1)


def _too_deep(values: Any) -> bool:
    """Whether tables and arrays lie in one another deeper than may be."""
    level = [values]
    for _ in range(DEEPEST + 1):
        inner = (v.values() if isinstance(v, Mapping) else v for v in level)
        level = [v for each in inner for v in each if isinstance(v, Mapping | list)]
    return bool(level)


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
