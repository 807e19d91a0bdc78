"""Finds a lab's runs: the index `lab.sqlite`, with one score for each, without interval or verdict,
and the runs of one experiment by name and settings.

A run notes its name alone; whoever lists the runs reads the others' lines, and keeps those of
finished ones. The index can be rebuilt from the folders at any time, so losing it loses nothing.

Beside it the ledger of trials: how often a lab looked at the items of a benchmark, over all of its
runs. Every checkpoint after training that was measured is one trial. They are counted from the
evaluation records; those of deleted runs are kept in `deleted_trials.jsonl`, so that a deletion
does not lower the count. What a count means for a verdict is decided in `judge.verdict`.

Makes the folder of a new run; starts and resumes nothing. A damaged run is listed with its reason,
so that it never hides the others; one that was asked for by name is read, and its damage raised,
where it is used.
"""

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from contextvars import ContextVar
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from assay.data.files import PART, append_line, kept, remove_parts
from assay.errors import InputError
from assay.judge.confounds import differences
from assay.judge.verdict import Looks
from assay.runs.cost_ledger import take_ledger
from assay.runs.run_code import keep_code
from assay.runs.run_directory import (
    RunDirectory,
    RunState,
    all_runs,
    begun,
    create_run,
    hold_lab,
    hold_run,
    is_held,
    never_begun,
    read_manifest,
    read_status,
    seed_or_damage,
    stored_status,
)
from assay.runs.run_files import DamagedFile, as_entry, read_json, whole_lines

if TYPE_CHECKING:  # an index does without pydantic and pyarrow
    from assay.experiment.experiment import Experiment


def last_score(run: RunDirectory) -> tuple[float | None, str]:
    """A run's score with its evaluation; None with the reason if it cannot be read."""
    if not any(run.evaluations.glob("*/evaluation.json")):
        return None, ""
    from assay.runs.history import evaluation_records, measured_checkpoints
    from assay.runs.records import read_scores

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
VERSION = 4
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
    """See `last_score`."""
    on: str
    """The evaluation of the score."""


def check_index(root: Path) -> None:
    """Raise what would stop `note_run`, before there is a run to note."""
    with _open(root):
        pass


def note_run(run: RunDirectory) -> None:
    """Enter a run; what was kept of it is read again when runs are listed."""
    with _open(run.root) as index:
        index.execute("INSERT OR REPLACE INTO runs (name, id) VALUES (?, ?)", (run.name, run.id))


def remove_run(run: RunDirectory) -> None:
    """Take a run that nobody needs, and that nobody else executes, out of every listing at once;
    what is left of it after a kill is only rubbish."""
    rubbish = run.path.with_name(f".{run.id}{PART}")
    run.path.rename(rubbish)
    with _open(run.root) as index:
        index.execute("DELETE FROM runs WHERE name = ? AND id = ?", (run.name, run.id))
    remove_parts(rubbish.parent)


def rebuild_index(root: Path) -> None:
    """Make the whole index again from the folders, in one transaction. Runs that it knew and that
    no command deleted are noted as gone."""
    with _open(root) as index:
        known = [RunDirectory(root, *row) for row in index.execute("SELECT name, id FROM runs")]
        gone = [run for run in known if not run.path.exists()]
        _append(root, [{"run": str(run)} for run in gone])
        _fill(index, root)


def indexed_runs(root: Path) -> list[IndexedRun]:
    """The runs by name and age; one whose process died is `interrupted`, whatever was noted. Of a
    lab that may not be written they are read from the folders."""
    file = root / INDEX
    writable = all(os.access(each, os.W_OK) for each in (root, file) if each.exists())
    with _open(root, memory=not writable) as index:
        rows = index.execute("SELECT * FROM runs ORDER BY name, id").fetchall()
        lines = [
            IndexedRun(*row) if row[3] else _line(RunDirectory(root, *row[:2])) for row in rows
        ]
        ended = [astuple(line) for line in lines if line.status == "finished"]
        values = ", ".join("?" * len(fields(IndexedRun)))
        index.executemany(f"INSERT OR REPLACE INTO runs VALUES ({values})", ended)
    return lines


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
    names = [(run.name, run.id) for run in all_runs(root)]
    index.executemany("INSERT INTO runs (name, id) VALUES (?, ?)", names)


def _line(run: RunDirectory) -> IndexedRun:
    """What the folder of a run says now."""
    try:
        read_manifest(run)
        s, last = stored_status(run.path), last_score(run)
    except InputError as error:  # it is listed with its reason, and hides no other
        return IndexedRun(run.name, run.id, 0, "damaged", "", "", "", 0, str(error), None, "")
    dead = s.status == "running" and not is_held(run.path)
    place, times = (s.stage, s.step, s.message), (s.started, s.finished)
    status = "interrupted" if dead else s.status
    return IndexedRun(run.name, run.id, s.seed, status, *times, *place, *last)


DELETED = "deleted_trials.jsonl"
"""In the lab's root: the trials of runs that are gone, a JSON object in a line."""
BASE = "base"
"""The checkpoint before training is what others are compared with, no trial of its own."""


