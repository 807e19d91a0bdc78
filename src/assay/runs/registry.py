"""`lab.sqlite`: an index of a lab's runs and of the references between them.

The index can be rebuilt from the folders at any time, so losing it loses nothing. It also holds one
score for each run, without interval or verdict, for lists. What may be deleted is decided in
`protection`.
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from assay.errors import InputError
from assay.experiment.checkpoint_reference import CheckpointReference, parse_checkpoint
from assay.experiment.read_file import read_experiment
from assay.runs.manifest_file import read_manifest
from assay.runs.run_directory import RunDirectory, all_runs, runs_of
from assay.runs.run_files import FIX, DamagedFile, read_json
from assay.runs.run_names import (
    RunNotFound,
    checkpoint_directory,
    checkpoint_steps,
    read_run_name,
)
from assay.runs.status import RunState, is_held, stored_status
from assay.runs.trial_ledger import note_gone


@dataclass(frozen=True, slots=True)
class LastScore:
    """A score with its evaluation; None with the reason if it cannot be read."""

    score: float | None = None
    on: str = ""


def last_score(run: RunDirectory) -> LastScore:
    """Read a run's score, or the damaged file in place of it."""
    if not any(run.evaluations.glob("*/evaluation.json")):
        return LastScore()
    try:
        return _measured(run)
    except InputError as error:
        # A damaged run must not hide the others in a list, so its error is shown in its row.
        place = "" if error.file is None else str(error.file).removeprefix(f"{run.path}/")
        return LastScore(None, f"cannot be read: {place or error.problem}")


def _measured(run: RunDirectory) -> LastScore:
    from assay.runs.history import evaluation_records, measured_checkpoints
    from assay.runs.records import read_scores  # loads pyarrow, which an index does without

    for record in evaluation_records(run):
        measured = measured_checkpoints(run, record)
        if record.role == "report" and measured:
            score = read_scores(run, record, measured[-1]).mean
            return LastScore(score, f"{record.name} of {measured[-1]}")
    return LastScore()


INDEX = "lab.sqlite"
PROTECTED = "protected.json"
VERSION = 2
SQLITE = b"SQLite format 3\0"
"""The header of every SQLite database; an empty file has not been written yet."""
TABLES = """
CREATE TABLE runs (
  name TEXT, id TEXT, seed INTEGER, status TEXT, started TEXT, finished TEXT, stage TEXT,
  step INTEGER, message TEXT, score REAL, "on" TEXT, PRIMARY KEY (name, id)
);
CREATE TABLE refers (source TEXT, target TEXT, PRIMARY KEY (source, target));
CREATE TABLE protected (path TEXT PRIMARY KEY, why TEXT);
"""


Read = TypeVar("Read")
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
    """The runs by name and age; one whose process died is `interrupted`, whatever was noted."""
    with _open(root) as index:
        rows = index.execute("SELECT * FROM runs ORDER BY name, id").fetchall()
    return [_alive(root, IndexedRun(*row)) for row in rows]


def references(root: Path) -> list[tuple[str, str]]:
    """All (source, target) pairs, as paths from the lab's root."""
    with _open(root) as index:
        return index.execute("SELECT source, target FROM refers ORDER BY 1, 2").fetchall()


def protected_paths(root: Path) -> dict[str, str]:
    """Protected paths from the lab's root, with the reasons."""
    with _open(root) as index:
        return dict(index.execute("SELECT path, why FROM protected ORDER BY path"))


@contextmanager
def _open(root: Path) -> Iterator[sqlite3.Connection]:
    """The index in one transaction, filled first where it is new or of another version."""
    _clear_rubbish(root / INDEX)
    with closing(sqlite3.connect(root / INDEX, timeout=60, isolation_level=None)) as index:
        index.execute("PRAGMA journal_mode = WAL")
        index.execute("BEGIN IMMEDIATE")
        with index:
            if index.execute("PRAGMA user_version").fetchone() != (VERSION,):
                _make(index, root)
            yield index


def _clear_rubbish(file: Path) -> None:
    """Remove a file that is no index from its place; the index is built again from the folders.

    Raises DamagedFile for a folder, which may hold anything.
    """
    if not file.exists():
        return
    if file.is_dir():
        raise DamagedFile("is a folder", file=file, fix="move it away; the index is made again")
    with file.open("rb") as stream:
        start = stream.read(len(SQLITE))
    if start and start != SQLITE:
        file.unlink()


def _make(index: sqlite3.Connection, root: Path) -> None:
    for table in ("runs", "refers", "protected"):
        index.execute(f"DROP TABLE IF EXISTS {table}")
    for statement in TABLES.split(";"):
        index.execute(statement)
    index.execute(f"PRAGMA user_version = {VERSION}")
    _fill(index, root)


def _fill(index: sqlite3.Connection, root: Path) -> None:
    for table in ("runs", "refers", "protected"):
        index.execute(f"DELETE FROM {table}")
    for run in all_runs(root):
        _enter(index, run)


def _forget(index: sqlite3.Connection, run: RunDirectory) -> None:
    index.execute("DELETE FROM runs WHERE name = ? AND id = ?", (run.name, run.id))
    inside = _lab_path(run, run.path) + "/"
    for table, column in (("refers", "source"), ("protected", "path")):
        sql = f"DELETE FROM {table} WHERE substr({column} || '/', 1, ?) = ?"
        index.execute(sql, (len(inside), inside))


