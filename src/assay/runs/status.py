"""The status of a run: its status file, and the lock that tells a live run from a killed one.

A running process holds the lock, and the system releases it when the process dies. A run whose file
has the status `running` while nobody holds the lock was interrupted. Child processes started by
exec do not inherit the lock. `sinks.json` beside it holds what the run has sent to its sinks, so
that a resumed run continues the same remote run without sending a step twice; `now.json` holds what
a live run is at.
"""

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from assay.data.files import PART, holds_another, lock, locked
from assay.errors import InputError
from assay.runs.run_files import FIX, DamagedFile, as_entry, read_json, read_typed, write_json

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
