"""Runs whole programs that call back to the host, in workers of their own.

    with ProgramPool("package.module:function", 8) as pool:
        run = pool.run({"program": source}, host, deadline=30.0)

The function is called as `function(ask, **arguments)`; `await ask(name, arguments)` is answered by
`host(name, arguments, number)` in this process, where `number` counts the program's calls.

What is covered, beside all that `pool` covers
- Every line that a program sends is checked here: its length and form, its number, how many calls
  there are and how many are open. One that breaks a rule ends the program ("calls", "protocol").
- The verdict comes from the worker's supervisor over another pipe, which no program holds; the
  channel of a program is made for it and ends with it, so that none hears of another.
- A program's clock stands still while it waits for the host with nothing else to do; `longest`
  bounds the whole.
- What the host raises ends the program at once and is raised by `run`.

What is not covered: a program that keeps a call open may compute meanwhile without its clock
running; CPU time is limited all the same.
"""

import json
import queue
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from assay.sandbox.isolation import Mode
from assay.sandbox.limits import FailureKind, Limits, Outcome
from assay.sandbox.pipes import encode_line
from assay.sandbox.pool import Worker

Host = Callable[[str, Mapping[str, Any], int], Mapping[str, Any]]
"""Answers a call by its name, arguments and number, in a thread of its own."""

LONGEST = 600.0
"""Seconds of a whole program, its waiting included."""
LOOK_SECONDS = 0.05
DEEPEST = 32
LONGEST_NAME = 100


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Limits of a program's calls to the host."""

    calls: int = 32
    together: int = 16
    """Calls that are open at once."""
    request_bytes: int = 1 << 18
    """Length of one call as a line of JSON."""
    reply_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """What came of one program."""

    outcome: Outcome
    seconds: float
    own_seconds: float
    """Without those in which it waited for the host."""


class BrokenRule(Exception):
    """A line that a program may not send."""

    def __init__(self, kind: FailureKind, why: str):
        super().__init__(why)
        self.kind: FailureKind = kind
        self.why = why


class ProgramPool:
    """`size` programs at once; safe to use from several threads. Workers start when needed."""

    def __init__(
        self,
        function: str,
        size: int,
        limits: Limits | None = None,
        isolation: Mode = "namespaces",
        folders: Sequence[str] = (),
        *,
        calls: CallLimits | None = None,
    ):
        """As `pool.Worker` has them. Raises IsolationUnavailable."""
        self._calls = calls or CallLimits()
        self._workers = [
            Worker(function, limits, isolation, folders, channels=True) for _ in range(size)
        ]
        self._idle: queue.LifoQueue[Worker] = queue.LifoQueue()
        for worker in self._workers:
            self._idle.put(worker)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, arguments: Mapping[str, Any], host: Host, deadline: float) -> ProgramRun:
        """Run one program, with `deadline` seconds of its own.

        Raises what `host` raises, WorkerStartError, and TypeError for arguments that are no JSON.
        """
        worker = self._idle.get()
        try:
            return _Running(worker, host, self._calls, deadline).run(arguments)
        finally:
            self._idle.put(worker)

    def close(self) -> None:
        """End the workers that run nothing."""
        for worker in self._workers:
            worker.close()


