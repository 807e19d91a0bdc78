"""Journal of an endpoint's replies, so that an interrupted evaluation pays for no reply twice.

A line is on the disk before its reply is used. Its key is a hash of everything that was sent, so
that a dialogue that takes another course sends a new request. The journal lies beside the chunks of
a record and is deleted with them.
"""

import json
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assay.data.files import append_line, sync
from assay.data.hashing import sha256_text
from assay.errors import RunFailure
from assay.rollout.engines.endpoint.client import Said, Unanswered
from assay.runs.run_files import FIX, DamagedFile, whole_lines

JOURNAL = "replies.jsonl"
KINDS = {"text": str, "ended": str, "prompt_tokens": int | None, "completion_tokens": int | None}
"""The fields of a `Said` and what they hold."""


class NotJournalled(RunFailure):
    """A reply could not be written: going on would pay for replies that a kill loses."""


@dataclass(frozen=True, slots=True)
class Place:
    """Which request of an evaluation: the turn counts from 0."""

    item: str
    repeat: int
    turn: int
    request: str
    """See `request_hash`."""


class ReplyJournal:
    """Answers by the request that they answer; safe to use from several threads."""

    def __init__(self, folder: Path):
        """Reads what an interrupted evaluation left in `folder`. Raises DamagedFile."""
        self._file = folder / JOURNAL
        self._lock = threading.Lock()
        self._file.touch()
        sync(folder)
        self._known = _read(self._file)

    def known(self, place: Place) -> Said | Unanswered | None:
        """The outcome of a request; None if it is unknown."""
        return self._known.get(place)

    def add(self, place: Place, outcome: Said | Unanswered) -> None:
        """Write the outcome of a request; it is on the disk on return. Raises NotJournalled."""
        line = {**asdict(place), **_values(outcome)}
        try:
            with self._lock:
                append_line(self._file, json.dumps(line))
                sync(self._file)
        except OSError as error:
            raise NotJournalled(f"{self._file}: cannot be written: {error.strerror}") from error


def request_hash(sent: Any) -> str:
    """The hash of what a request sends, a JSON value."""
    return sha256_text(json.dumps(sent, sort_keys=True))


def _values(outcome: Said | Unanswered) -> Mapping[str, Any]:
    if isinstance(outcome, Said):
        return {name: getattr(outcome, name) for name in KINDS}
    return {"reason": outcome.reason, "detail": outcome.detail}


def _read(file: Path) -> dict[Place, Said | Unanswered]:
    return dict(_entry(line, file, n) for n, line in enumerate(whole_lines(file), 1))


def _entry(line: Mapping[str, Any], file: Path, number: int) -> tuple[Place, Said | Unanswered]:
    try:
        place = Place(*(_kind(line[name], kind) for name, kind in Place.__annotations__.items()))
        if "reason" in line:
            return place, Unanswered(_kind(line["reason"], str), _kind(line["detail"], str))
        return place, Said(**{name: _kind(line[name], kind) for name, kind in KINDS.items()})
    except (KeyError, TypeError) as error:
        problem = f"is no reply: {' '.join(str(error).split())}"
        raise DamagedFile(problem, file=file, line=number, fix=FIX) from error


def _kind(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not {kind}")
    return value
