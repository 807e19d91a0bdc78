"""What the supervisor does while a call may ask the lab: carries lines and counts the call's time.

It looks at the first byte of what the call writes and at its length, never into it: what a line
means is for the lab to find out (`checked_json`). Lengths and numbers are limited here, so that no
flood reaches the lab. What passes through lies in buffers that are overwritten afterwards.
"""

import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from assay.sandbox.call_watch import (
    WATCH_SECONDS,
    ended,
    ended_without_answer,
    failure,
    group_cpu_seconds,
    over_limits,
)
from assay.sandbox.limits import CallLimits, Limits
from assay.sandbox.pipes import (
    ANSWER,
    CALL,
    FRAME,
    read_exactly,
    wait_readable,
    wait_ready,
    wipe,
    write_all,
)

SPARE = 1 << 16
"""Bytes that are read at once, beyond the longest line."""
NEWLINE = 10


class LabGone(Exception):
    """The lab's end of the pipes is closed."""


def room(limits: Limits, calls: CallLimits) -> bytearray:
    """A buffer for the longest line that a call may write."""
    return bytearray(max(limits.output_bytes, calls.request_bytes) + SPARE)


@dataclass(frozen=True, slots=True)
class LabEnd:
    """The supervisor's ends of its pipes to the lab."""

    hear: int
    tell: int
    mark: bytes
    """What stands before every line, and what no call knows."""
    is_gone: Callable[[], bool]
    """Whether the lab is known to be gone, also where another process holds its ends open."""


class OwnClock:
    """A call's own seconds: all of them while none of its questions is open, CPU time else.

    So waiting for the lab costs nothing, and computing behind an open question does.
    """

    def __init__(self) -> None:
        """Starts now."""
        self.start = self.last = time.monotonic()
        self.seconds = 0.0
        self._cpu: float | None = None

    def in_all(self) -> float:
        """Seconds from the start to the last tick."""
        return self.last - self.start

    def tick(self, waiting: bool) -> None:
        """Counts the time since the last tick; `waiting` holds from now on."""
        cpu = None
        if waiting or self._cpu is not None:
            cpu = group_cpu_seconds(psutil.Process().children(recursive=True))
        now = time.monotonic()
        passed = now - self.last
        if self._cpu is not None and cpu is not None:
            passed = min(passed, max(0.0, cpu - self._cpu))
        self.seconds += passed
        self.last, self._cpu = now, cpu if waiting else None


