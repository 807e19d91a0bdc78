"""What processes and all that they started take, and how they are counted against the limits of a
call, told of, and ended. Nothing here talks to the lab.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import psutil

from assay.sandbox.isolation import PRIVATE_FOLDERS
from assay.sandbox.limits import Limits
from assay.sandbox.pipes import VERDICT, encode_line

WATCH_SECONDS = 0.1
"""How often a running call's processes are counted, and whether the lab still lives."""
NO_FILE = ("/dev/zero", "/memfd:", "/SYSV")
"""How the kernel names shared memory that has no file."""


class CallOver(Exception):
    """A call is over; the argument is the line that the lab is told."""


def over(kind: str, why: str) -> NoReturn:
    """Ends a call without a value."""
    raise CallOver(VERDICT + encode_line({"failure": kind, "why": why}))


def check_limits(limits: Limits, own: int) -> None:
    """Ends a call whose processes are too many, or take too much memory or CPU time together. `own`
    is what the supervisor holds, which they share until they write to it."""
    processes = psutil.Process().children(recursive=True)
    if len(processes) > limits.processes:
        over("processes", f"more than {limits.processes} processes")
    private = sum(max(0, held(process.pid) - own) for process in processes)
    if private + shared_memory(processes) + in_private_folders(processes) > limits.memory_bytes:
        over("memory", "over the memory limit with all its processes")
    if cpu_seconds(processes) > limits.cpu_seconds:
        over("cpu", "over the limit of CPU time")


def cpu_seconds(processes: Iterable[psutil.Process]) -> float:
    """CPU time of processes together, and of those children of theirs that they waited for, to a
    hundredth of a second; 0 of one that is gone."""
    total = 0.0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total


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
    objects: dict[int, int] = {}
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{process}/maps").read_text("utf-8", "replace").splitlines():
            place, access, _, _, _, *name = line.split(maxsplit=5)
            if access.endswith("s") and name and name[0].startswith(NO_FILE):
                start, _, end = place.partition("-")
                link = Path(f"/proc/{process}/map_files/{int(start, 16):x}-{int(end, 16):x}")
                with contextlib.suppress(FileNotFoundError):  # it may be unmapped since
                    memory = link.stat()
                    objects[memory.st_ino] = memory.st_blocks * 512
    return objects


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
            root = f"/proc/{process.pid}/root"
            own = [(Path(root + each), Path(each)) for each in PRIVATE_FOLDERS]
            used = [os.statvfs(a) for a, b in own if a.stat().st_dev != b.stat().st_dev]
            return sum((each.f_blocks - each.f_bfree) * each.f_frsize for each in used)
    return 0


def ended(process: int) -> bool:
    """Whether the call `process` is over; it stays to be waited for."""
    return psutil.Process(process).status() == psutil.STATUS_ZOMBIE


def end_without_answer(process: int) -> NoReturn:
    """Ends a call `process` that closed its pipe, or ended, before it answered."""
    os.kill(process, signal.SIGKILL)
    status = os.waitpid(process, 0)[1]
    if not os.WIFSIGNALED(status):
        over("crash", f"ended with exit code {os.waitstatus_to_exitcode(status)}")
    number = os.WTERMSIG(status)
    if number == signal.SIGXCPU:
        over("cpu", "over the limit of CPU time")
    over("crash", f"killed by signal {number}: {signal.strsignal(number)}")


def end_all() -> None:
    """SIGKILLs every other process of this PID namespace at once, so that none can fork meanwhile;
    returns when all are reaped. For the first process of the namespace only."""
    assert os.getpid() == 1, "outside of a namespace this would end the user's session"
    # No such process: the call was the last and is reaped.
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


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


METER_SECONDS = 1.0
"""Between two looks at what a tool takes."""


def tree_cpu_seconds(process: int | None = None) -> float:
    """CPU seconds of a process, or of this one, and of all that it started; of those that have
    ended where they were waited for. 0 of one that is gone."""
    return cpu_seconds(tree(process))


def started_memory(process: int | None = None) -> int:
    """Bytes that all that a process, or this one, started holds; what they share counts once."""
    started = [each.pid for each in tree(process)[1:]]
    return sum(kilobytes(pid, "smaps_rollup", "Pss") or held(pid) for pid in started)


def tree(process: int | None) -> list[psutil.Process]:
    """A process, or this one, and all that it started; none of one that is gone. Linux lists the
    children of each thread; where it does not, or one ends meanwhile, all processes of the machine
    are looked through: ten times the time."""
    with contextlib.suppress(psutil.NoSuchProcess):
        top = psutil.Process(process)
        pids = [top.pid]
        try:
            for pid in pids:
                for thread in Path(f"/proc/{pid}/task").iterdir():
                    pids += map(int, (thread / "children").read_text().split())
            return [*map(psutil.Process, pids)]
        except (OSError, psutil.NoSuchProcess):
            return [top, *top.children(recursive=True)]
    return []


@dataclass
class ProcessMeter:
    """Watches what one process starts, and says what was taken since it was last asked."""

    process: int = 0
    cpu: float = 0.0
    """CPU seconds so far."""
    told: float = 0.0
    """Of these, what was said."""
    peak: int = 0
    """Bytes at most since it was last asked."""

    @contextlib.contextmanager
    def watching(self, process: int) -> Iterator[None]:
        """Inside, look every second."""
        self.process, self.cpu, self.told, self.peak = process, 0.0, 0.0, 0
        over = threading.Event()

        def watch() -> None:
            while not over.wait(METER_SECONDS):
                self.look()

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def look(self) -> None:
        """Look once."""
        # What has ended counts a moment later, where its parent waits for it.
        self.cpu = max(self.cpu, tree_cpu_seconds(self.process))
        self.peak = max(self.peak, started_memory(self.process))

    def taken(self) -> dict[str, float]:
        """`cpu_seconds`, and `peak_memory_mb` in MiB."""
        self.look()
        seconds, self.told = self.cpu - self.told, self.cpu
        peak, self.peak = self.peak, 0
        return {"cpu_seconds": seconds, "peak_memory_mb": peak / 2**20}
