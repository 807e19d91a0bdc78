"""Notes of people in the lab's notebook.

Stored as lines of `notebook.jsonl` at the lab's root, so that notes outlive their runs. Results of
runs are never stored here; they are read from the records.
"""

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from assay.errors import InputError
from assay.runs.run_files import entries

NOTEBOOK = "notebook.jsonl"


@dataclass(frozen=True, slots=True)
class Note:
    """Something that a person wrote."""

    at: str
    """ISO 8601 in UTC."""
    about: str
    """`NAME/ID` of a run."""
    text: str
    kind: str = "note"
    """Older notebooks have plans as well."""


def add_note(root: Path, about: str, text: str) -> Note:
    """Append a note to the lab's notebook. Raises InputError."""
    if not text.strip():
        raise InputError("is empty", field="--note", fix="write what you want to remember")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    note = Note(now, about, text.strip())
    with (root / NOTEBOOK).open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(asdict(note), ensure_ascii=False) + "\n")
    return note


def read_notes(root: Path) -> list[Note]:
    """All notes, oldest first; a last line without its end was torn and does not count."""
    return entries(root / NOTEBOOK, Note)
