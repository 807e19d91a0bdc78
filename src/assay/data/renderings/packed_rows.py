"""Rows whose messages lie packed in memory, and what was read of a large file on the disk.

A row of a long conversation takes many times its text as objects: `packed` keeps what is long of it
as compressed JSON, where that gives the same objects again. What a large file was read as is kept
under the fingerprint of all that reading depends on, so that the next command need not parse it.
"""

import hashlib
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import lru_cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, cast

from assay.data.episode import message_of, message_values
from assay.data.files import sha256_file
from assay.data.hashing import canonical_json
from assay.data.loaded import Loaded
from assay.data.renderings.prepared import LONG, keep, read
from assay.data.row import Row

LARGE = 4_000_000
"""Bytes of a file from which on it is kept as it was read."""
AT_ONCE = 4
"""Rows that stay unpacked, as one is asked for several of its fields."""


class PackedRow(Row):
    """A row that makes messages, tools and columns of `content` when they are asked for, and the
    `digest` of all that it says. A copy with other fields is a plain row."""

    __slots__ = ("content", "digest")

    def __new__(cls, *values: Any, **named: Any) -> Any:
        """A plain row: `dataclasses.replace` asks for it."""
        return Row(*values, **named)

    def __reduce__(self) -> tuple[Any, ...]:
        return Row, tuple(getattr(self, each.name) for each in fields(Row))

    def __eq__(self, other: object) -> bool:
        names = [each.name for each in fields(Row) if each.compare]
        return all(getattr(self, name) == getattr(other, name, None) for name in names)

    __hash__ = None  # type: ignore[assignment]

    messages = property(lambda self: _unpacked(self.content)[0])  # type: ignore[assignment]
    tools = property(lambda self: _unpacked(self.content)[1])  # type: ignore[assignment]
    columns = property(lambda self: _unpacked(self.content)[2])  # type: ignore[assignment]


def packed(row: Row, least: int = LONG) -> Row:
    """The row with what is long of it packed; one with fewer characters than `least`, and one that
    JSON cannot give back, as it is."""
    if isinstance(row, PackedRow) or sum(len(each.content) for each in row.messages) < least:
        return row
    messages = [message_values(each) for each in row.messages]
    same = [name for name, value in row.columns.items() if value == [*row.tools]]
    others = {name: value for name, value in row.columns.items() if name not in same}
    try:
        text = json.dumps([messages, row.tools, same, others], ensure_ascii=False)
    except (TypeError, ValueError):
        return row
    content = zlib.compress(text.encode("utf-8", "surrogatepass"), 1)
    same_again = _unpacked(content) == (row.messages, row.tools, row.columns)
    return _row({name: getattr(row, name) for name in SHORT}, content) if same_again else row


def _row(short: Mapping[str, Any], content: bytes) -> PackedRow:
    made = object.__new__(PackedRow)
    digest = hashlib.sha256(repr([*short.items()]).encode() + content).hexdigest()
    for name, value in {**short, "content": content, "digest": digest}.items():
        object.__setattr__(made, name, value)
    return made


SHORT = ("id", "gold", "conversation", "origin", "extra", "template_options")


@lru_cache(maxsize=AT_ONCE)
def _unpacked(content: bytes) -> tuple[Any, ...]:
    text = zlib.decompress(content).decode("utf-8", "surrogatepass")
    messages, tools, same, columns = json.loads(text)
    return tuple(map(message_of, messages)), tuple(tools), {**dict.fromkeys(same, tools), **columns}


def read_once(file: Path, settings: Sequence[Any], reader: Callable[[], Loaded]) -> Loaded:
    """What a reader makes of a file by these settings, or made of a large one before."""
    if not file.is_file() or file.stat().st_size < LARGE:
        return reader()
    key = _key([sha256_file(file), str(file), *settings])
    if kept := read(key):
        dropped, remarks, shorts, sizes = json.loads(kept[0])
        ends = [*accumulate(sizes, initial=0)]
        contents = [kept[1][start:end] for start, end in pairwise(ends)]
        rows = tuple(map(_row, shorts, contents))
        return Loaded(rows, *({w: tuple(i) for w, i in e.items()} for e in (dropped, remarks)))
    loaded = reader()
    rows = [cast(PackedRow, packed(row, least=0)) for row in loaded.rows]
    with suppress(TypeError, ValueError, AttributeError):  # what JSON has no word for stays here
        shorts = [{name: getattr(row, name) for name in SHORT} for row in rows]
        contents = [row.content for row in rows]
        parts = [dict(loaded.dropped), dict(loaded.remarks), shorts, [*map(len, contents)]]
        if json.loads(text := json.dumps(parts))[2] == shorts:
            keep(key, (text, b"".join(contents)))
    return loaded


def remembered(what: str, rows: Sequence[Row], settings: Any, make: Callable[[], Any]) -> Any:
    """A JSON value that is made of rows by these settings: of long rows kept for the next command,
    but where no settings say all that it depends on."""
    if settings is None or not any(isinstance(row, PackedRow) for row in rows):
        return make()
    digest = hashlib.sha256()
    for row in rows:
        own = row.digest if isinstance(row, PackedRow) else repr((row, row.columns))
        digest.update(own.encode())
    key = _key([what, digest.hexdigest(), settings])
    if (kept := read(key)) is None:
        keep(key, kept := (json.dumps(make()), b""))
    return json.loads(kept[0])


def _key(parts: Sequence[Any]) -> bytes:
    return hashlib.sha256(canonical_json(parts).encode("utf-8", "surrogatepass")).digest()
