"""The folder of one run: paths of its files, how it is created, its status, manifest, checkpoints.

A running process holds the lock, and the system releases it when the process dies. A run whose
`status.json` says `running` while nobody holds the lock was interrupted. Child processes started by
exec do not inherit the lock. `sinks.json` beside it holds what the run has sent to its sinks, so
that a resumed run continues the same remote run without sending a step twice; `now.json` holds what
a live run is at. The content of `manifest.json` is assembled in `lab.session.manifest`; other files
are read in `metrics`, `records` and `history`. `train.checkpoint` writes and loads tensors: this
module needs no torch.
"""

import json
import os
import re
import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from assay.data.files import (
    PART,
    Damage,
    compare,
    find_damage,
    holds_another,
    lock,
    locked,
    new_folder,
    recorded_checksums,
    remove_parts,
)
from assay.errors import InputError
from assay.runs.run_files import (
    FIX,
    DamagedFile,
    as_entry,
    read_json,
    read_typed,
    write_json,
    write_listed,
)

RUNS = "runs"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ID = re.compile(r"[A-Za-z0-9-]+")
_STEP = re.compile(r"step-([0-9]+)")


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """`runs/<name>/<id>/` under a lab's root."""

    root: Path
    name: str
    id: str

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self.root / RUNS / self.name / self.id

    @property
    def spec(self) -> Path:
        """The resolved experiment."""
        return self.path / "spec.toml"

    @property
    def manifest(self) -> Path:
        """The fingerprints."""
        return self.path / "manifest.json"

    @property
    def metrics(self) -> Path:
        """One line per step."""
        return self.path / "metrics.jsonl"

    def samples(self, stage: str, step: int) -> Path:
        """The completions of one step."""
        return self.path / "samples" / stage / f"step-{step:06d}.parquet"

    def judgements(self, stage: str) -> Path:
        """What judges said of the step that a stage is at."""
        return self.path / f"judgements-{stage}.jsonl"

    def checkpoints(self, stage: str) -> Path:
        """The folder of a stage's checkpoints."""
        return self.path / "checkpoints" / stage

    def checkpoint(self, stage: str, step: int) -> Path:
        """The folder of one checkpoint."""
        return self.checkpoints(stage) / f"step-{step:06d}"

    def checkpoint_steps(self, stage: str) -> list[int]:
        """The steps of the finished checkpoints of a stage, in order."""
        folder = self.checkpoints(stage)
        names = [p.name for p in folder.iterdir()] if folder.is_dir() else []
        return sorted(int(m[1]) for name in names if (m := _STEP.fullmatch(name)))

    def trainer(self, stage: str) -> Path:
        """The folder in which another tool trains a stage."""
        return self.path / "trainers" / stage

    @property
    def evaluations(self) -> Path:
        """The folder of all evaluation records."""
        return self.path / "evaluations"

    @property
    def pages(self) -> list[Path]:
        """The pages that exist, `report.html` and `report.md`, then those of other languages."""
        files = [*self.path.glob("report.*html"), *self.path.glob("report.*md")]
        return sorted(files, key=lambda file: (file.name.count("."), file.name))

    def __str__(self) -> str:
        return f"{self.name}/{self.id}"


def lab_root(folder: str | None = None) -> Path:
    """The lab's root: what `--lab` says, else ASSAY_LAB, else the working directory."""
    return Path(folder or os.environ.get("ASSAY_LAB") or ".").resolve()


def check_lab(root: Path) -> None:
    """Raise InputError unless there is a folder that may be a lab."""
    if not root.is_dir():
        problem = "is no folder" if root.exists() else "no such folder"
        raise InputError(problem, file=root, fix="name the root of a lab")


