"""CPU-seconds and memory of a program with all processes that it starts, by polling /proc.

Processes are found by a mark in their environment, which daemons inherit too, so that Ray's count.
What a process does after it was last seen is missed: at most one interval for each that ends.
"""

import os
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.worker import Record

MARK = "ASSAY_MEASURED"
INTERVAL = 0.5
USER, START = 11, 19
"""Places in /proc/PID/stat behind the name: ticks in user mode, ticks at the start; see proc(5)."""
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Tree:
    """The processes that carry a mark."""

    mark: str
    cpu: dict[tuple[int, int], float] = field(default_factory=dict)
    """Seconds of each process when it was last seen, by its number and the time of its start."""
    others: set[tuple[int, int]] = field(default_factory=set)

    def measure(self) -> tuple[float, int]:
        """CPU-seconds so far, and bytes in memory now, what is shared counted once."""
        held = 0
        for folder in Path("/proc").glob("[0-9]*"):
            key = (0, 0)
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                key = int(folder.name), int(fields[START])
                if key in self.others:
                    continue
                if key not in self.cpu and self.mark not in (folder / "environ").read_text():
                    self.others.add(key)
                    continue
                self.cpu[key] = (int(fields[USER]) + int(fields[USER + 1])) / TICKS
                lines = (folder / "smaps_rollup").read_text().splitlines()
                held += sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended meanwhile
            except PermissionError:
                self.others.add(key)
        return sum(self.cpu.values()), held


def run_measured(
    command: Sequence[str | Path],
    log: Path,
    done: Callable[[], int],
    *,
    folder: Path,
    environment: Mapping[str, str],
) -> Record:
    """Run a command in `folder` to its end, its output in `log`.

    `done` counts the steps that are finished so far. The answer has `steps`, a list of finished
    steps with the CPU and wall seconds until then, `peak_bytes` until the last step, and the whole
    `cpu` and `wall`. Raises CalledProcessError.
    """
    tree = Tree(uuid.uuid4().hex)
    started, steps, peak = time.perf_counter(), [], 0
    with log.open("wb") as out:
        own = {**os.environ, **environment, MARK: tree.mark}
        process = subprocess.Popen(command, cwd=folder, env=own, stdout=out, stderr=out)
        while process.poll() is None:
            time.sleep(INTERVAL)
            cpu, held = tree.measure()
            count, wall = done(), time.perf_counter() - started
            if count > (steps[-1]["step"] if steps else 0):
                steps.append(
                    {"step": count, "cpu": cpu, "wall": wall, "peak_bytes": max(peak, held)}
                )
            peak = max(peak, held)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, list(map(str, command)), str(log))
    return {
        "steps": steps,
        "peak_bytes": steps[-1]["peak_bytes"] if steps else peak,
        "cpu": sum(tree.cpu.values()),
        "wall": time.perf_counter() - started,
    }
