"""The driver's end of a benchmark: starts each side in its own process and measures them in turn.

A side is warmed up by one step that is not counted; then every round asks each side for one step.
A side that dies, runs out of memory or returns a step that is refused is recorded as failed, with
the reason and without a number. Where other programs fill the machine, MachineFull ends the
benchmark without a result.
"""

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar

import psutil

from assay.models.precision import bf16_hardware
from benchmarks.environments import environment
from benchmarks.results import medians, result_file, save_result
from benchmarks.worker import Record

ROOT = Path(__file__).parents[1]
MOST_ROUNDS = 5
MEMORY_SHARE = 0.75
"""Of the machine's memory, the most that one worker may hold."""
LEAST_AVAILABLE = 0.03
"""Of the machine's memory; below it the worker at work is ended before the kernel picks one."""
OWN_SHARE = 0.4
"""A worker below it did not fill the machine: other programs did, and that is no result."""
WATCH_SECONDS = 0.25
WORSE = 1.03
"""An option that costs at most so much more than the best counts as equally good."""


class SideFailed(Exception):
    """A side has no number for this cell: its process is gone, or its step is refused."""

    def __init__(self, side: str, why: str):
        super().__init__(why)
        self.side = side


class MachineFull(Exception):
    """Other programs left too little memory to measure anything."""


@dataclass(frozen=True)
class Side:
    """How one side of a comparison is started."""

    name: str
    module: str
    """The worker's module, run as `python -m`."""
    settings: Mapping[str, Any]
    """Its first argument, as JSON."""
    threads: int = 1
    environment: str | None = None
    """A name of `environments`; None is this program's own Python."""
    python: str | None = None
    """Another Python that is there already."""
    paths: tuple[Path, ...] = (ROOT,)
    """Where it finds its modules first."""

    def start(self) -> "Worker":
        """Start the process; raises SideFailed where its environment cannot be made."""
        try:
            own = Path(self.python or sys.executable)
            python = environment(self.environment) if self.environment else own
        except subprocess.CalledProcessError as error:
            raise SideFailed(self.name, f"its environment cannot be made: {error}") from error
        return Worker(python, self)