@contextmanager
def drafted_run(
    root: Path, name: str, *, seed: int, spec: str, new: bool = False
) -> Iterator[tuple[RunDirectory, RunDirectory]]:
    """A new run under a hidden id that no listing shows, with its resolved `spec` (TOML) and
    status, and the run that it becomes when the block ends; nothing is left where it raises.

    Raises InputError for a name that has runs, unless `new`.
    """
    if runs_of(root, name) and not new:
        fix = f"continue with 'assay resume {name}', or start another with --new"
        raise InputError(f"a run named {name!r} exists", fix=fix)
    now = datetime.now(UTC)
    run = RunDirectory(root, name, _next_id(runs_of(root, name), now))
    named = run.path.parent
    named.mkdir(parents=True, exist_ok=True)
    remove_parts(named)
    try:
        with new_folder(run.path) as folder:
            draft = RunDirectory(root, name, folder.name)
            write_listed(folder, draft.spec, spec)
            started = now.isoformat(timespec="seconds")
            write_status(folder, Status(seed=seed, started=started, run=str(run)))
            yield draft, run
    finally:
        if named.is_dir() and not any(named.iterdir()):
            named.rmdir()


def create_run(root: Path, name: str, *, seed: int, spec: str, new: bool = False) -> RunDirectory:
    """Create the folder of a new run atomically. See `drafted_run`."""
    with drafted_run(root, name, seed=seed, spec=spec, new=new) as (_, run):
        pass
    return run


def _next_id(earlier: Sequence[RunDirectory], now: datetime) -> str:
    """An id that sorts after those of earlier runs, also within one second and where the clock was
    set back: UTC time and six random hexadecimal digits."""
    fresh = f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
    last = earlier[-1].id if earlier else ""
    if fresh > last:
        return fresh
    stamp, _, digits = last.partition("-")
    if not re.fullmatch(r"[0-9a-f]{6}", digits) or digits == "f" * 6:
        return f"{last}0"
    above = int(digits, 16) + 1
    # Close above the last one, so that many runs of one second find room.
    return f"{stamp}-{above + secrets.randbelow(min(4096, 0x1000000 - above)):06x}"


def runs_of(root: Path, name: str) -> list[RunDirectory]:
    """The runs of one name, oldest first."""
    folder = root / RUNS / name
    # A folder without a status is no run: something of the user's, or half of a copy.
    ids = [p.name for p in folders_in(folder) if (p / STATUS).is_file() and _ID.fullmatch(p.name)]
    return [RunDirectory(root, name, id_) for id_ in ids]


def begun(root: Path, name: str) -> list[RunDirectory]:
    """The live runs of a name and those with a manifest, oldest first.

    A run that failed before it had a manifest has nothing to resume.
    """
    return [run for run in runs_of(root, name) if has_begun(run)]


def has_begun(run: RunDirectory) -> bool:
    """Whether a run is live or has a manifest."""
    return run.manifest.exists() or is_held(run.path)


BIRTH = re.compile(
    r"spec\.toml|status\.json|lock|checksums\.jsonl|sinks\.json|traceback-.*"
    r"|report\.(\w+\.)?(html|md)|costs\.(json|sqlite(-wal|-shm|-mark)?)|\..*\.part"
)
"""The files of a run before it has a manifest."""


def never_begun(root: Path, name: str) -> list[RunDirectory]:
    """The runs of a name whose process ended before they had a manifest, oldest first; not those
    that hold anything else. The caller holds the lab."""
    runs = (run for run in runs_of(root, name) if not has_begun(run))
    return [run for run in runs if all(BIRTH.fullmatch(p.name) for p in run.path.iterdir())]


def all_runs(root: Path) -> list[RunDirectory]:
    """Every run of a lab, by name and then by age."""
    names = [p.name for p in folders_in(root / RUNS) if _NAME.fullmatch(p.name)]
    return [run for name in names for run in runs_of(root, name)]


def unnameable(root: Path) -> list[str]:
    """Folders that would be runs but for names that no run can have, written as Python text."""
    ids = [p for folder in folders_in(root / RUNS) for p in folders_in(folder)]
    unreadable = [p.relative_to(root / RUNS) for p in ids if (p / STATUS).is_file()]
    return [
        ascii(f"{RUNS}/{path}")
        for path in unreadable
        if not (_NAME.fullmatch(path.parts[0]) and _ID.fullmatch(path.parts[1]))
    ]


