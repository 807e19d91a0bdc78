"""The worker process: imports one function, then runs every call in a fork of itself.

A fork per call means that a call starts in milliseconds with everything imported, leaves nothing
behind in memory for the next one, and can be killed whole: the supervisor is a subreaper, so every
process that a call started is its descendant, even one that changed its session or lost its parent.
It never runs the function itself, and it ends, with everything below it, when its standard input
ends, which also happens when the lab is killed with SIGKILL. A call cannot speak for it: it is not
dumpable, so that neither its memory nor its descriptors can be opened through /proc, and what it
replies carries the request's nonce, which is cleared in the call's copy of its memory.

Where calls may ask the lab while they run, `relay` carries what they say, and what went through the
supervisor's memory is overwritten, so that the next call does not find it in its copy.

`pool.Worker` starts it; nothing else imports it.
"""

import gc
import importlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from assay.sandbox.call_process import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    Privacy,
    process_control,
    run_asking_call,
    run_call,
)
from assay.sandbox.call_watch import (
    WATCH_SECONDS,
    end_all,
    end_descendants,
    ended,
    ended_without_answer,
    failure,
    held,
    over_limits,
)
from assay.sandbox.isolation import enter_private_root
from assay.sandbox.limits import CallLimits, Limits, system_call_filter
from assay.sandbox.pipes import (
    ANSWER,
    PROGRAM,
    LineReader,
    encode_line,
    read_exactly,
    read_nonce,
    signed,
    wait_readable,
    wipe,
    write_all,
)
from assay.sandbox.relay import LabEnd, LabGone, Relay, room

REQUEST_SECONDS = 60.0
"""For the rest of a request once its first bytes are read; after that the lab counts as gone."""