class Worker:
    """A process that answers JSON lines with JSON lines."""

    def __init__(self, python: Path, side: Side):
        self.name = side.name
        self.failure: SideFailed | None = None
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 closed with the worker
        self.process = subprocess.Popen(
            # -P: else the folder it is started from hides the modules of another commit.
            [python, "-P", "-m", side.module, json.dumps(dict(side.settings))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=worker_environment(side.threads, side.paths),
        )

    @cached_property
    def ready(self) -> Record:
        """The first answer; read late, so that several workers can load side by side."""
        return self.answer()

    def ask(self, do: str, **arguments: Any) -> Record:
        """Give a command and wait for its answer; raises SideFailed where the process is gone."""
        if self.failure is not None:
            raise self.failure
        _ = self.ready
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self.failed("it ended by itself") from None
        return self.answer()

    def answer(self) -> Record:
        """The next line, while the worker's memory is watched."""
        assert self.process.stdout is not None
        total = psutil.virtual_memory().total
        while not select.select([self.process.stdout], [], [], WATCH_SECONDS)[0]:
            held = psutil.Process(self.process.pid).memory_info().rss
            if held > MEMORY_SHARE * total:
                raise self.failed(f"it held more than {MEMORY_SHARE:.0%} of memory")
            if psutil.virtual_memory().available < LEAST_AVAILABLE * total:
                failed = self.failed("the machine was about to run out of memory")
                raise failed if held > OWN_SHARE * total else MachineFull(str(failed))
        line = self.process.stdout.readline()
        if not line:
            raise self.failed("it ended by itself")
        return json.loads(line)

    def failed(self, why: str) -> SideFailed:
        """End the process; the error ends with the last lines that it wrote."""
        assert self.process.stdout is not None
        if select.select([self.process.stdout], [], [], 0)[0]:
            # Its output has ended, so it is ending with a status of its own.
            self.process.wait(timeout=30)
        self.process.kill()
        self.process.wait()
        self.errors.seek(0)
        written = self.errors.read().decode(errors="replace")[-2000:]
        self.close()
        reason = f"{why} (exit {self.process.returncode})\n{written}".strip()
        self.failure = SideFailed(self.name, reason)
        return self.failure

    def close(self) -> None:
        """Close its input, which ends it."""
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


def worker_environment(threads: int, first: Sequence[Path] = (ROOT,)) -> dict[str, str]:
    """Environment variables of a worker: its threads, no downloads, modules of its own first."""
    paths = [*map(str, first), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "PYTHONWARNINGS": "ignore",
    }


@dataclass(frozen=True)
class Limits:
    """How many counted rounds there are."""

    seconds: float
    """Wall seconds that the rounds should not exceed."""
    least: int = 1
    most: int = MOST_ROUNDS


@dataclass(frozen=True)
class Measured:
    """What the sides of one cell came to."""

    steps: dict[str, list[Record]]
    """The counted steps of every side that did not fail."""
    failures: dict[str, str]
    """Why each other side has no number."""
    versions: dict[str, dict[str, str]]

    def record(self) -> Record:
        """As a result file holds it."""
        return {
            "versions": self.versions,
            "steps": self.steps,
            "medians": {name: medians(steps) for name, steps in self.steps.items()},
            "failures": self.failures,
        }


@contextmanager
def running(sides: Sequence[Side]) -> Iterator[tuple[dict[str, Worker], dict[str, str]]]:
    """The workers of the sides that start, and why each of the others does not."""
    failures: dict[str, str] = {}
    with ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for side in sides:
            with recorded(failures):
                workers[side.name] = stack.enter_context(side.start())
        yield workers, failures


@contextmanager
def recorded(failures: dict[str, str], name: str = "") -> Iterator[None]:
    """Record the failure of a side inside, as that of `name` if given; MachineFull passes."""
    try:
        yield
    except SideFailed as reason:
        failures[name or reason.side] = str(reason)
        say(f"  {name or reason.side} failed: {str(reason).splitlines()[0]}")


def measure_in_turn(
    workers: Mapping[str, Worker],
    failures: dict[str, str],
    limits: Limits,
    step: Callable[[str, int], Record],
) -> Measured:
    """Rounds of one step of each side in turn; round 0 warms up and is not counted.

    `step(name, round)` asks a side, and raises SideFailed where it refuses the answer. After
    `least` rounds none is begun that would end after `seconds` if it took as long as the last.
    """
    steps: dict[str, list[Record]] = {name: [] for name in workers}
    started = time.perf_counter()
    for number in range(1 + limits.most):
        round_started = time.perf_counter()
        for name in workers:
            if name not in failures:
                with recorded(failures, name):
                    steps[name].append(step(name, number))
        now = time.perf_counter()
        if number == 0:
            steps, started = {name: [] for name in workers}, now
            continue
        taken = {name: each[-1]["cpu"] for name, each in steps.items() if name not in failures}
        words = (f"{name} {seconds:.2f} CPU-s" for name, seconds in taken.items())
        say(f"  round {number}: " + "   ".join(words))
        if number >= limits.least and now - started + (now - round_started) > limits.seconds:
            break
    kept = {name: taken for name, taken in steps.items() if name not in failures}
    return Measured(kept, failures, {name: workers[name].ready["versions"] for name in kept})


def try_options(
    worker: Worker,
    do: str,
    options: Sequence[Record],
    cost: str,
    worth: Callable[[Record, Sequence[Record]], bool] = lambda option, tried: True,
) -> list[Record]:
    """Each option that is `worth` trying, with the worker's answer; one that does not fit is last.

    Raises SideFailed where not even the first fits. The first is asked for twice, since the first
    call makes what later ones reuse.
    """
    tried: list[Record] = []
    try:
        worker.ask(do, **options[0])
        for option in options:
            if worth(option, tried):
                tried.append(dict(option))
                tried[-1].update(worker.ask(do, **option))
    except SideFailed as reason:
        if not any(cost in one for one in tried):
            raise
        tried[-1]["does_not_fit"] = str(reason).splitlines()[0]
    return tried


def smallest_good(tried: Sequence[Record], cost: str) -> Record:
    """The first that costs hardly more than the best: the smaller ones need less memory."""
    fitting = [one for one in tried if cost in one]
    least = min(one[cost] for one in fitting)
    return next(one for one in fitting if one[cost] <= WORSE * least)


class Cell(Protocol):
    """One comparison; a frozen dataclass of words and numbers."""

    @property
    def name(self) -> str:
        """Names its result file."""
        ...

    @property
    def dtype(self) -> str:
        """fp32 or bf16."""
        ...


AnyCell = TypeVar("AnyCell", bound=Cell)


def chosen_cells(
    text: str | None, kind: type[AnyCell], grids: Mapping[str, Callable[[], list[AnyCell]]]
) -> tuple[str, list[AnyCell]]:
    """What the command line asks for: the name of a grid and its cells, or `cell` and that one."""
    parser = parser_of(text)
    parser.add_argument("what", choices=[*grids, "cell"])
    parser.add_argument("values", nargs="*", help="fields of the cell, as prompt=32")
    parser.add_argument("--only", default="", help="cells whose name contains this")
    given = parser.parse_args()
    if given.what == "cell":
        types = {field.name: field.type for field in fields(kind)}  # type: ignore[arg-type]
        pairs = dict(value.split("=", 1) for value in given.values)
        numbers = {n: int(v) if types[n] in (int, bool) else v for n, v in pairs.items()}
        return given.what, [kind(**numbers)]
    return given.what, [cell for cell in grids[given.what]() if given.only in cell.name]


def measure_missing(
    subject: str,
    cells: Sequence[AnyCell],
    measure: Callable[[AnyCell], Record],
    summary: Callable[[Record], str],
    *,
    anew: bool = False,
) -> None:
    """Measure the cells that have no result, or all of them `anew`; none in bf16 without support.

    A cell's result is written when it is complete; a killed benchmark loses at most one cell.
    """
    runnable = [cell for cell in cells if cell.dtype == "fp32" or bf16_hardware("cpu")]
    for number, cell in enumerate(runnable, 1):
        say(f"[{number}/{len(runnable)}] {cell.name}")
        if not anew and result_file(subject, cell.name).exists():
            say("  measured already")
            continue
        result = measure(cell)
        save_result(subject, cell.name, result)
        kept_choices_file(subject, cell.name).unlink(missing_ok=True)
        say(summary(result))


def kept_choices(subject: str, name: str, choose: Callable[[], Record]) -> Record:
    """What `choose` finds; a cell that is measured again after a kill does not search again."""
    file = kept_choices_file(subject, name)
    if not file.exists():
        save_result(subject, file.stem, choose())
    return json.loads(file.read_text())


def kept_choices_file(subject: str, name: str) -> Path:
    """Where a cell's choices lie until it has its result; no result of a cell is named so."""
    return result_file(subject, f".{name}.choices")


def summary_lines(result: Record, cost: str = "cpu") -> str:
    """Medians of every side, and what they are of Assay's; failures by name."""
    ours = result["medians"].get("assay", {}).get(cost)
    lines = []
    for name, values in result["medians"].items():
        times = f" ({values[cost] / ours:.2f}x)" if ours else ""
        memory = f"{values['peak_bytes'] / 2**30:.2f} GiB"
        lines.append(f"  {name:16} {values[cost]:.4g} {cost}{times}  {memory}")
    return "\n".join([*lines, *(f"  {name:16} failed" for name in result["failures"])])


def parser_of(text: str | None) -> ArgumentParser:
    """A command line whose help is the first line of a program's docstring."""
    return ArgumentParser(description=(text or "").splitlines()[0])


def say(text: str) -> None:
    """Print at once."""
    print(text, flush=True)
