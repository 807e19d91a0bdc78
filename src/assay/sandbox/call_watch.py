"""How a call's processes are counted against its limits, told of, and ended.

The supervisor's half of a call, apart from what it reads: nothing here talks to the lab.
"""

import contextlib
import os
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path

import psutil

from assay.sandbox.isolation import PRIVATE_FOLDERS
from assay.sandbox.limits import Limits
from assay.sandbox.pipes import VERDICT, encode_line

WATCH_SECONDS = 0.1
"""How often a running call's processes are counted, and whether the lab still lives."""
NO_FILE = ("/dev/zero", "/memfd:", "/SYSV")
"""How the kernel names shared memory that has no file."""


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
    if group_memory(processes, own) > limits.memory_bytes:
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


def group_memory(processes: Sequence[psutil.Process], own: int) -> int:
    """Bytes of memory that processes hold together: of each what it has more than `own`, what they
    share, once for all of them, and the files in a call's private folders."""
    private = sum(max(0, held(process.pid) - own) for process in processes)
    return private + shared_memory(processes) + in_private_folders(processes)


def shared_memory(processes: Sequence[psutil.Process]) -> int:
    """Bytes of the memory of no file that processes map as shared, whole and once: also where it is
    unmapped but for a page, which keeps all of it.

    Only root may see that; else it is what they map of it and of files in memory, by their share.
    """
    whole: dict[int, int] = {}
    mapped = 0
    for process in processes:
        try:
            whole |= shared_objects(process.pid)
        except PermissionError:
            mapped += shared(process.pid)
    return sum(whole.values()) + mapped


def shared_objects(process: int) -> dict[int, int]:
    """Bytes of each shared memory of no file that a process maps, by its inode; none of a process
    that is gone. Raises PermissionError."""
    found: dict[int, int] = {}
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{process}/maps").read_text("utf-8", "replace").splitlines():
            place, access, _, _, _, *name = line.split(maxsplit=5)
            if access.endswith("s") and name and name[0].startswith(NO_FILE):
                start, _, end = place.partition("-")
                link = Path(f"/proc/{process}/map_files/{int(start, 16):x}-{int(end, 16):x}")
                with contextlib.suppress(FileNotFoundError):  # it may be unmapped since
                    memory = link.stat()
                    found[memory.st_ino] = memory.st_blocks * 512
    return found


def held(process: int) -> int:
    """Bytes of a process that are no file's and not shared; 0 of one that is gone."""
    return kilobytes(process, "status", "RssAnon", "VmSwap")


def shared(process: int) -> int:
    """Bytes of shared memory and of files in memory that a process maps, by its share in them;
    whole where the kernel does not tell the share, which it does since Linux 5.4 to whom may look
    into the process."""
    mapped = kilobytes(process, "status", "RssShmem")
    return (mapped and kilobytes(process, "smaps_rollup", "Pss_Shmem")) or mapped


def kilobytes(process: int, file: str, *names: str) -> int:
    """The sum of some lines "NAME: 12 kB" of a file in /proc, in bytes; 0 where it is not there."""
    try:
        lines = Path(f"/proc/{process}/{file}").read_text().splitlines()
    except OSError:
        return 0
    fields = (line.split() for line in lines if line.partition(":")[0] in names)
    return sum(int(value) for _, value, _ in fields) << 10


def in_private_folders(processes: Sequence[psutil.Process]) -> int:
    """Bytes of the files in the memory file systems that a call's processes have in common; 0 where
    they see the supervisor's own folders."""
    for process in processes:
        # Gone, or on its way into its own folders.
        with contextlib.suppress(OSError):
            return sum(used(f"/proc/{process.pid}/root", each) for each in PRIVATE_FOLDERS)
    return 0


def used(root: str, folder: str) -> int:
    """Bytes in the file system of a folder as a process sees it whose root is `root`; 0 where it is
    the supervisor's. Raises OSError."""
    if Path(root + folder).stat().st_dev == Path(folder).stat().st_dev:
        return 0
    found = os.statvfs(root + folder)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


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