class Supervisor:
    """Serves calls of one function until the lab goes away."""

    def __init__(
        self,
        requests: int,
        replies: int,
        lab: int,
        scratch: str,
        limits: Limits,
        privacy: Privacy | None,
        calls: CallLimits | None,
    ):
        """`lab` is the process id of the lab where it can be seen, otherwise 0; `privacy` is None
        without namespaces; `calls` is None where calls ask nothing."""
        self.requests, self.replies, self.lab = LineReader(requests), replies, lab
        self.scratch, self.limits, self.privacy = scratch, limits, privacy
        self.calls = calls

    def serve(self, function: Callable[..., Any]) -> NoReturn:
        """Answers one request after another; never returns."""
        self.own = held(os.getpid())
        # Of a fixed size: what grows leaves copies behind.
        self.room = room(self.limits, self.calls) if self.calls else bytearray()
        gc.freeze()  # otherwise a collection in every fork copies the pages of all imports
        write_all(self.replies, encode_line({"ready": True}))
        while True:
            if not wait_readable([self.requests.descriptor], 1.0):
                if self._lab_is_gone():
                    self._leave()
                continue
            nonce = read_nonce(self.requests.descriptor)
            if not nonce:
                self._leave()
            if self.calls:
                self._converse(function, self.calls, nonce)
            else:
                self._reply(function, nonce)

    def _reply(self, function: Callable[..., Any], nonce: bytearray) -> None:
        """Runs a call that asks nothing, and replies."""
        line = self.requests.read_line(time.monotonic() + REQUEST_SECONDS)
        if not line:
            self._leave()
        request = json.loads(line)
        reply = self._call(function, request["arguments"], request["deadline"], nonce)
        write_all(self.replies, signed(nonce, reply))

    def _converse(self, function: Callable[..., Any], calls: CallLimits, nonce: bytearray) -> None:
        """Runs a call that may ask the lab, and carries what both say until the lab ends it."""
        head = read_exactly(self.requests.descriptor, PROGRAM.size)
        deadline, longest, length = PROGRAM.unpack(head or bytes(PROGRAM.size))
        arguments = read_exactly(self.requests.descriptor, length)
        if not head or not arguments:
            self._leave()
        folder = "" if self.privacy else tempfile.mkdtemp(dir=self.scratch)
        (hear, answer), (replies, tell) = os.pipe(), os.pipe()
        process = os.fork()
        if process == 0:
            wipe(nonce)
            ends = (answer, replies)
            run_asking_call(function, arguments, self.limits, calls, folder, ends, self.privacy)
        wipe(arguments)
        os.close(answer)
        os.close(replies)
        lab = LabEnd(self.requests.descriptor, self.replies, signed(nonce, b""), self._lab_is_gone)
        relay = Relay(process, (hear, tell), lab, self.limits, calls, self.own, self.room)
        self._relay(relay, deadline, longest, folder)

    def _relay(self, relay: Relay, deadline: float, longest: float, folder: str) -> None:
        try:
            last = relay.watch(deadline, longest)
            self._end_call(relay.process)
            if folder:
                shutil.rmtree(folder, ignore_errors=True)
            relay.end(last)
        except (LabGone, BrokenPipeError):
            self._end_call(relay.process)
            self._leave()
        finally:
            relay.close()

    def _lab_is_gone(self) -> bool:
        # A process that the lab forked may hold the pipe open after the lab's death.
        return self.lab != 0 and os.getppid() != self.lab

    def _leave(self) -> NoReturn:
        shutil.rmtree(self.scratch, ignore_errors=True)
        os._exit(0)

    def _call(
        self, function: Callable[..., Any], arguments: Any, deadline: float, nonce: bytearray
    ) -> bytes:
        folder = "" if self.privacy else tempfile.mkdtemp(dir=self.scratch)
        receive, send = os.pipe()
        process = os.fork()
        if process == 0:
            wipe(nonce)
            run_call(function, arguments, self.limits, folder, send, self.privacy)
        os.close(send)
        try:
            return self._watch(process, receive, time.monotonic() + deadline)
        finally:
            self._end_call(process)
            os.close(receive)
            if folder:
                # What a call made undeletable stays until the worker's own folder goes.
                shutil.rmtree(folder, ignore_errors=True)

    def _end_call(self, process: int) -> None:
        if self.privacy:
            end_all()
        else:
            end_descendants(process)

    def _watch(self, process: int, receive: int, until: float) -> bytes:
        """The call's answer line, or the line with its failure."""
        answer = bytearray()
        watched, look = [receive, self.requests.descriptor], 0.0
        while not answer.endswith(b"\n"):
            left = until - time.monotonic()
            if left <= 0:
                return failure("deadline", "still running at its deadline")
            ready = wait_readable(watched, min(left, WATCH_SECONDS))
            if self.requests.descriptor in ready or self._lab_is_gone():
                # The lab sends nothing during a call, so this is the end of its pipe.
                self._end_call(process)
                self._leave()
            if receive in ready:
                chunk = os.read(receive, 1 << 16)
                answer += chunk
                if not chunk:
                    return ended_without_answer(process)
            # It may have written its answer since.
            elif ended(process) and not wait_readable([receive], 0.0):
                return ended_without_answer(process)
            if len(answer) > self.limits.output_bytes:
                return failure("output", f"answer over {self.limits.output_bytes} bytes")
            # By the clock: a call could talk all the time.
            if time.monotonic() >= look and not answer.endswith(b"\n"):
                look = time.monotonic() + WATCH_SECONDS
                if over := over_limits(self.limits, self.own):
                    return over
        # The called code can reach the pipe: more than one line would answer the next call too.
        return ANSWER + answer[: answer.index(b"\n") + 1]


def main() -> NoReturn:
    """Takes the standard streams away, imports the function and serves its calls."""
    requests, replies = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.close(nothing)
    os.environ.clear()
    # Where the machine runs out of memory, the kernel ends calls and not the lab.
    Path("/proc/self/oom_score_adj").write_text("1000")
    setup = json.loads(sys.argv[2])
    privacy = None
    if setup["visible"]:
        privacy = Privacy(setup["visible"], setup["user"], system_call_filter())
        enter_private_root(setup["visible"], setup["hidden"], setup["shown"])
    process_control(PR_SET_CHILD_SUBREAPER, 1)
    process_control(PR_SET_DUMPABLE, 0)
    try:
        function = import_function(setup["function"])
    except Exception as error:
        write_all(replies, encode_line({"ready": False, "why": f"{type(error).__name__}: {error}"}))
        os._exit(1)
    limits = Limits(**setup["limits"])
    calls = CallLimits(**setup["calls"]) if setup["calls"] else None
    lab, scratch = setup["lab"], setup["scratch"]
    Supervisor(requests, replies, lab, scratch, limits, privacy, calls).serve(function)


def import_function(name: str) -> Callable[..., Any]:
    """The function that "package.module:function" names, or that the named one returns for what
    stands behind a second colon. Raises what the import raises."""
    module, attribute, *argument = name.split(":", 2)
    found = getattr(importlib.import_module(module), attribute)
    return found(*argument) if argument else found
