"""The worker process: imports one function, then runs every call in a fork of itself.

A fork per call means that a call starts in milliseconds with everything imported, leaves nothing
behind in memory for the next one, and can be killed whole: the supervisor is a subreaper, so every
process that a call started is its descendant, even one that changed its session or lost its parent.
It never runs the function itself, and it ends, with everything below it, when its standard input
ends, which also happens when the lab is killed with SIGKILL. A call cannot speak for it: it is not
dumpable, so that neither its memory nor its descriptors can be opened through /proc, and what it
replies carries the request's nonce, which is cleared in the call's copy of its memory.

`Relay` carries what calls say. It looks at the first byte of it and at its length, never into it:
what a line means is for the lab to find out. What passed through lies in buffers that are
overwritten afterwards, so that the next call does not find it in its copy.

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
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import psutil

from assay.sandbox import call_watch, pipes
from assay.sandbox.call_process import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    Privacy,
    process_control,
    run_call,
)
from assay.sandbox.call_watch import CallOver, over
from assay.sandbox.isolation import enter_private_root
from assay.sandbox.limits import CallLimits, Limits, system_call_filter

SPARE = 1 << 16
"""Bytes that are read at once, beyond the longest line."""


class OwnClock:
    """A call's own seconds: all of them while none of its questions is open, CPU time else.

    So waiting for the lab costs nothing, and computing behind an open question does.
    """

    def __init__(self) -> None:
        """Starts now."""
        self.start = self.last = time.monotonic()
        self.seconds = 0.0
        self._cpu: float | None = None

    def tick(self, waiting: bool) -> None:
        """Counts the time since the last tick; `waiting` holds from now on."""
        cpu = None
        if waiting or self._cpu is not None:
            cpu = call_watch.cpu_seconds(psutil.Process().children(recursive=True))
        now = time.monotonic()
        passed = now - self.last
        if self._cpu is not None and cpu is not None:
            passed = min(passed, max(0.0, cpu - self._cpu))
        self.seconds += passed
        self.last, self._cpu = now, cpu if waiting else None


class Relay:
    """One call's conversation with the lab."""

    def __init__(self, served: "Supervisor", process: int, call: Sequence[int], mark: bytes):
        """`call` is where the call is heard, and told if it may ask; `mark` stands before every
        line to the lab, and no call knows it."""
        self.served, self.process, self.mark = served, process, mark
        self.limits, self.calls = served.limits, served.calls
        self.hear_call, *self.tell_call = call
        for descriptor in self.tell_call:
            os.set_blocking(descriptor, False)
        self.space, self.filled = served.space, 0
        self.clock = OwnClock()
        self.count = self.open = 0
        self.pending: deque[tuple[bytearray, int]] = deque()
        self.stopped = False

    def watch(self, deadline: float, longest: float) -> NoReturn:
        """Raises CallOver with the call's last line, or the supervisor's about it, once it is over
        or out of time; EOFError.

        `deadline` counts the call's own time, `longest` all.
        """
        look = 0.0
        while True:
            self.clock.tick(waiting=self.open > 0)
            own = deadline - self.clock.seconds
            in_all = self.clock.start + longest - self.clock.last
            if own <= 0:
                over("deadline", "still running at its deadline")
            if in_all <= 0:
                over("deadline", f"still running after {longest:g} seconds in all")
            self._turn(min(own, in_all, call_watch.WATCH_SECONDS))
            if time.monotonic() >= look:
                look = time.monotonic() + call_watch.WATCH_SECONDS
                call_watch.check_limits(self.limits, self.served.own)

    def end(self, last: bytes | memoryview) -> None:
        """Tells the lab how the call ended, then waits for the end of the conversation."""
        pipes.write_all(self.served.replies, self.mark)
        pipes.write_all(self.served.replies, last)
        while not self.stopped:
            if pipes.wait_ready([self.served.requests], 1.0):
                self._hear_lab()
            elif self.served.lab_is_gone():
                raise EOFError

    def close(self) -> None:
        """Closes the pipes to the call and overwrites what is left of what passed through."""
        for descriptor in (self.hear_call, *self.tell_call):
            os.close(descriptor)
        memoryview(self.space)[: self.filled] = bytes(self.filled)
        for reply, _ in self.pending:
            pipes.wipe(reply)

    def _turn(self, seconds: float) -> None:
        """Carries what there is. Raises CallOver, EOFError."""
        writable = self.tell_call if self.pending else []
        ready = pipes.wait_ready([self.hear_call, self.served.requests], seconds, writable)
        if self.served.requests in ready:
            self._hear_lab()
        if self.stopped:
            over("crash", "stopped by the lab")
        if self.served.lab_is_gone():
            raise EOFError
        if writable and writable[0] in ready:
            reply, done = self.pending.popleft()
            try:
                done += os.write(writable[0], memoryview(reply)[done:])
            except BrokenPipeError:
                # It does not want to hear; what it does is watched all the same.
                done = len(reply)
            if done < len(reply):
                self.pending.appendleft((reply, done))
            else:
                pipes.wipe(reply)
        if self.hear_call in ready:
            self._hear_call()
        # It may have written its last line since.
        elif call_watch.ended(self.process) and not pipes.wait_ready([self.hear_call], 0.0):
            call_watch.end_without_answer(self.process)

    def _hear_lab(self) -> None:
        """Takes one frame."""
        head = pipes.read_exactly(self.served.requests, pipes.FRAME.size)
        if not head:
            raise EOFError
        (length,) = pipes.FRAME.unpack(head)
        if length == 0:
            self.stopped = True
            return
        reply = pipes.read_exactly(self.served.requests, length)
        if not reply:
            raise EOFError
        self.open -= 1
        self.pending.append((reply, 0))

    def _hear_call(self) -> None:
        """Carries whole lines to the lab. Raises CallOver."""
        view = memoryview(self.space)
        count = os.readv(self.hear_call, [view[self.filled :]])
        if count == 0:
            call_watch.end_without_answer(self.process)
        self.filled += count
        start = 0
        while start < self.filled:
            end = self.space.find(b"\n", start, self.filled) + 1
            self._look(view[start : end or self.filled], bool(end))
            if not end:
                break
            start = end
        rest = self.filled - start
        view[:rest] = view[start : self.filled]
        view[rest : self.filled] = bytes(start)
        self.filled = rest

    def _look(self, line: memoryview, whole: bool) -> None:
        """Passes a whole call on. Raises CallOver."""
        if self.calls is None or line[:1] == pipes.ANSWER:
            if len(line) > self.limits.output_bytes:
                over("output", f"answer over {self.limits.output_bytes} bytes")
            if whole:
                raise CallOver(line if self.calls else pipes.ANSWER + bytes(line))
            return
        if line[:1] != pipes.CALL:
            over("protocol", "a line that is neither a call nor an answer")
        if len(line) > self.calls.request_bytes:
            over("calls", f"a call over {self.calls.request_bytes} bytes")
        if not whole:
            return
        if self.count == self.calls.calls:
            over("calls", f"more than {self.calls.calls} calls")
        if self.open == self.calls.together:
            over("calls", f"more than {self.calls.together} calls open at once")
        self.count += 1
        self.open += 1
        pipes.write_all(self.served.replies, self.mark)
        pipes.write_all(self.served.replies, line)


