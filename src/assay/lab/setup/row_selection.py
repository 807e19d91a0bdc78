"""A selection: a file of row ids with scores and provenance, which `take` of a data set reads.

`selections/NAME.json` is written once, and holds a sha256 of its own content and one of each row.
Rows are scored in `lab.select`.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from assay.data.files import atomic_write_text, locked, sha256_file
from assay.data.hashing import canonical_json, hash_contents, sha256_text
from assay.data.row import Row
from assay.errors import InputError
from assay.lab.setup.run_rows import PASS_RATE
from assay.runs.run_files import FIX, as_entry, read_json

FOLDER = "selections"
SCHEMA = 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
SHOWN = 3


@dataclass(frozen=True, slots=True)
class ScoredRow:
    """One row that was measured."""

    id: str
    sha256: str
    """Of what the row says, see `row_sha256`."""
    score: float | None
    """None where it could not be scored."""
    answers: int
    """Judged answers that the score stands on."""
    curve: Sequence[float | None]
    """Share of right answers by epoch; empty where epochs do not count."""
    dropped: str = ""
    """Why the row is not selected; "" for one that is."""


@dataclass(frozen=True)
class RowSelection:
    """Which rows were chosen, by what, from which answers of which run."""

    rule: Mapping[str, Any]
    """`by`, and the parameters of the rule."""
    run: str
    recorded: Mapping[str, Any]
    """`stage` and `steps`, or `evaluation`, `checkpoint` and `role`; `files` and `file_sha256`."""
    data: Mapping[str, Any]
    """`name` and `source` of the rows in that run, and `rows_sha256` of those that were scored."""
    made: str
    """UTC, ISO 8601."""
    counts: Mapping[str, Any]
    """`scored`, `kept`, and `dropped` by reason."""
    rows: Sequence[ScoredRow]

    @cached_property
    def kept(self) -> Mapping[str, ScoredRow]:
        """The selected rows by id."""
        return {row.id: row for row in self.rows if not row.dropped}

    @property
    def provenance(self) -> dict[str, Any]:
        """All but the rows, for manifests and displays."""
        values = asdict(replace(self, rows=()))
        del values["rows"]
        return values

    @property
    def origin(self) -> str:
        """Rule and answers in words."""
        rule = ", ".join(f"{key} {value}" for key, value in self.rule.items() if value is not None)
        keys = ("stage", "evaluation", "checkpoint")
        where = " ".join(f"{key} {self.recorded[key]}" for key in keys if key in self.recorded)
        return f"{rule.removeprefix('by ')}; {self.run}, {where}"


@dataclass(frozen=True)
class Chosen:
    """A selection that a data set takes."""

    file: str
    """As the experiment names it."""
    sha256: str
    """Of the file."""
    selection: RowSelection
    total: int
    """Training rows that there were to choose from."""

    @property
    def record(self) -> dict[str, Any]:
        """What a manifest notes of it."""
        return {"sha256": self.sha256, **self.selection.provenance}


def row_sha256(row: Row) -> str:
    """The sha256 of all that a row says, its id included; a pass rate is not the row's own."""
    extra = {key: value for key, value in row.extra.items() if key != PASS_RATE}
    return hash_contents((replace(row, extra=extra),))


def rows_sha256(rows: Iterable[ScoredRow]) -> str:
    """One hash of ids and contents, in their order."""
    return sha256_text(canonical_json([[row.id, row.sha256] for row in rows]))


def free_selection_file(root: Path, name: str) -> Path:
    """Where the selection `name` is to be written. Raises InputError where it exists, and for a
    name that is none of a file."""
    if not _NAME.fullmatch(name):
        fix = "write letters, digits, '.', '_' and '-', such as limr-06"
        raise InputError(f"{name!r} is not the name of a selection", fix=fix)
    file = root / FOLDER / f"{name.removesuffix('.json')}.json"
    if file.exists():
        fix = "a selection is never overwritten: choose another name"
        raise InputError("exists", file=file, fix=fix)
    return file


def write_row_selection(root: Path, name: str, selection: RowSelection) -> Path:
    """Write a selection, whole or not at all. Raises InputError for a name that exists."""
    values: dict[str, Any] = {"schema": SCHEMA, **asdict(selection)}
    values["sha256"] = _own(values)
    lines = (json.dumps(row, ensure_ascii=False) for row in values.pop("rows"))
    head = json.dumps(values, indent=1, ensure_ascii=False).removesuffix("\n}")
    text = head + ',\n "rows": [\n  ' + ",\n  ".join(lines) + "\n ]\n}\n"
    (root / FOLDER).mkdir(parents=True, exist_ok=True)
    with locked(root / FOLDER):
        file = free_selection_file(root, name)
        atomic_write_text(file, text)
    return file


def read_row_selection(file: Path) -> RowSelection:
    """A selection as it was written. Raises InputError."""
    values = read_json(file, dict, InputError)
    if values.pop("sha256", None) != _own(values):
        raise InputError("is damaged: it does not hold what was written", file=file, fix=FIX)
    if values.pop("schema") != SCHEMA:
        raise InputError("was written by another version", file=file, fix="select again")
    values["rows"] = [as_entry(ScoredRow, row, file) for row in values["rows"]]
    return as_entry(RowSelection, values, file)


def chosen_rows(
    root: Path, name: str, source: Sequence[Row], rows: Sequence[Row]
) -> tuple[Chosen, tuple[Row, ...]]:
    """The selection in the file `name`, and those of the `rows` that it selects, in their order.

    Relative files lie in `root`; `source` holds all rows that the data set reads. Raises
    InputError where the selection was made on other rows.
    """
    file = root / name
    selection = read_row_selection(file)
    known = {row.id: row for row in source}
    kept = selection.kept
    origin = f"{selection.data['name']} of {selection.run}, {selection.data['source']}"
    _refuse(name, [id_ for id_ in kept if id_ not in known], "are not here", kept, origin)
    changed = [id_ for id_, row in kept.items() if row_sha256(known[id_]) != row.sha256]
    _refuse(name, changed, "say something else here", kept, origin)
    chosen = Chosen(name, sha256_file(file), selection, len(rows))
    return chosen, tuple(row for row in rows if row.id in kept)


def _refuse(
    name: str, ids: Sequence[str], what: str, kept: Mapping[str, ScoredRow], origin: str
) -> None:
    if ids:
        some = ", ".join(repr(id_) for id_ in ids[:SHOWN]) + (", ..." if ids[SHOWN:] else "")
        problem = f"{name} was made on other rows: {len(ids)} of its {len(kept)} {what}: {some}"
        fix = f"read the rows as data.{origin} does, or select again"
        raise InputError(problem, field="take.selection", fix=fix)


def _own(values: Mapping[str, Any]) -> str:
    """The hash of the file's other entries, which the file holds too."""
    return sha256_text(canonical_json(values))
