"""What processes and all that they started take: CPU seconds, and the memory that they hold."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from assay.sandbox.call_watch import group_cpu_seconds, held, kilobytes

LOOK_SECONDS = 1.0


def tree_cpu_seconds(process: int | None = None) -> float:
    """CPU seconds of a process, or of this one, and of all that it started; of those that have
    ended where they were waited for. 0 of one that is gone."""
    try:
        top = psutil.Process(process)
        return group_cpu_seconds([top, *descendants(top)])
    except psutil.NoSuchProcess:
        return 0.0


def started_memory(process: int | None = None) -> int:
    """Bytes that all that a process, or this one, started holds; what they share counts once."""
    try:
        below = descendants(psutil.Process(process))
    except psutil.NoSuchProcess:
        return 0
    return sum(kilobytes(each.pid, "smaps_rollup", "Pss") or held(each.pid) for each in below)


def descendants(top: psutil.Process) -> list[psutil.Process]:
    """All that a process started. Linux lists the children of each thread; where it does not, or
    one ends meanwhile, all processes of the machine are looked through: ten times the time.

    Raises psutil.NoSuchProcess."""
    found = [top.pid]
    try:
        for process in found:
            for thread in Path(f"/proc/{process}/task").iterdir():
                found += map(int, (thread / "children").read_text().split())
        return [psutil.Process(process) for process in found[1:]]
    except (OSError, psutil.NoSuchProcess):
        return top.children(recursive=True)


@dataclass
class Meter:
    """Watches what one process starts, and says what was taken since it was last asked."""

    process: int = 0
    cpu: float = 0.0
    """CPU seconds so far."""
    told: float = 0.0
    """Of these, what was said."""
    peak: int = 0
    """Bytes at most since it was last asked."""

    @contextmanager
    def watching(self, process: int) -> Iterator[None]:
        """Inside, look every second."""
        self.process, self.cpu, self.told, self.peak = process, 0.0, 0.0, 0
        over = threading.Event()

        def watch() -> None:
            while not over.wait(LOOK_SECONDS):
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
