"""How a call's processes are counted against its limits, told of, and ended.

The supervisor's half of a call, apart from what it reads: nothing here talks to the lab.
"""

import contextlib
import os
import signal
from collections.abc import Iterable

import psutil

from assay.sandbox.limits import Limits
from assay.sandbox.pipes import VERDICT, encode_line

WATCH_SECONDS = 0.1
"""How often a running call's processes are counted, and whether the lab still lives."""


def failure(kind: str, why: str) -> bytes:
    """The supervisor's line about a call without a value."""
    return VERDICT + encode_line({"failure": kind, "why": why})


def over_limits(limits: Limits, own: int) -> bytes:
    """The reply for a call whose processes are too many, or take too much memory or CPU time
    together; else b"". `own` is what the supervisor holds, which they share until they write to
    it."""
    processes = psutil.Process().children(recursive=True)
    if len(processes) > limits.processes:
        return failure("processes", f"more than {limits.processes} processes")
    if sum(max(0, held(process) - own) for process in processes) > limits.memory_bytes:
        return failure("memory", "over the memory limit with all its processes")
    if group_cpu_seconds(processes) > limits.cpu_seconds:
        return failure("cpu", "over the limit of CPU time")
    return b""


def group_cpu_seconds(processes: Iterable[psutil.Process]) -> float:
    """CPU time of processes together, to a hundredth of a second."""
    return sum(map(cpu_seconds, processes))


def cpu_seconds(process: psutil.Process) -> float:
    """CPU time of a process and of those children of it that it waited for; 0 of one that is
    gone."""
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return sum(times[:4])


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