@dataclass(frozen=True, slots=True)
class EvaluationLook:
    """One evaluation of a run: the checkpoints that looked at some items."""

    run: str
    """NAME/ID."""
    evaluation: str
    """The folder of its records."""
    benchmark: str
    checkpoints: tuple[str, ...]
    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ledger:
    """The trials of a lab."""

    kept: tuple[EvaluationLook, ...]
    deleted: tuple[EvaluationLook, ...]
    """Of runs that were deleted."""
    unknown: tuple[str, ...]
    """Runs that are damaged, or gone without a command of the lab."""


_known: ContextVar[dict[Path, Ledger] | None] = ContextVar("ledgers", default=None)


@contextmanager
def reading_once() -> Iterator[None]:
    """Within it the ledger of a lab is read once, however many verdicts stand beside it."""
    token = _known.set({})
    try:
        yield
    finally:
        _known.reset(token)


def read_ledger(root: Path) -> Ledger:
    """All trials of a lab. Raises DamagedFile for a file of deleted trials that cannot be read."""
    known = _known.get()
    if known is not None and root in known:
        return known[root]
    looks: list[EvaluationLook] = []
    unknown: list[str] = []
    for run in all_runs(root):
        try:
            looks += trials_of(run)
        except DamagedFile:
            unknown.append(str(run))
    deleted: dict[tuple[str, str], EvaluationLook] = {}
    for each in _deleted(root):
        # A run that a kill kept from being deleted still counts by itself.
        if (root / "runs" / (each if isinstance(each, str) else each.run)).exists():
            continue
        if isinstance(each, str):
            unknown.append(each)
        else:  # a deletion that a kill ended is noted twice
            deleted[each.run, each.evaluation] = each
    ledger = Ledger(tuple(looks), tuple(deleted.values()), tuple(dict.fromkeys(unknown)))
    if known is not None:
        known[root] = ledger
    return ledger


def trials_of(run: RunDirectory) -> Iterator[EvaluationLook]:
    """What a run looked at after training. Raises DamagedFile for a damaged record."""
    for file in sorted(run.evaluations.glob("*/evaluation.json")):
        benchmark, items = _benchmark_items(file)
        # Listed anew: a folder's time is too coarse to tell two records apart.
        names = sorted(p.stem for p in file.parent.glob("[!.]*.parquet") if p.stem != BASE)
        if names:
            yield EvaluationLook(str(run), file.parent.name, benchmark, tuple(names), items)


@kept(1 << 14)
def _benchmark_items(file: Path) -> tuple[str, tuple[str, ...]]:
    """Benchmark and items of an evaluation."""
    values = read_json(file, dict)
    benchmark, items = values.get("benchmark"), values.get("items")
    if not isinstance(benchmark, str) or not isinstance(items, list):
        raise DamagedFile("cannot be read: no benchmark or no items", file=file)
    return benchmark, tuple(map(str, items))


def _deleted(root: Path) -> Iterator[EvaluationLook | str]:
    """The trials of deleted runs; of one whose trials are not known, its name."""
    file = root / DELETED
    for number, line in enumerate(whole_lines(file) if file.exists() else (), 1):
        alone = line.keys() == {"run"} and isinstance(line["run"], str)
        yield line["run"] if alone else as_entry(EvaluationLook, line, file, number)


def note_deleted(run: RunDirectory) -> None:
    """Keep the trials of a run that is about to be deleted."""
    try:
        lines: list[Mapping[str, Any]] = [asdict(trial) for trial in trials_of(run)]
    except DamagedFile:
        lines = [{"run": str(run)}]
    _append(run.root, lines)


