"""Parses TOML, with one kind of error for everything wrong with it, and finds each key's line.

`key_lines` covers tables, arrays of tables, dotted and quoted keys, inline tables, arrays and all
strings of valid TOML; `tomllib` reads the values and refuses the rest first. What the values mean
is not known here.
"""

import re
import tomllib
from bisect import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from assay.data.json_files import nests_deeper
from assay.errors import InputError

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
    scanner, table = _Scanner(text), KeyPath()
    while scanner.begins():
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
        self.text, self.at = text, 0
        self.ends = [match.start() for match in re.finditer("\n", text)]
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

    def begins(self, end: str = "") -> bool:
        """Move past white space, commas and comments; whether something else than an end comes."""
        self.skip(_BLANK)
        return self.peek() != end

    def note(self, path: KeyPath, place: int, known: int = 0) -> None:
        """Record the line of a place for `path` and for its parents longer than `known`."""
        for end in range(known + 1, len(path) + 1):
            self.lines.setdefault(path[:end], bisect(self.ends, place) + 1)

    def dotted_key(self) -> KeyPath:
        parts: list[str] = []
        while not parts or self.peek() == ".":
            self.at += bool(parts)
            self.begins()
            part = self.skip(_KEY_PART)
            parts.append(tomllib.loads(f"key = {part}")["key"] if part[0] in "\"'" else part)
            self.begins()
        return tuple(parts)

    def header(self) -> KeyPath:
        """Read `[a.b]` or `[[a.b]]`; the table that the following keys belong to."""
        start, array = self.at, self.text.startswith("[[", self.at)
        self.at += 1 + array
        path: KeyPath = ()
        key = self.dotted_key()
        for number, part in enumerate(key, 1):
            path = (*path, part)
            if array and number == len(key):
                self.elements[path] = self.elements.get(path, 0) + 1
            if path in self.elements:
                path = (*path, self.elements[path] - 1)
        self.note(path, start)
        self.at += 1 + array
        return path

    def assignment(self, table: KeyPath) -> None:
        start = self.at
        path = table + self.dotted_key()
        self.note(path, start, len(table))
        self.at += 1
        self.begins()
        self.value(path)

    def value(self, path: KeyPath) -> None:
        opened, index = self.peek(), 0
        if opened not in ("{", "["):
            self.skip(_STRING if opened in ('"', "'") else _BARE)
            return
        self.at += 1
        while self.begins("}" if opened == "{" else "]"):
            if opened == "{":
                self.assignment(path)
            else:
                self.note((*path, index), self.at, len(path))
                self.value((*path, index))
            index += 1
        self.at += 1


LARGEST = 2**63 - 1
"""What TOML promises of integers."""
DEEPEST = 64
"""Tables and arrays in one another; Python's own limit is met anywhere behind."""
_DEEP = f"nested too deeply: more than {DEEPEST} levels"
_APART = re.compile(rf"{_STRING.pattern}|#[^\n]*", re.DOTALL)
_DOTTED = re.compile(rf"(?<![\w-])[\w-]++(?:[ \t]*+\.[ \t]*+[\w-]++){{{DEEPEST}}}")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


def load_toml(text: str, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
    """The values of a TOML text. Raises InputError with the line, where that is known."""
    _refuse_deep(text)
    try:
        values = tomllib.loads(text, parse_float=parse_float)
    except tomllib.TOMLDecodeError as invalid:
        message, _, place = str(invalid).partition(" (at ")
        numbers = re.findall(r"\d+", place)
        line = int(numbers[0]) if numbers else text.count("\n") + 1
        raise InputError(message, line=line) from None
    except ValueError:  # Python's limit
        raise InputError("an integer of thousands of digits", fix="write a smaller one") from None
    if nests_deeper(values, DEEPEST + 1):
        lines = (line for path, line in key_lines(text).items() if len(path) > DEEPEST)
        raise InputError(_DEEP, line=min(lines, default=None))
    return values


def _refuse_deep(text: str) -> None:
    """Raise InputError for names with too many dots, and brackets too deep in one another, which
    cost `tomllib` time and memory by their square."""
    # Strings and comments apart, only keys have several dots.
    plain = _APART.sub(lambda match: "q" * (match[0][0] != "#") + "\n" * match[0].count("\n"), text)
    dotted, depth = _DOTTED.search(plain), 0
    places = [dotted.start()] if dotted else []
    for bracket in re.finditer(r"[\[\]{}]", plain):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > DEEPEST:
            places.append(bracket.start())
            break
    if places:
        raise InputError(_DEEP, line=plain.count("\n", 0, min(places)) + 1)


def unusable_values(values: Any) -> Iterator[tuple[KeyPath, str, str]]:
    """Path, problem and fix of integers beyond TOML's 64 bits, and of texts with characters that
    steer a terminal or are none.
    """
    for path, value in _leaves(values):
        if isinstance(value, int) and not -LARGEST - 1 <= value <= LARGEST:
            yield path, "an integer of more than 64 bits", "write a smaller one"
        if isinstance(value, str) and (match := _CONTROL.search(value)):
            yield path, f"holds the control character {match[0]!r}", "take it out"


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
