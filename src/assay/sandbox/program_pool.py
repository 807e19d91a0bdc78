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
- One thread reads and writes the pipes of a worker; the host runs in others, which only leave what
  they have in a queue: nothing they do late can reach another program.
- A program's deadline counts its own time: while the lab has a question of its to answer, only the
  CPU time it takes meanwhile. A second limit counts all.
- Nothing that one program sent or was sent is in the memory of the next.

What `host` does in its threads is not limited here: `run` returns when the last one has ended, so
that no question goes on unseen.
"""

import contextlib
import dataclasses
import json
import os
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Self

from assay.sandbox.isolation import Mode, installed_paths, visible_paths
from assay.sandbox.limits import CallLimits, Limits, Outcome
from assay.sandbox.pipes import (
    CALL,
    FRAME,
    NONCE_BYTES,
    PROGRAM,
    VERDICT,
    Call,
    LineReader,
    encode_line,
    read_answer,
    read_call,
    signed,
    wait_ready,
    write_all,
)
from assay.sandbox.pool import DIED, GRACE_SECONDS, Worker

Host = Callable[[str, Mapping[str, Any], int], Mapping[str, Any]]
"""What answers a program's calls: (name, arguments, number) -> JSON reply, in a thread for each.
They are numbered from 0 in the order in which the program makes them."""

SILENT = Outcome(failure="deadline", why="the worker gave no answer and was killed")
FORGED = Outcome(failure="crash", why="the reply is not the supervisor's")


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a program ended."""

    outcome: Outcome
    own_seconds: float


@dataclass(frozen=True, slots=True)
class LabPipes:
    """The lab's ends of a worker's pipes, and a pipe that wakes who waits for them."""

    replies: LineReader
    requests: int
    """Does not block."""
    wake: int
    waker: int


class Conversation:
    """One program's calls, from its request to the end of the last answer."""

    def __init__(
        self,
        pipes: LabPipes,
        mark: bytes,
        host: Host,
        calls: CallLimits,
        threads: ThreadPoolExecutor,
    ):
        """`mark` stands before what the supervisor says; `threads` run the host."""
        self._pipes, self._mark, self._host = pipes, mark, host
        self._calls, self._threads = calls, threads
        self._answered: SimpleQueue[bytes | BaseException] = SimpleQueue()
        self._outgoing = bytearray()
        self.asked = self._open = 0
        self.error: BaseException | None = None
        """What the host raised first."""
        self._stopped = False
        self._fault: Outcome | None = None

    def begin(self, request: bytes) -> None:
        """Sends the request; a worker that is dead is heard as the end of its replies."""
        os.set_blocking(self._pipes.requests, True)
        with contextlib.suppress(BrokenPipeError):
            write_all(self._pipes.requests, request)
        os.set_blocking(self._pipes.requests, False)

    def listen(self, silence: float, longest: float) -> Verdict | None:
        """How the program ended; None where the worker died.

        `silence` is how many seconds the supervisor may say nothing while no call is open,
        `longest` how many in all. Does not return before the host has.
        """
        verdict = self._heard(silence, time.monotonic() + longest)
        while self._open:
            self._collect(self._answered.get())
        self._stop()
        return verdict

    def end(self) -> None:
        """Tells a worker that lives that the conversation is over."""
        os.set_blocking(self._pipes.requests, True)
        # A worker that is dead by now is found so by the next program.
        with contextlib.suppress(BrokenPipeError):
            write_all(self._pipes.requests, self._outgoing)

    def _heard(self, silence: float, at_most: float) -> Verdict | None:
        replies, requests, wake = self._pipes.replies, self._pipes.requests, self._pipes.wake
        heard = time.monotonic()
        while True:
            writable = [requests] if self._outgoing else []
            left = min(at_most, heard + silence) - time.monotonic()
            ready = wait_ready([replies.descriptor, wake], writable, min(left, 1.0))
            now = time.monotonic()
            heard = now if ready or self._open else heard
            if now >= min(at_most, heard + silence):
                return Verdict(SILENT, 0.0)
            if wake in ready:
                self._collect_all()
            if requests in ready and not self._send():
                return None
            if replies.descriptor in ready:
                if not replies.fill():
                    return None
                if verdict := self._hear():
                    return verdict

    def _hear(self) -> Verdict | None:
        while (line := self._pipes.replies.take_line()) is not None:
            if not line.startswith(self._mark):
                return Verdict(FORGED, 0.0)
            message = line[len(self._mark) :]
            if message[:1] != CALL:
                seconds, _, last = message.partition(b" ")
                return Verdict(self._fault or _outcome(last), float(seconds))
            self._take(message[1:])
        return None

    def _take(self, line: bytes) -> None:
        """Has the host answer a call, or ends a program whose line is none."""
        if self._stopped:
            return
        try:
            call = read_call(line, self.asked)
        except ValueError as bad:
            self._fault = Outcome(failure="protocol", why=str(bad))
            self._stop()
            return
        self.asked += 1
        self._open += 1
        self._threads.submit(self._ask, call)

    def _ask(self, call: Call) -> None:
        """In a thread of its own."""
        try:
            self._answered.put(self._reply(call))
        except BaseException as error:  # also what ends a thread, which would wait for ever else
            self._answered.put(error)
        os.write(self._pipes.waker, b".")

    def _reply(self, call: Call) -> bytes:
        reply = dict(self._host(call.name, call.arguments, call.number))
        line = encode_line({"id": call.number, "reply": reply}, finite=True)
        if len(line) <= self._calls.reply_bytes:
            return line
        why = f"the answer is over {self._calls.reply_bytes} bytes"
        return encode_line({"id": call.number, "refused": why})

    def _collect_all(self) -> None:
        os.read(self._pipes.wake, 1 << 16)
        while not self._answered.empty():
            self._collect(self._answered.get())

    def _collect(self, answer: bytes | BaseException) -> None:
        self._open -= 1
        if isinstance(answer, BaseException):
            self.error = self.error or answer
            self._stop()
        elif not self._stopped:
            self._outgoing += FRAME.pack(len(answer)) + answer

    def _stop(self) -> None:
        if not self._stopped:
            self._outgoing += FRAME.pack(0)
            self._stopped = True

    def _send(self) -> bool:
        """Writes what the pipe takes; whether there is a worker to read it."""
        try:
            done = os.write(self._pipes.requests, self._outgoing)
        except BrokenPipeError:
            return False
        del self._outgoing[:done]
        return True


def _outcome(last: bytes) -> Outcome:
    """What the last line says: the supervisor's word, or the program's about itself."""
    if last[:1] == VERDICT:
        return Outcome(**json.loads(last[1:]))
    try:
        return read_answer(last[1:])
    except ValueError as bad:
        return Outcome(failure="protocol", why=str(bad))


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