def folders_in(folder: Path) -> list[Path]:
    """The folders in a folder by name, without hidden ones; none where it is not there."""
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


RunState = Literal["running", "finished", "failed", "interrupted"]
SCHEMA = 2
"""Of a run that has a list of checksums from its beginning; earlier ones may lack it."""
STATUS = "status.json"
LOCK = "lock"
TRIES, PROBES = 20, 3
"""Attempts at the lock, by a run and by a reader, before it counts as held by another."""
MOST = 2**63 - 1
"""The largest integer of the index."""


@dataclass(frozen=True, slots=True)
class Status:
    """The progress of a run. Times are ISO 8601 in UTC; "" means not yet."""

    seed: int
    started: str
    status: RunState = "running"
    finished: str = ""
    message: str = ""
    """Why it failed or was interrupted."""
    stage: str = ""
    step: int = 0
    """The last step done in `stage`."""
    guard: str = ""
    """The guards that stopped it, by name with a space between; "" where none did."""
    schema: int = SCHEMA
    run: str = ""
    """NAME/ID; "" in files of older versions."""


def write_status(run: Path, status: Status) -> None:
    """Replace the status of the run in folder `run`, whole or not at all."""
    write_json(run / STATUS, status)


def change_status(run: Path, **changes: Any) -> Status:
    """Store other values of the status of the run in folder `run`; returns it. Raises
    DamagedFile."""
    status = replace(stored_status(run), **changes)
    write_status(run, status)
    return status


def read_status(run: Path) -> Status:
    """The status of the run in folder `run`; `interrupted` where its process is gone."""
    # The lock is checked first: a run that finishes in between must not look interrupted.
    held = is_held(run)
    status = stored_status(run)
    if status.status == "running" and not held:
        return replace(status, status="interrupted")
    return status


def stored_status(run: Path) -> Status:
    """The status in the file, without a check of the process. Raises DamagedFile."""
    file = run / STATUS
    status = read_typed(file, Status)
    if max(abs(status.seed), abs(status.step), abs(status.schema)) > MOST:
        problem = "cannot be read: it has a number beyond any that a run has"
        raise DamagedFile(problem, file=file, fix=FIX)
    if other := holds_another(file, status.run and f"{status.run}/{STATUS}"):
        raise DamagedFile(other, file=file, fix=FIX)
    return status


def seed_or_damage(run: Path) -> int | str:
    """The seed of the run in folder `run`, or the error of its status file, which equals no
    seed."""
    try:
        return stored_status(run).seed
    except DamagedFile as error:
        return str(error)


@contextmanager
def hold_run(run: Path, *, shared: bool = False) -> Iterator[None]:
    """Hold the run in folder `run` for this process. Raises InputError when another has it.

    Processes that hold it `shared` hold it together: they measure what is finished.
    """
    (run / LOCK).touch()
    handle = _try_lock(run, TRIES, shared)
    if handle is None:
        holder = (run / LOCK).read_text() or "unknown"
        fix = "wait for it to end, or stop it"
        raise InputError(f"process {holder} is executing this run", file=run, fix=fix)
    try:
        (run / LOCK).write_text(str(os.getpid()))
        yield
    finally:
        os.close(handle)


@contextmanager
def hold_lab(root: Path) -> Iterator[None]:
    """Lock the lab while a run is created; waits for other processes.

    The lock is on the lab's folder itself, so that it leaves no file behind.
    """
    root.mkdir(parents=True, exist_ok=True)
    with locked(root):
        yield


def is_held(run: Path) -> bool:
    """Whether a living process holds the run in folder `run`."""
    if not (run / LOCK).exists():
        return False
    handle = _try_lock(run, PROBES)
    if handle is not None:
        os.close(handle)
    return handle is None


