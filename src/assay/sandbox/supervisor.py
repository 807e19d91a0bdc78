"""The worker process: imports one function, then runs every call in a fork of itself.

A fork per call means that a call starts in milliseconds with everything imported, leaves nothing
behind in memory for the next one, and can be killed whole: the supervisor is a subreaper, so every
process that a call started is its descendant, even one that changed its session or lost its parent.
It never runs the function itself, and it ends, with everything below it, when its standard input
ends, which also happens when the lab is killed with SIGKILL. A call cannot speak for it: it is not
dumpable, so that neither its memory nor its descriptors can be opened through /proc, and what it
replies carries the request's nonce, which is cleared in the call's copy of its memory.

`pool.Worker` starts it; nothing else imports it.
"""

import contextlib
import gc
import importlib
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import psutil

from assay.sandbox.call_process import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    Privacy,
    process_control,
    run_call,
)
from assay.sandbox.isolation import enter_private_root
from assay.sandbox.limits import Limits, system_call_filter
from assay.sandbox.pipes import (
    LineReader,
    encode_line,
    read_nonce,
    signed,
    wait_readable,
    write_all,
)

REQUEST_SECONDS = 60.0
"""For the rest of a request once its first bytes are read; after that the lab counts as gone."""
WATCH_SECONDS = 0.1
"""How often a running call's processes are counted, and whether the lab still lives."""


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
        channels: socket.socket | None = None,
    ):
        """`lab` is the process id of the lab where it can be seen, otherwise 0; `privacy` is None
        without namespaces. Over `channels` comes a descriptor for each call, see `host_calls`."""
        self.requests, self.replies, self.lab = LineReader(requests), replies, lab
        self.scratch, self.limits, self.privacy = scratch, limits, privacy
        self.channels = channels

    def serve(self, function: Callable[..., Any]) -> NoReturn:
        """Answers one request after another; never returns."""
        self.own = held(psutil.Process())
        gc.freeze()  # otherwise a collection in every fork copies the pages of all imports
        write_all(self.replies, encode_line({"ready": True}))
        while True:
            if not wait_readable([self.requests.descriptor], 1.0):
                if self._lab_is_gone():
                    self._leave()
                continue
            nonce = read_nonce(self.requests.descriptor)
            line = self.requests.read_line(time.monotonic() + REQUEST_SECONDS) if nonce else b""
            if not nonce or not line:
                self._leave()
            request = json.loads(line)
            reply = self._call(function, request["arguments"], request["deadline"], nonce)
            write_all(self.replies, signed(nonce, reply))

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
        channel = None if self.channels is None else received_channel(self.channels)
        receive, send = os.pipe()
        process = os.fork()
        if process == 0:
            nonce[:] = bytes(len(nonce))
            run_call(function, arguments, self.limits, folder, send, self.privacy, channel)
        os.close(send)
        if channel is not None:
            os.close(channel)
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
            if self.requests.descriptor in ready and self.channels is not None:
                # The lab ends a program before its time, or is gone.
                if self.requests.read_line(time.monotonic() + REQUEST_SECONDS):
                    return failure("stopped", "the lab ended it")
                self._end_call(process)
                self._leave()
            if self.requests.descriptor in ready or self._lab_is_gone():
                # The lab sends nothing during other calls, so this is the end of its pipe.
                self._end_call(process)
                self._leave()
            if receive in ready:
                chunk = os.read(receive, 1 << 16)
                answer += chunk
                if not chunk:
                    return ended_without_answer(process)
            elif ended(process):
                return ended_without_answer(process)
            if len(answer) > self.limits.output_bytes:
                return failure("output", f"answer over {self.limits.output_bytes} bytes")
            # By the clock: a call could talk all the time.
            if time.monotonic() >= look and not answer.endswith(b"\n"):
                look = time.monotonic() + WATCH_SECONDS
                if over := over_limits(self.limits, self.own):
                    return over
        # The called code can reach the pipe: more than one line would answer the next call too.
        return bytes(answer[: answer.index(b"\n") + 1])


def received_channel(channels: socket.socket) -> int:
    """The descriptor that the lab sent for a call."""
    _, descriptors, _, _ = socket.recv_fds(channels, 1, 1)
    return descriptors[0]


def failure(kind: str, why: str) -> bytes:
    """The reply line of a call without a value."""
    return encode_line({"failure": kind, "why": why})


def over_limits(limits: Limits, own: int) -> bytes:
    """The reply for a call whose processes are too many, or hold too much memory together; else
    b"". `own` is what the supervisor holds, which they share until they write to it."""
    processes = psutil.Process().children(recursive=True)
    if len(processes) > limits.processes:
        return failure("processes", f"more than {limits.processes} processes")
    if sum(max(0, held(process) - own) for process in processes) > limits.memory_bytes:
        return failure("memory", "over the memory limit with all its processes")
    return b""


def held(process: psutil.Process) -> int:
    """Bytes of memory that are no file's; 0 of a process that is gone."""
    try:
        memory = process.memory_info()
    except psutil.NoSuchProcess:
        return 0
    return memory.rss - memory.shared


def ended(process: int) -> bool:
    """Whether the call `process` is over; it stays to be waited for."""
    return psutil.Process(process).status() == psutil.STATUS_ZOMBIE


def ended_without_answer(process: int) -> bytes:
    """The reply for a call `process` that closed its pipe, or ended, before it answered."""
    os.kill(process, signal.SIGKILL)
    status = os.waitpid(process, 0)[1]
    if not os.WIFSIGNALED(status):
        return failure("crash", f"ended with exit code {os.waitstatus_to_exitcode(status)}")
    number = os.WTERMSIG(status)
    if number == signal.SIGXCPU:
        return failure("cpu", "over the limit of CPU time")
    return failure("crash", f"killed by signal {number}: {signal.strsignal(number)}")


def end_all() -> None:
    """SIGKILLs every other process of this PID namespace at once, so that none can fork meanwhile;
    returns when all are reaped. For the first process of the namespace only."""
    assert os.getpid() == 1, "outside of a namespace this would end the user's session"
    # No such process: the call was the last and is reaped.
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    reap()


def end_descendants(process: int) -> None:
    """SIGKILLs the call `process`, its group, and every descendant; returns when all are reaped."""
    # No such group: it has not reached setsid yet, or is reaped. The loop finds what there is.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    while True:
        for descendant in psutil.Process().children(recursive=True):
            # Its parent may have waited for it since it was listed.
            with contextlib.suppress(psutil.NoSuchProcess):
                descendant.kill()
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def reap() -> None:
    """Waits for every child, those that lost their parent too."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


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
        enter_private_root(setup["visible"])
    process_control(PR_SET_CHILD_SUBREAPER, 1)
    process_control(PR_SET_DUMPABLE, 0)
    try:
        function = import_function(setup["function"])
    except Exception as error:
        write_all(replies, encode_line({"ready": False, "why": f"{type(error).__name__}: {error}"}))
        os._exit(1)
    limits = Limits(**setup["limits"])
    channels = None if setup["channels"] is None else socket.socket(fileno=setup["channels"])
    given = setup["lab"], setup["scratch"], limits, privacy, channels
    supervisor = Supervisor(requests, replies, *given)
    supervisor.serve(function)


def import_function(name: str) -> Callable[..., Any]:
    """The function that "package.module:function" names, or that the named one returns for what
    stands behind a second colon. Raises what the import raises."""
    module, attribute, *argument = name.split(":", 2)
    found = getattr(importlib.import_module(module), attribute)
    return found(*argument) if argument else found
