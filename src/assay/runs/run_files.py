"""Reads the small JSON files of a run, and writes files with their sha256 in `checksums.jsonl`.

A checksum is written before its file takes its name, so no file lacks one; after a kill there may
be a line without a file. Checkpoints hold checksums of their own (`data.files`). Changed files
are found by `verify_files`.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from assay.data.files import append_line, atomic_path, sha256_file
from assay.errors import InputError

T = TypeVar("T")
FIX = "restore it, or move it away"
NAMES = {dict: "object", list: "array"}


class DamagedFile(InputError):
    """A file of a lab has unexpected content."""


def read_json(file: Path, kind: type[T], error: type[InputError] = DamagedFile) -> T:
    """The JSON object (dict) or array (list) of a file. Raises `error`."""
    try:
        text = file.read_text(encoding="utf-8")
        found = json.loads(text)
        if "\\u" in text:
            # Half of a surrogate pair passes the parser, and breaks the index and the pages later.
            json.dumps(found, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError, OSError) as problem:
        raise error(_unreadable(problem), file=file, fix=FIX) from problem
    if type(found) is not kind:
        raise error(f"cannot be read: it is no JSON {NAMES[kind]}", file=file, fix=FIX)
    return found


def parse_line(text: bytes | str, file: Path, number: int) -> dict[str, Any]:
    """The JSON object that stands on line `number` of a file. Raises DamagedFile."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise DamagedFile(_unreadable(problem), file=file, line=number, fix=FIX) from problem
    if not isinstance(found, dict):
        raise DamagedFile("is no JSON object", file=file, line=number, fix=FIX)
    return found


def as_entry(kind: type[T], values: dict[str, Any], file: Path, number: int | None = None) -> T:
    """The values of a dataclass. Raises DamagedFile where a field is missing or unknown."""
    try:
        return kind(**values)
    except TypeError as problem:
        what = " ".join(str(problem).split()).partition("__init__() ")[2] or str(problem)
        raise DamagedFile(what, file=file, line=number, fix=FIX) from problem


def whole_lines(file: Path) -> list[dict[str, Any]]:
    """The JSON objects of a journal, a line each; what a kill left of a last line is none, and goes
    with the next `append_line`. Raises DamagedFile."""
    lines = file.read_bytes().split(b"\n")[:-1]
    return [parse_line(line, file, number) for number, line in enumerate(lines, 1)]


def entries(file: Path, kind: type[T]) -> list[T]:
    """The dataclasses of a journal, a line each; none where there is no file.

    A last line without its end was torn by a kill and does not count. Raises DamagedFile.
    """
    if not file.exists():
        return []
    parsed = list(enumerate(whole_lines(file), 1))
    return [as_entry(kind, values, file, number) for number, values in parsed]


def _unreadable(problem: Exception) -> str:
    why = problem.strerror if isinstance(problem, OSError) else str(problem)
    return f"cannot be read: {' '.join(str(why).split())}"


LIST = "checksums.jsonl"


@dataclass(frozen=True, slots=True)
class Entry:
    """One write of a file; the same file may have several."""

    file: str
    """Its path inside the run."""
    sha256: str


@contextmanager
def listed_path(run: Path, file: Path) -> Iterator[Path]:
    """`data.files.atomic_path` for a file of the run in folder `run`, with its checksum
    recorded."""
    with atomic_path(file) as temporary:
        yield temporary
        entry = Entry(file.relative_to(run).as_posix(), sha256_file(temporary))
        append_line(run / LIST, json.dumps(asdict(entry)))


def write_listed(run: Path, file: Path, text: str) -> None:
    """Write a text in UTF-8 atomically, and record its checksum."""
    with listed_path(run, file) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")


def listed_files(run: Path) -> dict[str, list[str]]:
    """Every sha256 that each file of a run was written with, oldest first. Raises DamagedFile."""
    found: dict[str, list[str]] = {}
    for entry in entries(run / LIST, Entry):
        found.setdefault(entry.file, []).append(entry.sha256)
    return found