def _try_lock(run: Path, tries: int, shared: bool = False) -> int | None:
    """A handle that holds the run's lock; None where a process has it for more than a moment."""
    for _ in range(tries):
        try:
            return lock(run / LOCK, wait=False, shared=shared)
        except BlockingIOError:
            # Another process may hold the lock only to check whether it is free.
            time.sleep(0.01)
    return None


SINKS = "sinks.json"


@dataclass(frozen=True, slots=True)
class SinkState:
    """One sink of a run."""

    remote: str = ""
    """The id of the remote run; "" before there is one."""
    step: int = 0
    """The last step that arrived, counted over all stages."""
    problem: str = ""
    """What failed and what is missing; "" where all arrived."""


@dataclass
class SinkStates:
    """The file of one run, written by the threads of all its sinks."""

    file: Path
    states: dict[str, SinkState]
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, sink: str) -> SinkState:
        """The state of a sink; that of one which has got nothing yet, if it is new."""
        return self.states.get(sink, SinkState())

    def change(self, sink: str, **values: str | int) -> None:
        """Store new values of a sink's state."""
        with self._lock:
            self.states[sink] = replace(self.of(sink), **values)  # type: ignore[arg-type]
            sinks = {name: asdict(state) for name, state in self.states.items()}
            write_json(self.file, {"sinks": sinks})


def read_sink_states(run: Path) -> SinkStates:
    """The states of the run in folder `run`; empty if it never had a sink. Raises DamagedFile."""
    file = run / SINKS
    by_sink = read_json(file, dict) if file.exists() else {}
    states = {
        name: as_entry(SinkState, values, file) for name, values in by_sink.get("sinks", {}).items()
    }
    return SinkStates(file, states)


NOW = "now.json"


@dataclass(frozen=True, slots=True)
class Now:
    """What a live run is at, for whoever looks at it."""

    stage: str = ""
    step: int = 0
    """The last step that is done in `stage`."""
    steps: int = 0
    left: float | None = None
    """Seconds until the last of them, as it was foreseen when the last one was done."""
    part: str = ""
    """What is counted: "sampled", "judged" or "trained" completions of the step under way, or the
    answers of the evaluation of this name; "" for nothing."""
    checkpoint: str = ""
    """Of the evaluation."""
    done: int = 0
    total: int = 0


def write_now(run: Path, now: Now) -> None:
    """Replace what the run in folder `run` is at. A file that a reader sees whole; nothing rests on
    it, so it need not reach the disk."""
    temporary = run / f".{NOW}{PART}"
    temporary.write_text(json.dumps(asdict(now)), encoding="utf-8")
    temporary.replace(run / NOW)


def read_now(run: Path) -> Now | None:
    """What a run that is executed is at; None of another. Raises DamagedFile."""
    file = run / NOW
    return read_typed(file, Now) if file.exists() and is_held(run) else None


Manifest = dict[str, Any]
PUT_ASIDE = "put_aside"
"""Key under `time`: what a run no longer goes on from, see `lab.run.recorder`."""
WENT_ON = "went_on"
"""Key under `time`: from which checkpoints of their own tools of stages went on."""
CHECKED = "checked"
"""Key of the findings before the run, see `lab.check.all_checks`; they are no fingerprints."""
IMPORTED = "imported"
"""Key of what is known of a run that another tool made, see `lab.run.trainer_import`."""
SEEN_ANSWERS = "has_seen_answers"
"""Key of `base_weights` where a model chose its answers by the items' own: a bound, no result."""
KINDS = {str: "text", dict: "table"}
TABLES = ("base_weights", "data", "stages", "evaluation", IMPORTED, CHECKED)


def write_manifest(run: RunDirectory, manifest: Manifest) -> None:
    """Write the manifest, whole or not at all."""
    write_json(run.manifest, manifest, run.path)


def read_manifest(run: RunDirectory) -> Manifest:
    """The manifest as it was written; empty for a run that did not get so far.

    Raises DamagedFile.
    """
    file = run.manifest
    if not file.exists():
        return {}
    manifest = read_json(file, dict)
    for path, kind, value in _used(manifest):
        if not isinstance(value, kind):
            problem = f"cannot be read: {path!r} is no {KINDS[kind]}"
            raise DamagedFile(problem, file=file, fix=FIX)
    return manifest


