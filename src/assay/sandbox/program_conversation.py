"""The lab's half of a program's conversation: hears its calls, has the host answer, tells it.

One thread reads and writes the pipes of the worker; the host runs in others, which only leave what
they have in a queue, so that nothing they do late can reach another program. Every line is checked
by `checked_json` before anything is made of it.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from assay.sandbox.checked_json import BadMessage, Call, read_answer, read_call
from assay.sandbox.limits import CallLimits, Outcome
from assay.sandbox.pipes import (
    CALL,
    FRAME,
    VERDICT,
    LineReader,
    encode_line,
    wait_ready,
    write_all,
)

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
        except BadMessage as bad:
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
    except BadMessage as bad:
        return Outcome(failure="protocol", why=str(bad))
