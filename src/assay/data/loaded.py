"""Holds one raw object of a data file with its place, and what reading a source gives.

Readers yield rows, rows left out with the reason, and remarks one by one, so that a file need not
fit into memory; `gather` collects them. Nothing is read or judged here.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from assay.data.row import Row
from assay.errors import InputError

JSON_NAMES = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    dict: "an object",
    list: "an array",
    type(None): "null",
}


def absent(path: Path) -> str:
    """Why no file can be read at a path; "" where there is one."""
    if path.is_file():
        return ""
    return "is a folder, not a file" if path.is_dir() else "no such file"


def check_file(path: Path) -> None:
    """Raise DataError unless a file lies there."""
    if problem := absent(path):
        raise DataError(problem, file=path)


class DataError(InputError):
    """A data file that cannot be read in its stated format."""


def error_at(origin: str, problem: str, fix: str, field: str | None = None) -> DataError:
    """The error about a row by its place of origin, `file:line`."""
    file, _, line = origin.rpartition(":")
    place: dict[str, Any] = {"file": file, "line": int(line)} if file and line.isdigit() else {}
    return DataError(problem, field=field, fix=fix, **place)


ABSENT = object()


def at_path(value: Any, path: str) -> Any:
    """What stands under a name with dots, which leads through tables and lists; ABSENT where
    nothing does. A key may hold dots itself: the longest that leads on comes first."""
    if isinstance(value, list):
        first, _, rest = path.partition(".")
        if not first.isdecimal() or int(first) >= len(value):
            return ABSENT
        return at_path(value[int(first)], rest) if rest else value[int(first)]
    if not isinstance(value, Mapping):
        return ABSENT
    if path in value:
        return value[path]
    heads = [path[: dot.start()] for dot in re.finditer(r"\.", path)]
    inner = (at_path(value[key], path[len(key) + 1 :]) for key in heads[::-1] if key in value)
    return next((each for each in inner if each is not ABSENT), ABSENT)


class RecordColumns(dict[str, Any]):
    """The columns of a record without the `unread`, which hold what JSON does not have: asking for
    one of these raises its error."""

    def __init__(self, value: Mapping[str, Any], unread: Mapping[str, DataError]) -> None:
        super().__init__(value)
        self.unread = unread

    def __missing__(self, name: str) -> Any:
        raise self.unread.get(name) or KeyError(name)

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a column, which may be absent. Raises DataError for an unread one."""
        return self[name] if name in self.unread else super().get(name, default)


@dataclass(frozen=True, slots=True)
class Record:
    """An object of a data file. Lines and parquet rows count from 1."""

    file: str
    line: int
    value: Mapping[str, Any]
    told: set[str] = field(default_factory=set, compare=False, repr=False)
    """What its readers have to say about the row that they make of it."""
    written: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)
    """The object under the file's own names, where `value` has others."""

    @property
    def origin(self) -> str:
        """`file:line`."""
        return f"{self.file}:{self.line}"

    @property
    def unread(self) -> Mapping[str, DataError]:
        """The columns of values that JSON does not have, and what to raise where one is needed."""
        return self.value.unread if isinstance(self.value, RecordColumns) else {}

    def changed(self, value: Mapping[str, Any], **fields: Any) -> "Record":
        """This record with other columns, but for those that cannot be read."""
        return replace(
            self, value=RecordColumns(value, self.unread) if self.unread else value, **fields
        )

    def remark(self, words: str) -> None:
        """Say something about the row; `words` are one of few, as those of a `Remark` are."""
        self.told.add(words)

    def error(self, field: str, problem: str, fix: str | None = None) -> DataError:
        """The error to raise about one field of this record."""
        return DataError(problem, file=self.file, line=self.line, field=field, fix=fix)

    def need(self, field: str, *kinds: type) -> Any:
        """The value of a top-level field that must be there. Raises DataError."""
        if self.value.get(field) is None:
            known = ", ".join(self.value) or "none"
            raise self.error(field, "missing", f"the fields here are: {known}")
        return self.typed(field, self.value[field], *kinds)

    def maybe(self, field: str, *kinds: type) -> Any:
        """The value of a top-level field, or None where it is absent or null."""
        value = self.value.get(field)
        return None if value is None else self.typed(field, value, *kinds)

    def typed(self, path: str, value: Any, *kinds: type) -> Any:
        """`value` itself if its type is one of `kinds`. Raises DataError that names `path`."""
        if type(value) in kinds:
            return value
        wanted = " or ".join(JSON_NAMES[kind] for kind in kinds)
        actual = JSON_NAMES.get(type(value), type(value).__name__)
        raise self.error(path, f"is {actual}, not {wanted}")

    def others(self, *fields: str) -> dict[str, Any]:
        """The fields that are not among `fields`."""
        return {key: value for key, value in self.value.items() if key not in fields}


Found = Record | DataError
"""An object of a data file, or what is wrong in its place."""


def sound(records: Iterable[Found]) -> Iterator[Record]:
    """The objects. Raises the first DataError in the place of one."""
    for each in records:
        if isinstance(each, DataError):
            raise each
        yield each


UNREADABLE = "rows that cannot be read"
"""The reason of rows whose id, as they have none, is the line and what is wrong with it."""
FEW = 3
"""Of them that are named beside how many there are."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A conversation that became no row."""

    id: str
    reason: str
    """One of few, so that conversations can be counted by it."""
    origin: str = ""
    """`file:line`."""


@dataclass(frozen=True, slots=True)
class Remark:
    """Something to know about a row that is kept."""

    id: str
    words: str
    """One of few, as a reason is."""


Item = Row | LeftOut | Remark


@dataclass(frozen=True, slots=True)
class Loaded:
    """Rows of a source, and those that it had but that cannot be used."""

    rows: tuple[Row, ...]
    dropped: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Reason -> ids of the rows dropped for it."""
    remarks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Remark -> ids of the rows that it is about."""


def gather(items: Iterable[Item]) -> Loaded:
    """All of what a reader yields."""
    rows: list[Row] = []
    dropped: dict[str, list[str]] = {}
    remarks: dict[str, list[str]] = {}
    for item in items:
        if isinstance(item, Row):
            rows.append(item)
        elif isinstance(item, LeftOut):
            dropped.setdefault(item.reason, []).append(item.id)
        else:
            remarks.setdefault(item.words, []).append(item.id)
    return Loaded(
        tuple(rows),
        {named(why, ids): tuple(ids) for why, ids in dropped.items()},
        {words: tuple(ids) for words, ids in remarks.items()},
    )


def named(reason: str, ids: Sequence[str]) -> str:
    """A reason with the first rows that it is about, where nothing else would name them."""
    if reason != UNREADABLE:
        return reason
    more = [f"and {len(ids) - FEW} more"] if len(ids) > FEW else []
    return f"{reason} ({'; '.join([*ids[:FEW], *more])})"


def spread(loaded: Loaded) -> Iterable[Item]:
    """The items that `gather` would put together as `loaded`."""
    for reason, ids in loaded.dropped.items():
        yield from (LeftOut(id_, reason) for id_ in ids)
    for words, ids in loaded.remarks.items():
        yield from (Remark(id_, words) for id_ in ids)
    yield from loaded.rows
