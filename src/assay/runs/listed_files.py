"""Files that a run writes whole, with their sha256 entered into the run's `checksums.jsonl`.

A line is entered before its file takes its name, so that no file is newer than the list; a kill
may leave a line too many. Checkpoints hold checksums of their own (`data.checksums`). What has
changed is found by `verify_files`.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from assay.data.files import append_line, atomic_path, sha256_file
from assay.runs.json_files import entries

LIST = "checksums.jsonl"


@dataclass(frozen=True, slots=True)
class Entry:
    """A file as it was written once; the same file may have several."""

    file: str
    """Its path inside the run."""
    sha256: str


@contextmanager
def listed_path(run: Path, file: Path) -> Iterator[Path]:
    """`data.files.atomic_path` for a file of the run in folder `run`, which is entered."""
    with atomic_path(file) as temporary:
        yield temporary
        entry = Entry(file.relative_to(run).as_posix(), sha256_file(temporary))
        append_line(run / LIST, json.dumps(asdict(entry)))


def write_listed(run: Path, file: Path, text: str) -> None:
    """Write a text in UTF-8, whole or not at all, and enter it."""
    with listed_path(run, file) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")


def listed_files(run: Path) -> dict[str, list[str]]:
    """Every sha256 that each file of a run was written with, oldest first. Raises DamagedFile."""
    found: dict[str, list[str]] = {}
    for entry in entries(run / LIST, Entry):
        found.setdefault(entry.file, []).append(entry.sha256)
    return found