class Supervisor:
    """Serves calls of one function until the lab goes away."""

    def __init__(
        self, requests: int, replies: int, setup: Mapping[str, Any], privacy: Privacy | None
    ):
        """`setup` is what `pool.Worker` says; `privacy` is None without namespaces."""
        self.requests, self.replies, self.privacy = requests, replies, privacy
        self.lab, self.scratch = setup["lab"], setup["scratch"]
        self.limits = Limits(**setup["limits"])
        self.calls = CallLimits(**setup["calls"]) if setup["calls"] else None

    def serve(self, function: Callable[..., Any]) -> NoReturn:
        """Answers one request after another; never returns."""
        if self.calls:
            # Before what this process holds is looked at, and for all calls.
            importlib.import_module("asyncio")
        self.own = call_watch.held(os.getpid())
        longest = max(self.limits.output_bytes, self.calls.request_bytes if self.calls else 0)
        # Of a fixed size: what grows leaves copies behind.
        self.space = bytearray(longest + SPARE)
        gc.freeze()  # otherwise a collection in every fork copies the pages of all imports
        pipes.write_all(self.replies, pipes.encode_line({"ready": True}))
        while True:
            if pipes.wait_ready([self.requests], 1.0):
                self._answer(function)
            elif self.lab_is_gone():
                self._leave()

    def _answer(self, function: Callable[..., Any]) -> None:
        """Runs a call, and carries what it and the lab say until the lab ends the conversation."""
        # Into arrays and nowhere else, so that clearing them leaves no copy.
        nonce = pipes.read_exactly(self.requests, pipes.NONCE_BYTES)
        head = nonce and pipes.read_exactly(self.requests, pipes.REQUEST.size)
        deadline, longest, length = pipes.REQUEST.unpack(head or bytes(pipes.REQUEST.size))
        arguments = pipes.read_exactly(self.requests, length)
        if not nonce or not arguments:
            self._leave()
        folder = "" if self.privacy else tempfile.mkdtemp(dir=self.scratch)
        hear, answer = os.pipe()
        outer, inner = [hear], [answer]
        if self.calls:
            replies, tell = os.pipe()
            outer, inner = [hear, tell], [answer, replies]
        process = os.fork()
        if process == 0:
            pipes.wipe(nonce)
            run_call(function, arguments, self.limits, self.calls, folder, inner, self.privacy)
        pipes.wipe(arguments)
        for descriptor in inner:
            os.close(descriptor)
        relay = Relay(self, process, outer, pipes.signed(nonce, b""))
        try:
            try:
                relay.watch(deadline, longest)
            except CallOver as told:
                self._end_call(process)
                if folder:
                    # What a call made undeletable stays until the worker's own folder goes.
                    shutil.rmtree(folder, ignore_errors=True)
                relay.end(*told.args)
        except (EOFError, BrokenPipeError):
            self._end_call(process)
            self._leave()
        finally:
            relay.close()

    def lab_is_gone(self) -> bool:
        """Whether the lab is known to be gone, also where a process that it forked holds the pipe
        open."""
        return self.lab != 0 and os.getppid() != self.lab

    def _leave(self) -> NoReturn:
        shutil.rmtree(self.scratch, ignore_errors=True)
        os._exit(0)

    def _end_call(self, process: int) -> None:
        if self.privacy:
            call_watch.end_all()
        else:
            call_watch.end_descendants(process)


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
        # What stands behind a second colon is for the named function, which returns the one meant.
        module, attribute, *argument = setup["function"].split(":", 2)
        function = getattr(importlib.import_module(module), attribute)
        function = function(*argument) if argument else function
    except Exception as error:
        pipes.write_all(
            replies, pipes.encode_line({"ready": False, "why": f"{type(error).__name__}: {error}"})
        )
        os._exit(1)
    Supervisor(requests, replies, setup, privacy).serve(function)
