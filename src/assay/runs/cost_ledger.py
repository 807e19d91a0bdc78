"""The cost ledger of a run: every call of a helper model, and answers that need not be paid twice.

A SQLite file in the run's folder. A call is written before it is sent, with the most that it can
cost, and again when it has ended, so that after a kill nothing that may have been charged is
missing. Each checkpoint stores how many calls it held and what they cost, and so does a small file
beside it after every call, so that a ledger that lost some, with SQLite's write-ahead log alone, is
noticed. Money is in nano-units of the price's currency. What may be spent is not decided here.
"""

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, fields
from operator import attrgetter
from pathlib import Path
from typing import Literal

from assay.errors import InputError, RunFailure
from assay.rollout.engines.endpoint.openai_text import EndpointAnswer
from assay.runs.run_directory import RunDirectory
from assay.runs.run_files import read_typed

LEDGER = "costs.sqlite"
STATE = "costs.json"
"""What the ledger held when a checkpoint was made, in its folder; in the run's, when its work
ended."""
MARK, MARK_BYTES = f"{LEDGER}-mark", 120
"""What the ledger held after its last call, and the size of the file."""
WAIT_SECONDS = 60.0
"""For another process that reads or writes."""

Status = Literal["sent", "answered", "failed", "remembered"]
"""On its way, or left there by a kill; answered; without an answer; known from before."""


class LedgerUnusable(RunFailure):
    """The ledger cannot be read or written; nothing is asked that it could not record."""


@dataclass(frozen=True, slots=True)
class LedgerCall:
    """One call of a helper model: a row of the ledger."""

    at: str
    """When it began, in UTC: `2026-11-24T02:13:44.123Z`."""
    model: str
    """The name of the model's table."""
    source: str
    """The table's source, such as `openai:gpt-4o-mini`."""
    kind: Literal["answer", "score", "read"] = "answer"
    """Scores, and words that a teacher tells, are of a model in this process; a row is then one
    batch of them. A step that is repeated reads again, and no journal has what was read."""
    stage: str = ""
    """A stage or an evaluation."""
    step: int = 0
    """Of the stage, from 1; 0 in evaluations and where it is not known."""
    problem: str = ""
    completion: str = ""
    operator: str = ""
    status: Status = "sent"
    attempts: int = 0
    """Of scores and readings, how many there are in the batch."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    """None where they were not counted."""
    prompt_price: int | None = None
    completion_price: int | None = None
    """Nano-units per million tokens; None where no price is known."""
    cost: int | None = None
    """Nano-units of the counted tokens; None where price or tokens are not known."""
    uncertain: int = 0
    """Nano-units that may have been charged besides, at most: for attempts that were lost, an
    answer whose tokens were not counted, or a call that a kill left on its way."""
    seconds: float = 0.0
    """From its first attempt to its end, pauses included."""
    why: str = ""
    """Why it has no answer."""
    opening: int = 0
    """How often the ledger was opened for calls before this one's process did: a step that a kill
    ended and a resumed run repeats has calls of several. The ledger sets it."""

    @property
    def priced(self) -> bool:
        """Whether it is known what its tokens cost; a remembered answer always costs 0."""
        return self.prompt_price is not None or self.status == "remembered"

    @property
    def most(self) -> int:
        """Nano-units that it cost at most; budgets count these."""
        return (self.cost or 0) + self.uncertain


@dataclass(frozen=True, slots=True)
class LedgerState:
    """What a ledger holds. Calls only come; one that has ended changes no more."""

    calls: int
    ended: int
    """Calls that are not on their way."""
    most: int
    """Nano-units that the ended ones cost at most."""


NOTHING = LedgerState(0, 0, 0)


@dataclass(frozen=True, slots=True)
class LedgerPlace:
    """Where a call stands, for `CostLedger.update`."""

    file: Path | None
    number: int


COLUMNS = tuple(each.name for each in fields(LedgerCall))
_values: Callable[[LedgerCall], tuple[object, ...]] = attrgetter(*COLUMNS)
_answer_values: Callable[[EndpointAnswer], tuple[object, ...]] = attrgetter(
    *(each.name for each in fields(EndpointAnswer))
)
SCHEMA = f"""
CREATE TABLE IF NOT EXISTS calls (id INTEGER PRIMARY KEY, {", ".join(COLUMNS)});
CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, text TEXT NOT NULL, ended TEXT NOT NULL,
 prompt_tokens INTEGER, completion_tokens INTEGER) WITHOUT ROWID;