def _used(manifest: Manifest) -> Iterator[tuple[str, type, Any]]:
    """Parts of the manifest that lists of runs need, with their types; each is asked for once those
    before it are known to be of theirs."""
    for name in TABLES:
        yield name, dict, manifest.get(name, {})
    base = manifest.get("base_weights", {})
    for name in base.keys() & {"checkpoint", "source", "sha256"}:
        yield f"base_weights.{name}", str, base[name]
    for table in ("data", "stages", "evaluation"):
        for name, value in manifest.get(table, {}).items():
            yield f"{table}.{name}", dict, value
    for name, stage in manifest.get("stages", {}).items():
        yield f"stages.{name}.start", str, stage.get("start", "")
        yield f"stages.{name}.adapt", dict, stage.get("adapt", {})
        yield f"stages.{name}.from", dict, stage.get("from", {})


def overridden(manifest: Mapping[str, Any]) -> str:
    """The reason for overriding errors of the checks; "" if there were none."""
    return str(manifest.get(CHECKED, {}).get("despite", ""))


def saw_answers(manifest: Mapping[str, Any]) -> bool:
    """Whether the run's model chose its answers by the items' right ones."""
    return bool(manifest.get("base_weights", {}).get(SEEN_ANSWERS))


STATE = "state.json"
OPTIMIZER = "optimizer.pt"


def step_name(step: int) -> str:
    """Folder name of the checkpoint after `step` steps."""
    return f"step-{step:06d}"


def steps_in(folder: Path) -> list[int]:
    """Steps of the complete checkpoints in a stage's folder, ascending."""
    folders = folder.glob("step-*") if folder.is_dir() else ()
    return sorted(int(p.name.removeprefix("step-")) for p in folders if (p / STATE).is_file())


def check_checkpoint(checkpoint: Path, fix: str, *, optimizer: bool = False) -> None:
    """Raise DamagedFile, with `fix`, unless every file is as it was written, and for the step
    that the folder says.

    The optimizer's state counts where `optimizer` says so: it may have been removed, and only a
    stage that continues reads it. Checkpoints of older versions have no checksums to compare.
    """
    check_place(checkpoint, fix)
    for damage in find_damage(checkpoint, unless=() if optimizer else (OPTIMIZER,)):
        raise DamagedFile(damage.problem, file=damage.file, fix=fix)


def check_place(checkpoint: Path, fix: str) -> None:
    """Raise DamagedFile, with `fix`, where a folder holds another checkpoint than it says."""
    if damage := misplaced(checkpoint):
        raise DamagedFile(damage.problem, file=damage.file, fix=fix)


def misplaced(checkpoint: Path) -> Damage | None:
    """What a folder holds that is called after another checkpoint: its checksums name it, of one
    outside of a lab the state has the step."""
    recorded, state = recorded_checksums(checkpoint), checkpoint / STATE
    if isinstance(recorded, Damage):
        return recorded
    if not state.is_file() or (recorded and compare(state, recorded.get(STATE, ""))):
        return None  # `find_damage` says it
    try:
        step = read_json(state, dict).get("step")
    except DamagedFile as error:
        return Damage(state, error.problem)
    if type(step) is not int or step_name(step) == checkpoint.name:
        return None
    return Damage(checkpoint, f"holds the checkpoint of step {step}")


def continuable(checkpoint: Path) -> bool:
    """Whether a checkpoint still has its optimizer state."""
    return (checkpoint / OPTIMIZER).is_file()


def drop_optimizers(folder: Path, keep: int) -> None:
    """Remove the optimizer state of the checkpoints in a stage's folder but the `keep` newest: the
    others are no longer to be continued from."""
    steps = steps_in(folder)
    for step in steps[: len(steps) - keep]:
        (folder / step_name(step) / OPTIMIZER).unlink(missing_ok=True)