class Relay:
    """One call's conversation with the lab."""

    def __init__(
        self,
        process: int,
        call: tuple[int, int],
        lab: LabEnd,
        limits: Limits,
        calls: CallLimits,
        own: int,
        space: bytearray,
    ):
        """`call` is where the call is heard and told; `own` as `over_limits` has it; `space` is a
        `room`, which holds zeros."""
        self.process, self.limits, self.calls, self.own = process, limits, calls, own
        self.hear_call, self.tell_call = call
        os.set_blocking(self.tell_call, False)
        self.lab = lab
        self.space, self.filled = space, 0
        self.clock = OwnClock()
        self.asked = self.open = 0
        self.pending: deque[tuple[bytearray, int]] = deque()
        self.stopped = False

    def watch(self, deadline: float, longest: float) -> bytes | memoryview:
        """The call's last line, or the supervisor's about it, once it is over or out of time.

        `deadline` counts the call's own time, `longest` all. Raises LabGone.
        """
        look = 0.0
        while True:
            self.clock.tick(waiting=self.open > 0)
            own, in_all = deadline - self.clock.seconds, longest - self.clock.in_all()
            if own <= 0:
                return failure("deadline", "still running at its deadline")
            if in_all <= 0:
                return failure("deadline", f"still running after {longest:g} seconds in all")
            if last := self._turn(min(own, in_all, WATCH_SECONDS)):
                self.clock.tick(waiting=False)
                return last
            if time.monotonic() >= look:
                look = time.monotonic() + WATCH_SECONDS
                if over := over_limits(self.limits, self.own):
                    return over

    def end(self, last: bytes | memoryview) -> None:
        """Tells the lab how the call ended, then waits for the end of the conversation."""
        write_all(self.lab.tell, b"%s%.6f " % (self.lab.mark, self.clock.seconds))
        write_all(self.lab.tell, last)
        while not self.stopped:
            if wait_readable([self.lab.hear], 1.0):
                self._hear_lab()
            elif self.lab.is_gone():
                raise LabGone

    def close(self) -> None:
        """Closes the pipes to the call and overwrites what is left of what passed through."""
        os.close(self.hear_call)
        os.close(self.tell_call)
        memoryview(self.space)[: self.filled] = bytes(self.filled)
        for reply, _ in self.pending:
            wipe(reply)

    def _turn(self, seconds: float) -> bytes | memoryview:
        """Carries what there is; the last line where it is over, else b""."""
        writable = [self.tell_call] if self.pending else []
        ready = wait_ready([self.hear_call, self.lab.hear], writable, seconds)
        if self.lab.hear in ready:
            self._hear_lab()
        if self.stopped:
            return failure("crash", "stopped by the lab")
        if self.lab.is_gone():
            raise LabGone
        if self.tell_call in ready:
            self._tell_call()
        if self.hear_call in ready:
            return self._hear_call()
        # It may have written its last line since.
        if ended(self.process) and not wait_readable([self.hear_call], 0.0):
            return ended_without_answer(self.process)
        return b""

    def _hear_lab(self) -> None:
        """Takes one frame."""
        head = read_exactly(self.lab.hear, FRAME.size)
        if not head:
            raise LabGone
        (length,) = FRAME.unpack(head)
        if length == 0:
            self.stopped = True
            return
        reply = read_exactly(self.lab.hear, length)
        if not reply:
            raise LabGone
        self.open -= 1
        self.pending.append((reply, 0))

    def _tell_call(self) -> None:
        """Passes on as much as the call takes."""
        reply, done = self.pending.popleft()
        try:
            done += os.write(self.tell_call, memoryview(reply)[done:])
        except BrokenPipeError:
            # It does not want to hear; what it does is watched all the same.
            done = len(reply)
        if done < len(reply):
            self.pending.appendleft((reply, done))
        else:
            wipe(reply)

    def _hear_call(self) -> bytes | memoryview:
        """Carries whole lines to the lab; the last line where it is over, else b""."""
        view = memoryview(self.space)
        count = os.readv(self.hear_call, [view[self.filled :]])
        if count == 0:
            return ended_without_answer(self.process)
        self.filled += count
        start = 0
        while start < self.filled:
            end = self.space.find(NEWLINE, start, self.filled) + 1
            last = self._look(view[start : end or self.filled], bool(end))
            if last:
                return last
            if not end:
                break
            start = end
        rest = self.filled - start
        view[:rest] = view[start : self.filled]
        view[rest : self.filled] = bytes(start)
        self.filled = rest
        return b""

    def _look(self, line: memoryview, whole: bool) -> bytes | memoryview:
        """Passes a whole call on; the last line where the call is over, else b""."""
        if line[:1] == ANSWER:
            if len(line) > self.limits.output_bytes:
                return failure("output", f"answer over {self.limits.output_bytes} bytes")
            return line if whole else b""
        if line[:1] != CALL:
            return failure("protocol", "a line that is neither a call nor an answer")
        if len(line) > self.calls.request_bytes:
            return failure("calls", f"a call over {self.calls.request_bytes} bytes")
        return self._pass_call(line) if whole else b""

    def _pass_call(self, line: memoryview) -> bytes:
        if self.asked == self.calls.calls:
            return failure("calls", f"more than {self.calls.calls} calls")
        if self.open == self.calls.together:
            return failure("calls", f"more than {self.calls.together} calls open at once")
        self.asked += 1
        self.open += 1
        write_all(self.lab.tell, self.lab.mark)
        write_all(self.lab.tell, line)
        return b""
