"""The worker's end of a benchmark: commands as JSON lines, and meters of CPU time and memory.

A worker calls `open_channel` before it imports anything that prints, since its own standard output
goes to standard error from then on. Imports nothing outside the standard library, because every
worker runs in an environment of its own.
"""

import gc
import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, TextIO

Record = dict[str, Any]
"""A JSON object: a command, an answer, or what a result file holds."""


@dataclass(frozen=True)
class Channel:
    """A pair of line streams to the driver."""

    commands: TextIO
    answers: TextIO

    def send(self, **answer: Any) -> None:
        """Answer the last command."""
        print(json.dumps(answer), file=self.answers, flush=True)

    def received(self) -> Iterator[Record]:
        """Commands in order, until the driver closes its end."""
        for line in self.commands:
            yield json.loads(line)

    def serve(self, side: object) -> None:
        """Answer every command by the method of `side` that it names, until the driver closes."""
        for command in self.received():
            self.send(**getattr(side, command.pop("do"))(**command))


def open_channel() -> tuple[Channel, Record]:
    """The channel, and the settings in the worker's first argument."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return Channel(sys.stdin, answers), json.loads(sys.argv[1])


@dataclass(frozen=True)
class Meter:
    """CPU-seconds of this process and wall seconds since it was started."""

    cpu_start: float
    wall_start: float

    @staticmethod
    def start() -> "Meter":
        """A meter that begins now."""
        return Meter(cpu_seconds(), time.perf_counter())

    @property
    def cpu(self) -> float:
        """CPU-seconds so far."""
        return cpu_seconds() - self.cpu_start

    @property
    def wall(self) -> float:
        """Wall seconds so far."""
        return time.perf_counter() - self.wall_start


BESIDE: set[int] = set()
"""Processes that work for this one, whose time counts with its own."""


def cpu_seconds() -> float:
    """Processor time of this process's threads, of its children that have ended, and of others
    that work for it."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = time.process_time() + ended.ru_utime + ended.ru_stime
    return own + sum(map(cpu_of, BESIDE))


def cpu_of(process: int) -> float:
    """Processor time of another process's threads; see proc(5)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(field: str = "VmRSS") -> int:
    """Bytes of this process in memory: now (VmRSS), or at most since the last reset (VmHWM)."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{field}:")[1].split()[0]) * 1024


def reset_peak() -> None:
    """Let VmHWM start again from what is resident now."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")


def reset_peak_of(device: str) -> None:
    """Let the peak of a device start again; a GPU is waited for first."""
    reset_peak()
    if device == "cuda":
        import torch  # type: ignore[import-not-found]  # of the worker's environment

        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()


def finish(device: str) -> None:
    """Wait for a GPU, which works on behind the program."""
    if device == "cuda":
        import torch  # type: ignore[import-not-found]

        torch.cuda.synchronize()


def peak_of(device: str) -> int:
    """Bytes that were held at most: of the GPU by tensors, else of this process."""
    if device == "cuda":
        import torch  # type: ignore[import-not-found]

        return torch.cuda.max_memory_allocated()
    return resident("VmHWM")


def versions(*packages: str) -> dict[str, str]:
    """The versions of those packages that are installed."""
    installed = {found.name for found in metadata.distributions()}
    return {package: metadata.version(package) for package in packages if package in installed}


def step_report(
    whole: Meter, generation: tuple[float, float] = (0.0, 0.0), device: str = "cpu"
) -> Record:
    """Seconds of a step, of its generation (CPU, wall) and of the rest, and its peak memory."""
    finish(device)
    cpu, wall = whole.cpu, whole.wall
    return {
        "cpu": cpu,
        "wall": wall,
        "generation_cpu": generation[0],
        "generation_wall": generation[1],
        "update_cpu": cpu - generation[0],
        "update_wall": wall - generation[1],
        "peak_bytes": peak_of(device),
    }