def _append(root: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    for line in lines:
        append_line(root / DELETED, json.dumps(line, ensure_ascii=False))


def looks_at(root: Path, benchmark: str, items: Iterable[str]) -> Looks:
    """The looks of a lab at a benchmark: of trials on some of these items. Raises DamagedFile."""
    return _looks(read_ledger(root), benchmark, items)


def _looks(ledger: Ledger, benchmark: str, items: Iterable[str]) -> Looks:
    wanted = frozenset(items)
    kept, deleted = (
        [t for t in trials if t.benchmark == benchmark and not wanted.isdisjoint(t.items)]
        for trials in (ledger.kept, ledger.deleted)
    )
    gone = sum(len(trial.checkpoints) for trial in deleted)
    return Looks(
        benchmark=benchmark,
        looks=gone + sum(len(trial.checkpoints) for trial in kept),
        runs=len({trial.run for trial in (*kept, *deleted)}),
        deleted=gone,
        unknown=len(ledger.unknown),
    )


def looks_by_benchmark(root: Path) -> dict[str, Looks]:
    """The looks of a lab at every benchmark, by name. Raises DamagedFile."""
    ledger = read_ledger(root)
    items: dict[str, set[str]] = {}
    for trial in (*ledger.kept, *ledger.deleted):
        items.setdefault(trial.benchmark, set()).update(trial.items)
    return {name: _looks(ledger, name, items[name]) for name in sorted(items)}


def way_on(run: RunDirectory) -> str:
    """The commands that a user may want for an existing run."""
    status = read_status(run.path)
    if status.status == "finished":
        return f"it is finished: see 'assay report {run.name}', or start another with --new"
    if status.status == "running":
        return "it is running; start another with --new"
    if status.guard:
        return f"{status.message}; 'assay resume {run.name} --past-guard', or --new for another"
    return f"it is {status.status}: 'assay resume {run.name}', or start another with --new"


def refuse_existing(root: Path, name: str, new: bool, seeds: Sequence[int] | None = None) -> None:
    """Raise InputError if the name has started runs (of some `seeds`), unless another is wanted."""
    earlier = begun(root, name)
    if seeds is not None:
        earlier = [run for run in earlier if seed_or_damage(run.path) in seeds]
    if earlier and not new:
        problem = f"a run named {name!r} exists"
        raise InputError(problem, fix=way_on(earlier[-1]))


@contextmanager
def fresh_run(
    root: Path, name: str, seed: int, spec: str, *, new: bool, beside: bool = False
) -> Iterator[RunDirectory]:
    """A new run of `spec` (TOML), held by this process from the instant that others can see it,
    `beside` runs of other seeds.

    It takes the place of runs that ended before they had a manifest, and their ledger. Raises
    InputError.
    """
    with ExitStack() as held:
        with hold_lab(root):
            refuse_existing(root, name, new, [seed] if beside else None)
            check_index(root)
            run = create_run(root, name, seed=seed, spec=spec, new=True)
            held.enter_context(hold_run(run.path))
            keep_code(run)
            for dead in never_begun(root, name):
                if take_ledger(dead, run):
                    remove_run(dead)
        yield run


def newest(root: Path, name: str, seed: int) -> RunDirectory | None:
    """The newest of these runs that has the seed."""
    runs = [run for run in begun(root, name) if stored_status(run.path).seed == seed]
    return runs[-1] if runs else None


def changed_settings(run: RunDirectory, experiment: "Experiment") -> list[str]:
    """Settings in which a run and an experiment differ; its seed is its own.

    A reporting evaluation that only one of them has makes no other run: it changes no weight.
    """
    from assay.runs.run_names import experiment_of

    own = experiment_of(run)
    before, now = _compared(own, experiment), _compared(experiment, own)
    return [difference.path for difference in differences(before, now)]


def check_same(run: RunDirectory, experiment: "Experiment") -> None:
    """Raise InputError unless the run was made from these settings."""
    if changed := changed_settings(run, experiment):
        fix = "start another with --new, or give the experiment another name"
        if all(path.startswith("evaluate.") for path in changed):
            fix = f"write new values of an evaluate. axis behind the others; else {fix}"
        raise InputError(f"{run} was made with other settings: {', '.join(changed)}", fix=fix)


def _compared(experiment: "Experiment", other: "Experiment") -> dict[str, Any]:
    """The settings of one side that are compared with the other's; `[log]` changes no result, and
    neither does where evaluations are answered; how many processes train changes nothing but
    rounding."""
    from assay.experiment.tables import EngineSpec

    left_out = {"seeds": True, "log": True}
    table = experiment.model_dump(mode="json", exclude=left_out)
    engine = experiment.engine or EngineSpec()
    table["engine"] = engine.model_dump(mode="json", include={"sample"})
    table["evaluate"] = {
        name: table["evaluate"][name]
        for name, spec in experiment.evaluate.items()
        if name in other.evaluate or spec.role == "select"
    }
    return table


def made_so(run: RunDirectory, experiment: "Experiment") -> bool:
    """Whether a run was made from these settings, whatever its seed."""
    return not changed_settings(run, experiment)


def newest_by_seed(runs: Iterable[RunDirectory]) -> list[RunDirectory]:
    """The last of the runs of each seed, in the order of the seeds' first runs."""
    return list({stored_status(run.path).seed: run for run in runs}.values())


@dataclass(frozen=True, slots=True)
class DamagedRun:
    """A run that cannot be read."""

    run: RunDirectory
    why: str

    def __str__(self) -> str:
        return f"{self.run} is damaged and left out: {self.why}"


def apart(runs: Iterable[RunDirectory]) -> tuple[list[RunDirectory], list[DamagedRun]]:
    """The runs that can be read and those that cannot, each in the order given."""
    why = {run: damage(run) for run in runs}
    broken = [DamagedRun(run, problem) for run, problem in why.items() if problem]
    return [run for run, problem in why.items() if not problem], broken


def damage(run: RunDirectory) -> str:
    """Why a run cannot be read, in one line; "" where it can."""
    from assay.runs.history import evaluation_records
    from assay.runs.run_names import experiment_of

    try:
        stored_status(run.path)
        read_manifest(run)
        experiment_of(run)
        evaluation_records(run)
    except InputError as error:
        return str(error)
    return ""