"""
INSERT = f"INSERT INTO calls ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"
SELECT = f"SELECT {', '.join(COLUMNS)} FROM calls ORDER BY id"
ANSWER = "SELECT text, ended, prompt_tokens, completion_tokens FROM answers WHERE key = ?"
REMEMBER = "INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?, ?)"
UPDATE = f"UPDATE calls SET {', '.join(f'{name} = ?' for name in COLUMNS)} WHERE id = ?"


class CostLedger:
    """The ledger that calls are written to; safe to use from several threads. It begins in memory,
    until a run's folder is there to hold it."""

    def __init__(self) -> None:
        """An empty ledger in memory."""
        self._lock = threading.RLock()
        self._store = _opened(":memory:")
        self._together = False
        self._opening = 0
        self._held = NOTHING
        self.file: Path | None = None

    def move_to(self, folder: Path) -> None:
        """Go on in the ledger of a run's folder, to which what is in memory is added."""
        file = folder / LEDGER
        if self.file == file:
            return
        with self._lock, _usable(file):
            calls = _calls(self._store) if self.file is None else []
            store = _opened(str(file))
            (last,) = store.execute("SELECT MAX(opening) FROM calls").fetchone()
            self._opening = 0 if last is None else last + 1
            with store:
                store.executemany(INSERT, map(self._row, calls))
            self._store.close()
            self._store, self.file = store, file
            # What was lost stays known: the mark goes on from the higher count.
            self._held = max(_state(store), _read_state(folder / MARK), key=attrgetter("calls"))
            self._mark()

    def close(self) -> None:
        """Close the run's file; what is written from now on stays in memory."""
        with self._lock, _usable(self.file):
            self._store.close()
            self._store, self.file, self._opening = _opened(":memory:"), None, 0
            self._held = NOTHING

    @contextmanager
    def together(self) -> Iterator[None]:
        """Commit all that this thread writes inside at the end or, where it raises, none of it."""
        with self._lock, _usable(self.file):
            if self._together:
                yield
                return
            self._together, before = True, self._held
            try:
                with self._store:
                    yield
                self._mark()
            except BaseException:
                self._held = before
                raise
            finally:
                self._together = False

    def _mark(self) -> None:
        """Keep what is held beside the file: one write, which no kill cuts, over the last one."""
        if self.file is not None:
            mark = os.open(self.file.with_name(MARK), os.O_WRONLY | os.O_CREAT, 0o666)
            try:
                os.write(mark, state_text(self._held).encode().ljust(MARK_BYTES))
            finally:
                os.close(mark)

    def _count(self, call: LedgerCall, new: int) -> None:
        held, ended = self._held, call.status != "sent"
        most = held.most + (call.most if ended else 0)
        self._held = LedgerState(held.calls + new, held.ended + ended, most)

    def write(
        self,
        call: LedgerCall,
        place: LedgerPlace | None = None,
        key: str = "",
        answer: EndpointAnswer | None = None,
    ) -> LedgerPlace:
        """Write a call and the answer to remember with it; returns where the call stands. `place`
        is where it stands; None where it is not written yet.

        A call that outlived its run stays there as one on its way. Of two answers to the same, the
        first stays.
        """
        with self.together():
            if answer is not None:
                self._store.execute(REMEMBER, (key, *_answer_values(answer)))
            if place is None:
                number = self._store.execute(INSERT, self._row(call)).lastrowid
                assert number is not None
                self._count(call, 1)
                return LedgerPlace(self.file, number)
            if place.file == self.file:
                self._store.execute(UPDATE, (*self._row(call), place.number))
                self._count(call, 0)
            return place

    def add(self, calls: Sequence[LedgerCall]) -> None:
        """Write calls that have ended."""
        with self.together():
            self._store.executemany(INSERT, map(self._row, calls))
            for call in calls:
                self._count(call, 1)

    def _row(self, call: LedgerCall) -> tuple[object, ...]:
        *values, _ = _values(call)  # the opening is the last column
        return *values, self._opening

    def calls(self) -> list[LedgerCall]:
        """All calls, oldest first."""
        with self._lock, _usable(self.file):
            return _calls(self._store)

    @property
    def opening(self) -> int:
        """See `LedgerCall.opening`, of the calls that are written now."""
        return self._opening

    def state(self) -> LedgerState:
        """What it holds, once that is on the disk."""
        with self._lock, _usable(self.file):
            self._store.execute("PRAGMA wal_checkpoint(FULL)")
            return _state(self._store)

    def known(self, key: str) -> EndpointAnswer | None:
        """The answer to what `key` names; None if there is none."""
        with self._lock, _usable(self.file):
            row = self._store.execute(ANSWER, (key,)).fetchone()
        return None if row is None else EndpointAnswer(*row)


def take_ledger(old: RunDirectory, new: RunDirectory) -> bool:
    """Move the ledger of a run that never began to the one that takes its place; False where that
    has one already."""
    if (old.path / LEDGER).exists() and (new.path / LEDGER).exists():
        return False
    for file in old.path.glob(f"{LEDGER}*"):
        file.rename(new.path / file.name)
    return True


def read_calls(folder: Path) -> list[LedgerCall]:
    """The calls of the run in a folder, oldest first; none where it has no ledger. Raises
    LedgerUnusable."""
    file = folder / LEDGER
    if not file.exists():
        return []
    with _usable(file), closing(_opened(str(file), changes=False)) as store:
        return _calls(store)


