"""`lab.sqlite`: an index of a lab's runs, with one score for each, without interval or verdict.

The index can be rebuilt from the folders at any time, so losing it loses nothing.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Literal

from assay.errors import InputError
from assay.runs.manifest_file import read_manifest
from assay.runs.run_directory import RunDirectory, all_runs
from assay.runs.run_files import DamagedFile
from assay.runs.status import RunState, is_held, stored_status
from assay.runs.trial_ledger import note_gone


def last_score(run: RunDirectory) -> tuple[float | None, str]:
    """A run's score with its evaluation; None with the reason if it cannot be read."""
    if not any(run.evaluations.glob("*/evaluation.json")):
        return None, ""
    from assay.runs.history import evaluation_records, measured_checkpoints
    from assay.runs.records import read_scores  # loads pyarrow, which an index does without

    try:
        for record in evaluation_records(run):
            measured = measured_checkpoints(run, record)
            if record.role == "report" and measured:
                score = read_scores(run, record, measured[-1]).mean
                return score, f"{record.name} of {measured[-1]}"
    except InputError as error:
        # A damaged run must not hide the others in a list, so its error is shown in its row.
        place = "" if error.file is None else str(error.file).removeprefix(f"{run.path}/")
        return None, f"cannot be read: {place or error.problem}"
    return None, ""


INDEX = "lab.sqlite"
VERSION = 3
TABLE = """
CREATE TABLE runs (
  name TEXT, id TEXT, seed INTEGER, status TEXT, started TEXT, finished TEXT, stage TEXT,
  step INTEGER, message TEXT, score REAL, "on" TEXT, PRIMARY KEY (name, id)
)
"""
IndexedState = RunState | Literal["damaged"]
"""A run whose files cannot be read is in the index all the same, and says so."""


@dataclass(frozen=True, slots=True)
class IndexedRun:
    """A line of the index."""

    name: str
    id: str
    seed: int
    status: IndexedState
    started: str
    finished: str
    stage: str
    step: int
    message: str
    """Why it failed or was interrupted, or what of it cannot be read."""
    score: float | None
    """See `last_score`, as it was when the run was noted."""
    on: str
    """The evaluation of the score."""


def check_index(root: Path) -> None:
    """Raise what would stop `note_run`, before there is a run to note."""
    with _open(root):
        pass


def note_run(run: RunDirectory) -> None:
    """Update the index's row of one run."""
    with _open(run.root) as index:
        _forget(index, run)
        _enter(index, run)


def forget_run(run: RunDirectory) -> None:
    """Take a run out of the index."""
    with _open(run.root) as index:
        _forget(index, run)


def rebuild_index(root: Path) -> None:
    """Make the whole index again from the folders, in one transaction. Runs that it knew and that
    no command deleted are noted as gone, see `trial_ledger`."""
    with _open(root) as index:
        known = [RunDirectory(root, *row) for row in index.execute("SELECT name, id FROM runs")]
        note_gone(run for run in known if not run.path.exists())
        _fill(index, root)


def indexed_runs(root: Path) -> list[IndexedRun]:
    """The runs by name and age; one whose process died is `interrupted`, whatever was noted. Of a
    lab that may not be written they are read from the folders."""
    file = root / INDEX
    writable = all(os.access(each, os.W_OK) for each in (root, file) if each.exists())
    with _open(root, memory=not writable) as index:
        rows = index.execute("SELECT * FROM runs ORDER BY name, id").fetchall()
    return [_alive(root, IndexedRun(*row)) for row in rows]


@contextmanager
def _open(root: Path, memory: bool = False) -> Iterator[sqlite3.Connection]:
    """The index in one transaction, filled first where it is new."""
    file = ":memory:" if memory else root / INDEX
    if isinstance(file, Path):
        _clear_broken(file)
    with closing(sqlite3.connect(file, timeout=60, isolation_level=None)) as index:
        index.execute("PRAGMA journal_mode = WAL")
        index.execute("BEGIN IMMEDIATE")
        with index:
            if not index.execute("SELECT 1 FROM sqlite_master").fetchone():
                index.execute(TABLE)
                index.execute(f"PRAGMA user_version = {VERSION}")
                _fill(index, root)
            yield index


def _clear_broken(file: Path) -> None:
    """Remove a file that is no whole database, or of another version; the index is built again from
    the folders.

    Raises DamagedFile for a folder, which may hold anything, and what else is no file.
    """
    if not os.path.lexists(file):
        return
    if not file.is_file():
        problem = "is a folder" if file.is_dir() else "is no file"
        raise DamagedFile(problem, file=file, fix="move it away; the index is made again")
    try:
        with closing(sqlite3.connect(file, timeout=60)) as index:
            whole = index.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)
            tables = index.execute("SELECT name, sql FROM sqlite_master WHERE sql NOT NULL")
            # Another process may be about to enter the table.
            known = [*tables] in ([], [("runs", TABLE.strip())])
            version = index.execute("PRAGMA user_version").fetchone() in ((0,), (VERSION,))
            whole = whole and known and version
    except sqlite3.OperationalError:  # it is busy, or may not be read
        raise
    except sqlite3.DatabaseError:
        whole = False
    if not whole:
        for beside in ("", "-wal", "-shm"):
            file.with_name(f"{file.name}{beside}").unlink(missing_ok=True)


def _fill(index: sqlite3.Connection, root: Path) -> None:
    index.execute("DELETE FROM runs")
    for run in all_runs(root):
        _enter(index, run)


def _forget(index: sqlite3.Connection, run: RunDirectory) -> None:
    index.execute("DELETE FROM runs WHERE name = ? AND id = ?", (run.name, run.id))


def _enter(index: sqlite3.Connection, run: RunDirectory) -> None:
    try:
        read_manifest(run)
        s, last = stored_status(run.path), last_score(run)
        place, times = (s.stage, s.step, s.message), (s.started, s.finished)
        line = IndexedRun(run.name, run.id, s.seed, s.status, *times, *place, *last)
    except InputError as error:  # it is listed with its reason, and hides no other
        line = IndexedRun(run.name, run.id, 0, "damaged", "", "", "", 0, str(error), None, "")
    index.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", astuple(line))


def _alive(root: Path, row: IndexedRun) -> IndexedRun:
    """The row with current status and score; that of a finished or damaged run is unchanged."""
    run = RunDirectory(root, row.name, row.id)
    if row.status in ("finished", "damaged"):
        return row
    score, on = last_score(run)
    row = replace(row, score=score, on=on)
    dead = row.status == "running" and not is_held(run.path)
    return replace(row, status="interrupted") if dead else row