def _enter(index: sqlite3.Connection, run: RunDirectory) -> None:
    # A damaged run is listed with its reason; it must not hide the others, nor lose what can be
    # read of what it needs and what is protected.
    line, unread = _tried(lambda: _line_of(run))
    refers, unclear = _tried(lambda: set(_references_of(run)))
    marked, unmarked = _tried(lambda: read_protected(run))
    error = unread or unclear or unmarked
    if line is None or error is not None:
        line = _damaged_line(run, error)
    if refers is None:
        refers = {*_record_references(run), *_possible_references(run)}
    if marked is None:
        marked = {".": f"what of it was protected cannot be read: {unmarked}"}
    index.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", astuple(line))
    index.executemany("INSERT INTO refers VALUES (?, ?)", refers)
    index.executemany(
        "INSERT INTO protected VALUES (?, ?)",
        [(_lab_path(run, run.path / path), why) for path, why in marked.items()],
    )


def _tried(read: Callable[[], Read]) -> tuple[Read, None] | tuple[None, InputError]:
    try:
        return read(), None
    except InputError as error:
        return None, error


def _line_of(run: RunDirectory) -> IndexedRun:
    s, last = stored_status(run.path), last_score(run)
    place, times = (s.stage, s.step), (s.started, s.finished)
    return IndexedRun(run.name, run.id, s.seed, s.status, *times, *place, s.message, *astuple(last))


def _damaged_line(run: RunDirectory, error: InputError | None) -> IndexedRun:
    return IndexedRun(run.name, run.id, 0, "damaged", "", "", "", 0, str(error), None, "")


def _references_of(run: RunDirectory) -> Iterator[tuple[str, str]]:
    """The checkpoints that the run's model and helper models are, that its stages start from in
    other runs, that its records measured, and that its adapters stand on."""
    manifest = read_manifest(run)
    for model in (manifest.get("base_weights", {}), *manifest.get("helpers", {}).values()):
        if "checkpoint" in model:
            yield _lab_path(run, run.manifest), model["checkpoint"]
    stages = manifest.get("stages", {})
    for stage in stages.values():
        if "checkpoint" in stage.get("from", {}):
            yield _lab_path(run, run.manifest), stage["from"]["checkpoint"]
    yield from _record_references(run)
    yield from _adapter_starts(run, stages)


def _possible_references(run: RunDirectory) -> Iterator[tuple[str, str]]:
    """The possible references of a run whose manifest cannot be read.

    They are its own checkpoints, which may be based on each other, and all runs that its model may
    come from.
    """
    here = _lab_path(run, run.path)
    yield here, _lab_path(run, run.path / "checkpoints")
    experiment, _ = _tried(lambda: read_experiment(run.spec))
    helpers = experiment.helpers.values() if experiment else ()
    sources = [experiment.model, *(each.source for each in helpers)] if experiment else []
    sources += [stage.start for stage in experiment.stage.values()] if experiment else []
    for name in (source.removeprefix("run:") for source in sources if source.startswith("run:")):
        reference, _ = _tried(partial(read_run_name, run.root, name))
        for other in runs_of(run.root, reference.name) if reference else ():
            if reference and reference.id in (None, other.id, other.id.rpartition("-")[2]):
                yield here, _lab_path(run, other.path)


def _record_references(run: RunDirectory) -> Iterator[tuple[str, str]]:
    """The checkpoints that the run's records measured."""
    for record in run.evaluations.glob("*/[!.]*.parquet"):
        reference = parse_checkpoint(record.stem)
        if reference is not None and reference.stage and reference.step is not None:
            checkpoint = run.checkpoint(reference.stage, reference.step)
            yield _lab_path(run, record), _lab_path(run, checkpoint)


def _adapter_starts(run: RunDirectory, stages: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The references of LoRA checkpoints to the start of their stage."""
    for name, stage in stages.items():
        start = _standing(run, parse_checkpoint(stage.get("start", "base")))
        if start is None or stage.get("adapt", {}).get("kind") != "lora":
            continue
        for step in checkpoint_steps(run, name):
            yield _lab_path(run, run.checkpoint(name, step)), _lab_path(run, start)


def _standing(run: RunDirectory, start: CheckpointReference | None) -> Path | None:
    """The folder of a checkpoint of the run; None for its base, and for what is gone."""
    if start is None or start.stage is None:
        return None
    try:
        return checkpoint_directory(run, start)
    except RunNotFound:
        return None


def read_protected(run: RunDirectory) -> dict[str, str]:
    """Protected paths inside the run, with the reasons."""
    file = run.path / PROTECTED
    marked = read_json(file, dict) if file.exists() else {}
    for path, why in marked.items():
        if not isinstance(why, str) or "\0" in path:
            raise DamagedFile(f"cannot be read: {path[:80]!r} has no reason", file=file, fix=FIX)
    return marked


def _lab_path(run: RunDirectory, path: Path) -> str:
    return path.relative_to(run.root).as_posix()


def _alive(root: Path, row: IndexedRun) -> IndexedRun:
    """The row with current status and score; that of a finished or damaged run is unchanged."""
    run = RunDirectory(root, row.name, row.id)
    if row.status in ("finished", "damaged"):
        return row
    last = last_score(run)
    row = replace(row, score=last.score, on=last.on)
    dead = row.status == "running" and not is_held(run.path)
    return replace(row, status="interrupted") if dead else row