def state_text(state: LedgerState) -> str:
    """The content of a `costs.json`."""
    return json.dumps(asdict(state)) + "\n"


def check_costs(run: RunDirectory, folder: Path) -> None:
    """Raise InputError unless the ledger holds what it did when a checkpoint was made."""
    if problem := lost_costs(run.path, folder):
        fix = (
            "restore it, or go on with budgets and sums that lack those calls: "
            f"assay resume {run} --despite REASON"
        )
        raise InputError(problem, file=run.path / LEDGER, fix=fix)


def lost_costs(place: Path, folder: Path) -> str:
    """What the ledger in a folder lacks of what it held after its last call, or when one inside, or
    itself, was written; "" for nothing, and where no ledger was kept then. Raises DamagedFile."""
    name = folder.relative_to(place).as_posix()
    when = f"when {name.removeprefix('checkpoints/')} was made" if folder != place else "at last"
    states = ((place / MARK, "after its last call"), (folder / STATE, when))
    lost = next(filter(None, (_lack(place / LEDGER, *each) for each in states)), "")
    return lost or _unreadable(place / LEDGER)


def _held_by(ledger: Path) -> LedgerState | str:
    """What a ledger holds, or why it cannot be read."""
    try:
        with closing(_opened(str(ledger), changes=False)) as store:
            return _state(store)
    except sqlite3.Error as error:
        return f"cannot be read ({error})"


def _unreadable(ledger: Path) -> str:
    """Why a ledger cannot be read; "" where it can, or where nothing was written yet."""
    if not ledger.exists() or (ledger.is_file() and not ledger.stat().st_size):
        return ""
    holders = _held_by(ledger)
    return holders if isinstance(holders, str) else ""


def _lack(ledger: Path, file: Path, when: str) -> str:
    """What a ledger lacks of the state in a file."""
    before = _read_state(file)
    if before == NOTHING:
        return ""
    if not ledger.exists():
        return f"is missing; it held {before.calls} calls {when}"
    now = _held_by(ledger)
    if isinstance(now, str):
        return f"{now}; it held {before.calls} calls {when}"
    if now.calls < before.calls or now.ended < before.ended:
        counts = f"{now.calls} calls, {now.ended} of them ended"
        lost = (
            f", {before.most - now.most} nano-units at most more" if before.most > now.most else ""
        )
        return f"holds {counts}; {before.calls} and {before.ended} {when}{lost}"
    if now.most < before.most:
        return f"its calls cost {now.most} nano-units at most; {before.most} {when}"
    return ""


def _read_state(file: Path) -> LedgerState:
    """A kept state; NOTHING where there is no file. Raises DamagedFile."""
    if not file.exists():
        return NOTHING
    return read_typed(file, LedgerState)


def put_aside_unreadable(folder: Path) -> None:
    """Let a ledger that cannot be read lie under another name, so that a new one may begin."""
    if _unreadable(folder / LEDGER):
        for suffix in ("", "-wal", "-shm"):
            file = folder / f"{LEDGER}{suffix}"
            if file.exists():
                file.rename(file.with_name(f"{file.name}-unreadable"))


def lost_calls(run: RunDirectory) -> str:
    """What the ledger of a run lacks of what it held after its last call, when its work ended or a
    checkpoint was made, the latest first; "" for nothing. Raises DamagedFile."""
    folders = [run.path, *sorted(run.path.glob("checkpoints/*/step-*"), reverse=True)]
    return next(filter(None, (lost_costs(run.path, folder) for folder in folders)), "")


def _state(store: sqlite3.Connection) -> LedgerState:
    ended = "status != 'sent'"
    sums = f"SUM({ended}), SUM(CASE WHEN {ended} THEN IFNULL(cost, 0) + uncertain ELSE 0 END)"
    calls, done, most = store.execute(f"SELECT COUNT(*), {sums} FROM calls").fetchone()
    return LedgerState(calls, done or 0, most or 0)


def _calls(store: sqlite3.Connection) -> list[LedgerCall]:
    return [LedgerCall(*row) for row in store.execute(SELECT)]


def _opened(file: str, changes: bool = True) -> sqlite3.Connection:
    if not changes:
        uri = f"{Path(file).resolve().as_uri()}?mode=ro"
        return sqlite3.connect(uri, uri=True, timeout=WAIT_SECONDS)
    store = sqlite3.connect(file, timeout=WAIT_SECONDS, check_same_thread=False)
    # A kill of the process loses nothing; one of the machine the calls since the last checkpoint.
    store.execute("PRAGMA journal_mode = WAL")
    store.execute("PRAGMA synchronous = NORMAL")
    store.executescript(SCHEMA)
    return store


@contextmanager
def _usable(file: Path | None) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        place = "the ledger in memory" if file is None else str(file)
        raise LedgerUnusable(f"{place}: the cost ledger cannot be used: {error}") from error
