"""Rendered conversations on disk, `prepared.sqlite` in the cache: a second command, another seed
and a resumed run read what the first one rendered.

A conversation is found by all that its tokens depend on: the code and libraries that render, the
tokenizer, the rendering with its template and options, messages and tools. Each is written in one
transaction, so that a killed process leaves none by half and processes share the file.
"""

import hashlib
import json
import os
import sqlite3
import threading
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from assay.data.files import cache_root, sha256_file
from assay.data.hashing import canonical_json
from assay.data.renderings.rendering import RenderedConversation, Renderer
from assay.data.row import Message

LONG = 4000
"""Characters of a conversation from which on it is kept: a shorter one is soon rendered."""
MOST_BYTES = 4 * 2**30
"""Beyond it the half of the conversations that was not used for longest goes."""
CHECKED = 500
"""Conversations written from one look at the size to the next."""
DAY = 24 * 3600
WAIT_SECONDS = 60

TABLE = "CREATE TABLE IF NOT EXISTS prepared (key BLOB UNIQUE, used INTEGER, head TEXT, ids BLOB)"


def prepared(
    renderer: Renderer,
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
    generation: bool,
) -> RenderedConversation:
    """The conversation, or with `generation` the prompt, as rendered before, else rendered now and
    kept. Raises RenderingError."""
    render: Callable[..., RenderedConversation]
    render = renderer.rendered_prompt if generation else renderer.conversation
    maker = renderer.maker if sum(len(m.content) for m in messages) >= LONG else ""
    if not maker:
        return render(messages, tools)
    known_by = repr((maker, _code(), generation, tuple(messages), tuple(tools)))
    key = hashlib.sha256(known_by.encode("utf-8", "surrogatepass")).digest()
    try:
        store = _store(cache_root(), os.getpid(), threading.get_ident())
        kept = _read(store, key)
    except (sqlite3.Error, OSError):  # a cache that is damaged or closed costs time, nothing else
        return render(messages, tools)
    if kept is None:
        _keep(store, key, kept := render(messages, tools))
    return kept


def _read(store: sqlite3.Connection, key: bytes) -> RenderedConversation | None:
    """What is kept under a key; None for nothing, and for what is not as it was written."""
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
    kind, spans, rewritten = json.loads(rest)
    return RenderedConversation(tuple(array(kind, ids)), tuple(map(tuple, spans)), tuple(rewritten))


def _keep(store: sqlite3.Connection, key: bytes, made: RenderedConversation) -> None:
    kind = "H" if max(made.tokens, default=0) < 2**16 else "I"
    rest, ids = json.dumps([kind, made.message_spans, made.rewritten]), array(kind, made.tokens)
    head = f"{_digest(rest, ids.tobytes())} {rest}"
    values = key, int(time.time()), head, ids.tobytes()
    with suppress(sqlite3.Error):  # such as a full disk
        written = store.execute("INSERT OR IGNORE INTO prepared VALUES (?, ?, ?, ?)", values)
        if (written.lastrowid or 0) % CHECKED == 0:
            _shrink(store)


def _digest(head: str, ids: bytes) -> str:
    return hashlib.sha256(head.encode() + ids).hexdigest()


@cache
def _code() -> str:
    """The sha256 of the code that renders, and the versions of the libraries that it calls."""
    here = Path(__file__).parent
    files = [
        *sorted(here.glob("*.*")),
        here.parent / "conversation.py",
        here.parent / "encoding.py",
    ]
    digests = [sha256_file(file) for file in files]
    return canonical_json([digests, *map(version, ("transformers", "tokenizers", "jinja2"))])


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


def _shrink(store: sqlite3.Connection) -> None:
    """Take out what was not used for longest where there is too much; its pages are used again."""
    names = ("page_count", "freelist_count", "page_size")
    pages, free, size = (store.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
    if (pages - free) * size > MOST_BYTES:
        oldest = "SELECT rowid FROM prepared ORDER BY used, rowid LIMIT"
        half = "(SELECT (count(*) + 1) / 2 FROM prepared)"
        store.execute(f"DELETE FROM prepared WHERE rowid IN ({oldest} {half})")
