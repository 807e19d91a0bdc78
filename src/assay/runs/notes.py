"""Notes of people in the lab's notebook, and plans for runs that do not exist yet.

Stored as lines of `notebook.jsonl` at the lab's root, so that notes outlive their runs. Results of
runs are never stored here; they are read from the records.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from assay.errors import InputError
from assay.runs.run_files import entries

NOTEBOOK = "notebook.jsonl"


@dataclass(frozen=True, slots=True)
class Note:
    """Something that a person wrote."""

    at: str
    """ISO 8601 in UTC."""
    about: str
    """`NAME/ID` of a run, or the NAME of runs to come."""
    text: str
    kind: Literal["note", "plan"] = "note"

    @property
    def name(self) -> str:
        """The name of the run."""
        return self.about.partition("/")[0]


def add_note(root: Path, about: str, text: str, kind: Literal["note", "plan"] = "note") -> Note:
    """Append a note to the lab's notebook. Raises InputError."""
    if not text.strip():
        raise InputError("is empty", field=f"--{kind}", fix="write what you want to remember")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    note = Note(now, about, text.strip(), kind)
    with (root / NOTEBOOK).open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(asdict(note), ensure_ascii=False) + "\n")
    return note


def read_notes(root: Path) -> list[Note]:
    """All notes, oldest first; a last line without its end was torn and does not count."""
    return entries(root / NOTEBOOK, Note)


def pending_plans(notes: Sequence[Note], started: Sequence[tuple[str, str]]) -> list[Note]:
    """Plans that no run has followed since; `started` has the names and start times of runs."""
    return [
        note
        for note in notes
        if note.kind == "plan"
        and not any(name == note.name and at >= note.at for name, at in started)
    ]
