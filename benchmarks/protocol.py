"""The worker's end of a benchmark: commands as JSON lines, and meters of CPU time and memory.

A worker calls `open_channel` before it imports anything that prints, then answers each command
with one line. Its own standard output then goes to standard error. Imports nothing outside the
standard library, since each worker runs in an environment of its own.
"""

import gc
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, TextIO


@dataclass(frozen=True)
class Channel:
    """A pair of line streams to the driver."""

    commands: TextIO
    answers: TextIO

    def send(self, **answer: Any) -> None:
        """Answer the last command."""
        print(json.dumps(answer), file=self.answers, flush=True)

    def serve(self, side: Any) -> None:
        """Answer every command by the method of `side` that it names, until the driver is done."""
        for command in self.received():
            self.send(**getattr(side, command.pop("do"))(**command))

    def received(self) -> Iterator[dict[str, Any]]:
        """Commands in order, until the driver closes its end."""
        for line in self.commands:
            yield json.loads(line)


def open_channel() -> tuple[Channel, dict[str, Any]]:
    """The channel, and the settings in the worker's first argument."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return Channel(sys.stdin, answers), json.loads(sys.argv[1])


@dataclass(frozen=True)
class Meter:
    """CPU-seconds of all threads of this process and wall seconds since it was started."""

    cpu_start: float
    wall_start: float

    @staticmethod
    def start() -> "Meter":
        """A meter that begins now."""
        return Meter(time.process_time(), time.perf_counter())

    @property
    def cpu(self) -> float:
        """CPU-seconds so far."""
        return time.process_time() - self.cpu_start

    @property
    def wall(self) -> float:
        """Wall seconds so far."""
        return time.perf_counter() - self.wall_start


def resident(field: str = "VmRSS") -> int:
    """Bytes of this process in memory: now (VmRSS), or at most since the last reset (VmHWM)."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{field}:")[1].split()[0]) * 1024


def reset_peak() -> None:
    """Let VmHWM start again from what is resident now."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")


def versions(*packages: str) -> dict[str, str]:
    """The installed versions of packages."""
    return {package: metadata.version(package) for package in packages}


def step_report(whole: Meter, generation: dict[str, float], tokens: list[int]) -> dict[str, Any]:
    """What a worker says of a step: seconds in all, generation and update; lengths; peak."""
    cpu, wall = whole.cpu, whole.wall
    return {
        "cpu": cpu,
        "wall": wall,
        "generation_cpu": generation["cpu"],
        "generation_wall": generation["wall"],
        "update_cpu": cpu - generation["cpu"],
        "update_wall": wall - generation["wall"],
        "peak_bytes": resident("VmHWM"),
        "completion_tokens": sum(tokens),
        "longest": max(tokens),
    }
