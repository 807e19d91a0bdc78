"""The sha256 of every file of a folder, in one more file beside them.

It is written with the folder and compared by whoever reads from it. What is in the files, and which
of them may be gone, the caller knows.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.data.files import sha256_file
from assay.data.hashing import canonical_json, sha256_text

CHECKSUMS = "checksums.json"
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Damage:
    """A file that is not as it was written."""

    file: Path
    problem: str


def write_checksums(folder: Path) -> None:
    """Write the file for all others that lie in `folder`, each by its path inside."""
    names = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    files = {name: sha256_file(folder / name) for name in names if name != CHECKSUMS}
    record: dict[str, Any] = {"schema": SCHEMA, "files": files}
    record["sha256"] = _own(record)
    (folder / CHECKSUMS).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def recorded_checksums(folder: Path) -> Mapping[str, str] | Damage | None:
    """The sha256 of each file by its name; None where an older version recorded none."""
    file = folder / CHECKSUMS
    if not file.exists():
        return None
    try:
        record: Any = json.loads(file.read_bytes())
        if record.pop("sha256") == _own(record):
            return record["files"]
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        pass  # it is something else than what was written, as below
    return Damage(file, "is damaged: it does not hold what was written")


def find_damage(folder: Path, *, unless: Collection[str] = ()) -> list[Damage]:
    """The files that are damaged or missing; `unless` names those that are not looked at.

    Nothing is found where no checksums were recorded.
    """
    recorded = recorded_checksums(folder) or {}
    if isinstance(recorded, Damage):
        return [recorded]
    names = [name for name in recorded if name not in unless]
    found = (compare(folder / name, recorded[name]) for name in names)
    return [damage for damage in found if damage is not None]


def compare(file: Path, *expected: str) -> Damage | None:
    """What is wrong with a file whose sha256 is to be one of `expected`."""
    if not file.is_file():
        return Damage(file, "is missing")
    found = sha256_file(file)
    if found in expected:
        return None
    was = expected[-1]
    problem = f"is damaged: its sha256 begins with {found[:12]}, {was[:12]} was written"
    return Damage(file, problem)


def _own(record: Mapping[str, Any]) -> str:
    """What the record says of the rest of itself."""
    return sha256_text(canonical_json(record))
