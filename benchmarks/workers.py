"""The driver's end of a benchmark: long-lived workers that are asked for one thing at a time.

A worker that dies, or that the watch ends for taking too much memory, raises WorkerDied: the
caller decides whether that is a result ("does not fit") or a failure. Where other programs fill the
machine, MachineFull ends the benchmark without a result.
"""

import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import psutil

MEMORY_SHARE = 0.75
"""Of the machine's memory, the most that one worker may hold."""
LEAST_AVAILABLE = 0.03
"""Of the machine's memory; below it the worker at work is ended before the kernel picks one."""
OWN_SHARE = 0.4
"""A worker below it did not fill the machine: others did, and that is no result."""
WATCH_SECONDS = 0.25


class WorkerDied(Exception):
    """The worker is gone; the message says why and ends with the last lines it wrote."""


class MachineFull(Exception):
    """Other programs left too little memory to measure anything."""


class Worker:
    """A subprocess that answers JSON lines with JSON lines."""

    def __init__(self, python: Path, script: str, settings: Mapping[str, Any], threads: int):
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 closed with the worker
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": str(threads),
            "MKL_NUM_THREADS": str(threads),
            "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_OFFLINE": "1",
            "PYTHONWARNINGS": "ignore",
        }
        self.process = subprocess.Popen(
            [python, Path(__file__).with_name(script), json.dumps(dict(settings))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=environment,
        )

    @cached_property
    def ready(self) -> dict[str, Any]:
        """What it said when it was ready for commands: several may start side by side."""
        return self.answer()

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Give a command and wait for its answer; raises WorkerDied."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self.died("it ended by itself") from None
        _ = self.ready
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """The next line, while the worker's memory is watched."""
        assert self.process.stdout is not None
        total = psutil.virtual_memory().total
        while not select.select([self.process.stdout], [], [], WATCH_SECONDS)[0]:
            held = psutil.Process(self.process.pid).memory_info().rss
            if held > MEMORY_SHARE * total:
                raise self.died(f"it held more than {MEMORY_SHARE:.0%} of memory")
            if psutil.virtual_memory().available < LEAST_AVAILABLE * total:
                reason = self.died("the machine was about to run out of memory")
                raise reason if held > OWN_SHARE * total else MachineFull(str(reason))
        line = self.process.stdout.readline()
        if not line:
            raise self.died("it ended by itself")
        return json.loads(line)

    def died(self, why: str) -> WorkerDied:
        """End the worker and say why, with the end of its standard error."""
        assert self.process.stdout is not None
        if select.select([self.process.stdout], [], [], 0)[0]:
            # Its output has ended, so it is on its way out with a status of its own.
            self.process.wait(timeout=30)
        self.process.kill()
        self.process.wait()
        self.errors.seek(0)
        written = self.errors.read().decode(errors="replace")[-2000:]
        self.close()
        return WorkerDied(f"{why} (exit {self.process.returncode})\n{written}")

    def close(self) -> None:
        """Let the worker end: its commands are over."""
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            if stream is not None and not stream.closed:
                stream.close()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@cache
def processor() -> str:
    """The processor's name without what every name has; of AMD's, which share one, the family."""
    lines = [line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines()]
    facts = {key.strip(): value.strip() for key, _, value in reversed(lines)}
    name = facts.get("model name", "unknown")
    for word in ("(R)", "Processor", "@"):
        name = name.replace(word, "")
    family = f" family {facts['cpu family']}" if facts.get("vendor_id") == "AuthenticAMD" else ""
    return " ".join(name.split()) + family


def machine() -> dict[str, Any]:
    """What the numbers were taken on, as each result holds it."""
    text = Path("/proc/cpuinfo").read_text()
    flags = next((line for line in text.splitlines() if line.startswith("flags")), "").split()
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "bf16": [flag for flag in ("avx512_bf16", "amx_bf16") if flag in flags],
        "load_average": os.getloadavg()[0],
        "time": time.strftime("%Y-%m-%d %H:%M"),
    }
