"""Remembers what a frozen model answered and how likely it found answers, for all processes.

One SQLite file below the cache for each model, whose name says all that its answers depend on. Only
models that say so are remembered (`identity`): an endpoint may stand for other weights
tomorrow, and a script costs nothing. What is asked, and with which settings, is the caller's.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from assay.data.files import cache_root
from assay.data.hashing import canonical_json, sha256_text
from assay.data.row import Message, TextPart
from assay.errors import RunFailure
from assay.tasks.helper_model import HelperModel

WAIT_SECONDS = 60.0
"""For another process that is writing."""
TABLE = "CREATE TABLE IF NOT EXISTS outcomes (request TEXT PRIMARY KEY, outcome TEXT NOT NULL)"

Compute = Callable[[Sequence[int]], Sequence[Any]]
"""What the model says to the requests at these places, as JSON values; None is not remembered."""


class CacheUnusable(RunFailure):
    """The file of remembered outcomes cannot be read or written."""


def once(frozen: HelperModel, requests: Sequence[Any], compute: Compute) -> list[Any]:
    """The outcome of each request, a JSON value: remembered, or computed and then remembered.

    Equal requests are computed once. `frozen.usage` counts those that were not computed. Raises
    CacheUnusable, and what `compute` raises.
    """
    keys = [sha256_text(canonical_json(request)) for request in requests]
    file = outcome_file(frozen) if frozen.identity else None
    known = remembered(file, keys) if file is not None else {}
    first: dict[str, int] = {}
    for place, key in enumerate(keys):
        if key not in known:
            first.setdefault(key, place)
    frozen.usage.remember(len(keys) - len(first))
    found = dict(zip(first, compute([*first.values()]) if first else [], strict=True))
    if file is not None:
        remember(file, {key: value for key, value in found.items() if value is not None})
    every = {**known, **found}
    return [every[key] for key in keys]


def outcome_file(frozen: HelperModel) -> Path:
    """Where the outcomes of a model lie."""
    return cache_root() / "outcomes" / f"{sha256_text(frozen.identity)[:24]}.sqlite"


def remembered(file: Path, keys: Sequence[str]) -> dict[str, Any]:
    """The outcomes that a file has, by their request's key. Raises CacheUnusable."""
    if not file.exists():
        return {}
    found: dict[str, Any] = {}
    with _opened(file) as store:
        for key in keys:
            row = store.execute("SELECT outcome FROM outcomes WHERE request = ?", (key,)).fetchone()
            if row is not None:
                found[key] = json.loads(row[0])
    return found


def remember(file: Path, outcomes: Mapping[str, Any]) -> None:
    """Add outcomes; of two processes that found the same, the first one's stays. Raises
    CacheUnusable."""
    if not outcomes:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    with _opened(file) as store, store:
        rows = [(key, json.dumps(value)) for key, value in outcomes.items()]
        store.executemany("INSERT OR IGNORE INTO outcomes VALUES (?, ?)", rows)


@contextmanager
def _opened(file: Path) -> Iterator[sqlite3.Connection]:
    try:
        with closing(sqlite3.connect(file, timeout=WAIT_SECONDS)) as store:
            store.execute(TABLE)
            yield store
    except sqlite3.Error as error:
        problem = f"{file}: remembered outcomes cannot be used: {error} (delete the file)"
        raise CacheUnusable(problem) from error


def shown(messages: Sequence[Message]) -> list[Any]:
    """A conversation as a JSON value; an image is its sha256."""
    return [
        [
            message.role,
            message.content
            if not message.parts
            else [
                part.text if isinstance(part, TextPart) else {"image": part.sha256}
                for part in message.parts
            ],
        ]
        for message in messages
    ]
