"""Rows whose messages lie packed in memory, and what was read of a large file on the disk.

A row of a long conversation takes many times its text as objects: `packed` keeps what is long of it
as compressed JSON, where that gives the same objects again. What a large file was read as is kept
under the fingerprint of all that reading depends on, so that the next command need not parse it.

Rendered conversations lie in `prepared.sqlite` of the cache: a second command, another seed and a
resumed run read what the first one rendered. A conversation is found by all that its tokens depend
on: the code and libraries that render, the tokenizer, the rendering with its template and options,
messages and tools. Each is written in one transaction, so that a killed process leaves none by half
and processes share the file.
"""

import hashlib
import json
import os
import sqlite3
import threading
import time
import zlib
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import cache, lru_cache
from importlib.metadata import version
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, cast

from assay.data.episode import message_of, message_values
from assay.data.files import cache_root, canonical_json, sha256_file
from assay.data.loaded import Loaded
from assay.data.renderings.rendering import RenderedConversation, Renderer
from assay.data.row import Message, Row

LONG = 4000
"""Characters of a conversation from which on it is kept: a shorter one is soon rendered."""
MOST_BYTES = 4 * 2**30
"""Beyond it the half of the conversations that was not used for longest goes."""
CHECKED = 500
"""Conversations written from one look at the size to the next."""
DAY = 24 * 3600
WAIT_SECONDS = 60

TABLE = "CREATE TABLE IF NOT EXISTS prepared (key BLOB UNIQUE, used INTEGER, head TEXT, ids BLOB)"


Packed = tuple[str, bytes]
"""What lies under a key: a line of JSON, and bytes."""


def prepared(
    renderer: Renderer,
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
    generation: bool,
    known: dict[bytes, Packed] | None = None,
) -> RenderedConversation:
    """The conversation, or with `generation` the prompt: one of the `known`, which it joins, or as
    it was rendered before, else rendered now and kept. Raises RenderingError."""
    known = {} if known is None else known
    key, before = _keys(renderer, messages, tools, generation)
    if key not in known:
        long = renderer.maker and sum(len(message.content) for message in messages) >= LONG
        if (stored := read(key) if long else None) is None:
            render = renderer.rendered_prompt if generation else renderer.conversation
            stored = _entry_of(render(messages, tools))
            if long:
                keep(key, stored)
        known[key] = stored
    made = _conversation_of(known[key])
    prompt = None if generation else made.prompt_before(len(messages) - 1)
    if prompt and before not in known:
        known[before] = _entry_of(prompt, known[key])
    return made


def _keys(
    renderer: Renderer,
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
    generation: bool,
) -> tuple[bytes, bytes]:
    """By what a conversation is known, and the prompt before its last message."""
    maker = repr((renderer.maker or renderer.fingerprint, tuple(tools)))
    *parts, last = (text.encode("utf-8", "surrogatepass") for text in (maker, *map(repr, messages)))
    digest = hashlib.sha256(b"".join(parts))
    before = digest.copy()
    before.update(b"prompt")
    digest.update(last + (b"prompt" if generation else b"whole"))
    return digest.digest(), before.digest()


def _entry_of(made: RenderedConversation, whole: Packed | None = None) -> Packed:
    """A conversation with its token ids in two bytes each where that is enough, else in four: those
    of a `whole` that it begins."""
    kind = json.loads(whole[0])[0] if whole else "HI"[max(made.tokens, default=0) >= 2**16]
    head = json.dumps([kind, len(made.tokens), made.message_spans, made.rewritten, made.doubtful])
    return head, whole[1] if whole else array(kind, made.tokens).tobytes()


def _conversation_of(kept: Packed) -> RenderedConversation:
    kind, count, spans, *others = json.loads(kept[0])
    tokens = tuple(array(kind, kept[1])[:count])
    return RenderedConversation(tokens, tuple(map(tuple, spans)), *map(tuple, others))


def read(key: bytes) -> Packed | None:
    """What this code kept under a key; None for nothing, for what is not as it was written, and
    where the cache cannot be used, which costs time and nothing else."""
    key = hashlib.sha256(_code().encode() + key).digest()
    try:
        store = _store(cache_root(), os.getpid(), threading.get_ident())
        query = "SELECT used, head, ids FROM prepared WHERE key = ?"
        if (row := store.execute(query, (key,)).fetchone()) is None:
            return None
        used, head, ids = row
        digest, _, rest = head.partition(" ")
        if digest != _digest(rest, ids):
            store.execute("DELETE FROM prepared WHERE key = ?", (key,))
            return None
        now = int(time.time())
        if now - used > DAY:
            store.execute("UPDATE prepared SET used = ? WHERE key = ?", (now, key))
        return rest, ids
    except (sqlite3.Error, OSError):
        return None


def keep(key: bytes, value: Packed) -> None:
    """Write a value under a key, unless the disk is full or the cache cannot be used."""
    key = hashlib.sha256(_code().encode() + key).digest()
    values = key, int(time.time()), f"{_digest(*value)} {value[0]}", value[1]
    with suppress(sqlite3.Error, OSError):
        store = _store(cache_root(), os.getpid(), threading.get_ident())
        written = store.execute("INSERT OR IGNORE INTO prepared VALUES (?, ?, ?, ?)", values)
        if (written.lastrowid or 0) % CHECKED == 0:
            _shrink(store)


def _digest(head: str, ids: bytes) -> str:
    return hashlib.sha256(head.encode() + ids).hexdigest()


@cache
def _code() -> str:
    """The sha256 of Assay's code and tables, and the versions of the libraries that it reads,
    renders and judges with."""
    files = sorted(f for f in Path(__file__).parents[2].rglob("*.*") if f.suffix != ".pyc")
    names = ("transformers", "tokenizers", "jinja2", "sympy", "math-verify", "pint")
    return canonical_json([[*map(sha256_file, files)], *map(version, names)])


@lru_cache(maxsize=16)
def _store(folder: Path, process: int, thread: int) -> sqlite3.Connection:
    """The connection of one thread of one process, which may not be shared."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "prepared.sqlite"
    store = sqlite3.connect(
        file, timeout=WAIT_SECONDS, isolation_level=None, check_same_thread=False
    )
    store.execute("PRAGMA journal_mode = WAL")
    store.execute("PRAGMA synchronous = NORMAL")
    store.execute(TABLE)
    _shrink(store)
    return store


close_store = _store.cache_clear
"""Closes the connections; the next use opens its own."""


def _shrink(store: sqlite3.Connection) -> None:
    """Take out what was not used for longest where there is too much; its pages are used again."""
    names = ("page_count", "freelist_count", "page_size")
    pages, free, size = (store.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
    if (pages - free) * size > MOST_BYTES:
        oldest = "SELECT rowid FROM prepared ORDER BY used, rowid LIMIT"
        half = "(SELECT (count(*) + 1) / 2 FROM prepared)"
        store.execute(f"DELETE FROM prepared WHERE rowid IN ({oldest} {half})")


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
