"""Runs whole programs that may ask the lab while they run.

    with ProgramPool("package.module:function", size=2) as pool:
        run = pool.run({"problem": "..."}, host, deadline=30.0)

The function is called in the program's own process as `function(ask, **arguments)`, and
`await ask(name, arguments)` there is answered by `host(name, arguments, number)` here. All that
`pool` says of a call holds for a program, and besides:

- Of the disk a program sees the standard library, `assay`, its function's package and `folders`: no
  package that the user installed, for a benchmark has its answers there.
- The lab believes nothing it says: lengths and numbers are limited by the supervisor, and every
  line is checked here before anything is made of it. Abuse is the failure "protocol" or "calls" of
  this program; it cannot answer for another, nor say for the supervisor how it ended.
- A program's deadline counts its own time: while the lab has a question of its to answer, only the
  CPU time it takes meanwhile. A second limit counts all.
- Nothing that one program sent or was sent is in the memory of the next.

What `host` does in its threads is not limited here: `run` returns when the last one has ended, so
that no question goes on unseen.
"""

import dataclasses
import os
import queue
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self

from assay.sandbox.isolation import Mode, installed_paths, visible_paths
from assay.sandbox.limits import CallLimits, Limits, Outcome
from assay.sandbox.pipes import NONCE_BYTES, PROGRAM, encode_line, signed
from assay.sandbox.pool import DIED, GRACE_SECONDS, Worker
from assay.sandbox.program_conversation import FORGED, SILENT, Conversation, Host, LabPipes, Verdict


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """What became of one program."""

    outcome: Outcome
    seconds: float
    """Wall time, the answers of the lab included."""
    own_seconds: float
    """Of these the program's own, as its deadline counts them."""


@dataclass(frozen=True, slots=True)
class Request:
    """One program to run."""

    arguments: Mapping[str, Any]
    host: Host
    deadline: float
    longest: float


class ProgramWorker(Worker):
    """A worker whose calls may ask the lab; one program at a time."""

    def __init__(
        self,
        function: str,
        limits: Limits | None,
        isolation: Mode,
        folders: Sequence[str],
        calls: CallLimits,
        threads: ThreadPoolExecutor,
    ):
        """`threads` answer what programs ask. Raises RunFailure."""
        super().__init__(function, limits, isolation, folders)
        self.calls, self._threads = calls, threads
        self._wake, self._waker = os.pipe()

    def run(self, request: Request) -> ProgramRun:
        """As `ProgramPool.run`."""
        body = encode_line(dict(request.arguments), finite=True)
        line = PROGRAM.pack(request.deadline, request.longest, len(body)) + body
        start = time.monotonic()
        # One that dies before it asked was killed from outside, or died as it started.
        verdict = self._converse(request, line) or self._converse(request, line)
        verdict = verdict or Verdict(DIED, 0.0)
        return ProgramRun(verdict.outcome, time.monotonic() - start, verdict.own_seconds)

    def forget(self) -> None:
        """Closes what is left once no thread of the host runs any more."""
        self.close()
        os.close(self._wake)
        os.close(self._waker)

    def _converse(self, request: Request, line: bytes) -> Verdict | None:
        """How the program ended; None where its worker died before it asked anything. Raises what
        the host raises."""
        if not self._alive():
            return None
        assert self._process and self._process.stdin
        nonce, requests = os.urandom(NONCE_BYTES), self._process.stdin.fileno()
        pipes = LabPipes(self._replies, requests, self._wake, self._waker)
        conversation = Conversation(
            pipes, signed(nonce, b""), request.host, self.calls, self._threads
        )
        try:
            conversation.begin(nonce + line)
            verdict = conversation.listen(
                request.deadline + GRACE_SECONDS, request.longest + GRACE_SECONDS
            )
        except BaseException:
            # After an interruption what is open would be taken for the next program's.
            self.kill()
            raise
        if verdict is None or verdict.outcome in (SILENT, FORGED):
            self.kill()
        else:
            conversation.end()
        if conversation.error is not None:
            raise conversation.error
        if verdict is None and conversation.asked:
            return Verdict(DIED, 0.0)
        return verdict

    def _setup(self, private: bool) -> dict[str, Any]:
        packages = ["assay", self.function.split(":")[0].split(".")[0]]
        hidden, shown = installed_paths(packages) if private else ([], [])
        return {
            **super()._setup(private),
            "calls": dataclasses.asdict(self.calls),
            "visible": visible_paths(self.folders, packages) if private else [],
            "hidden": hidden,
            "shown": shown,
        }


class ProgramPool:
    """Up to `size` programs of one function at once; each worker starts when it is needed.

    Any thread may run a program.
    """

    def __init__(
        self,
        function: str,
        size: int,
        limits: Limits | None = None,
        isolation: Mode = "namespaces",
        folders: Sequence[str] = (),
        *,
        calls: CallLimits = CallLimits(),  # noqa: B008 - frozen
    ):
        """`function` and `folders` as `pool.Worker` has them; `limits` and `calls` are those of
        each program. Raises RunFailure."""
        self._threads = ThreadPoolExecutor(size * calls.together, "assay-host")
        self._workers = [
            ProgramWorker(function, limits, isolation, folders, calls, self._threads)
            for _ in range(size)
        ]
        # Last in, first out: few programs keep few workers busy, and the others never start.
        self._idle: queue.LifoQueue[ProgramWorker | None] = queue.LifoQueue()
        for worker in self._workers:
            self._idle.put(worker)
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(
        self,
        arguments: Mapping[str, Any],
        host: Host,
        deadline: float,
        longest: float = 600.0,
    ) -> ProgramRun:
        """Runs one program; waits for a worker that is idle.

        `deadline` is in seconds of the program's own time, `longest` in seconds altogether. Raises
        what `host` raised first, which ends the program at once; RunFailure when a worker
        cannot start; TypeError or ValueError when the arguments are not JSON; RuntimeError once the
        pool is closed.
        """
        worker = self._idle.get()
        try:
            if worker is None:
                raise RuntimeError("the pool of programs is closed")
            return worker.run(Request(arguments, host, deadline, longest))
        finally:
            self._idle.put(worker)

    def close(self) -> None:
        """Waits for running programs, then ends the workers."""
        if self._closed:
            return
        self._closed = True
        for _ in self._workers:
            self._idle.get()
        self._threads.shutdown(wait=True)
        for worker in self._workers:
            worker.forget()
        self._idle.put(None)