@dataclass
class _Running:
    """One program under way: a thread waits for the verdict, this one for calls."""

    worker: Worker
    host: Host
    limits: CallLimits
    deadline: float
    ended: Outcome | BaseException | None = None
    """The verdict of the supervisor."""
    stopped: Outcome | BaseException | None = None
    """Why the lab ended the program: a broken rule, its time, or what the host raised."""
    asked: int = 0
    open: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    sending: threading.Lock = field(default_factory=threading.Lock)
    own: float = 0.0

    def run(self, arguments: Mapping[str, Any]) -> ProgramRun:
        """See `ProgramPool.run`."""
        self.channel, theirs = socket.socketpair()
        began = time.monotonic()
        with self.channel, theirs:
            waiting = threading.Thread(target=self._wait, args=(arguments, theirs), daemon=True)
            waiting.start()
            self._serve(waiting)
            waiting.join()
        if self.stopped is not None and not _was_stopped(self.ended):
            self.worker.close()  # it would take the order to stop for the next request
        found = self.stopped or self.ended
        if isinstance(found, BaseException):
            raise found
        assert found is not None
        return ProgramRun(found, time.monotonic() - began, self.own)

    def _wait(self, arguments: Mapping[str, Any], theirs: socket.socket) -> None:
        try:
            self.ended = self.worker.call_once(arguments, LONGEST, theirs)
        except BaseException as error:
            self.ended = error

    def _serve(self, waiting: threading.Thread) -> None:
        """Read calls until the verdict is there; watch the clock."""
        received, live = bytearray(), True
        self.channel.setblocking(False)
        with selectors.DefaultSelector() as selector:
            selector.register(self.channel, selectors.EVENT_READ)
            last = time.monotonic()
            while waiting.is_alive():
                computes = not self.open
                ready = selector.select(LOOK_SECONDS) if live else waiting.join(LOOK_SECONDS)
                now = time.monotonic()
                if computes:
                    self.own += now - last
                last = now
                if ready and live:
                    live = self._read(received, selector)
                if self.own > self.deadline and self.stopped is None:
                    self._stop(Outcome(failure="deadline", why=f"over {self.deadline:g} seconds"))

    def _read(self, received: bytearray, selector: selectors.BaseSelector) -> bool:
        """Take what has come; False at the end of the channel, and once the program is stopped."""
        try:
            chunk = self.channel.recv(1 << 16)
        except (BlockingIOError, InterruptedError):
            return True
        except ConnectionResetError:
            chunk = b""
        received += chunk
        try:
            self._take(received)
        except BrokenRule as broken:
            self._stop(Outcome(failure=broken.kind, why=broken.why))
        if chunk and self.stopped is None:
            return True
        selector.unregister(self.channel)
        return False

    def _take(self, received: bytearray) -> None:
        """Answer the whole lines. Raises BrokenRule."""
        while b"\n" in received:
            line, _, rest = bytes(received).partition(b"\n")
            received[:] = rest
            self._call(line)
        if len(received) > self.limits.request_bytes:
            raise BrokenRule("calls", f"a call over {self.limits.request_bytes} bytes")

    def _call(self, line: bytes) -> None:
        if len(line) > self.limits.request_bytes:
            raise BrokenRule("calls", f"a call over {self.limits.request_bytes} bytes")
        name, arguments = checked_call(line, self.asked)
        number = self.asked
        self.asked += 1
        if self.asked > self.limits.calls:
            raise BrokenRule("calls", f"more than {self.limits.calls} calls")
        with self.lock:
            self.open += 1
            if self.open > self.limits.together:
                raise BrokenRule("calls", f"more than {self.limits.together} calls at once")
        given = number, name, arguments
        threading.Thread(target=self._answer, args=given, name="assay-host", daemon=True).start()

    def _answer(self, number: int, name: str, arguments: Mapping[str, Any]) -> None:
        """Ask the host, and tell the program."""
        try:
            line = self._line(number, self.host(name, arguments, number))
            self._send(line)
        except BaseException as error:
            self._stop(error)
        finally:
            with self.lock:
                self.open -= 1

    def _line(self, number: int, reply: Mapping[str, Any]) -> bytes:
        line = encode_line({"id": number, "reply": reply})
        if len(line) <= self.limits.reply_bytes:
            return line
        return encode_line({"id": number, "refused": f"a reply of {len(line)} bytes"})

    def _send(self, line: bytes) -> None:
        """Write a reply; a program that is gone, or reads nothing until it ends, gets none."""
        left = memoryview(line)
        with self.sending:
            while left and self.ended is None and self.stopped is None:
                try:
                    left = left[self.channel.send(left) :]
                except BlockingIOError:
                    time.sleep(0.001)
                except OSError:
                    return

    def _stop(self, why: Outcome | BaseException) -> None:
        """End the program; the first reason counts."""
        with self.lock:
            if self.stopped is not None or self.ended is not None:
                return
            self.stopped = why
        self.worker.stop()


def _was_stopped(ended: Outcome | BaseException | None) -> bool:
    return isinstance(ended, Outcome) and ended.failure == "stopped"


def checked_call(line: bytes, number: int) -> tuple[str, dict[str, Any]]:
    """Name and arguments of a call, which must be the program's `number`th. Raises BrokenRule."""
    try:
        message = json.loads(line, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BrokenRule("protocol", f"a call that is no JSON: {type(error).__name__}") from None
    if not isinstance(message, dict) or message.keys() != {"id", "name", "arguments"}:
        raise BrokenRule("protocol", "a call in another form")
    if type(message["id"]) is not int or message["id"] != number:
        raise BrokenRule("protocol", f"a call that is not number {number}")
    name, arguments = message["name"], message["arguments"]
    if not isinstance(name, str) or len(name) > LONGEST_NAME or not isinstance(arguments, dict):
        raise BrokenRule("protocol", "a call whose name or arguments are none")
    if not is_shallow(arguments):
        raise BrokenRule("protocol", f"arguments nested more than {DEEPEST} deep")
    return name, arguments


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def is_shallow(value: Any) -> bool:
    """Whether a JSON value is at most DEEPEST levels deep; without recursion."""
    level = [value]
    for _ in range(DEEPEST):
        level = [
            child
            for each in level
            if isinstance(each, dict | list)
            for child in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return True
    return False
