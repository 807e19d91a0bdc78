"""Results of benchmark cells: one JSON file each, written whole or not at all.

They lie in `benchmarks/results/<benchmark>/<processor>/`. A cell that has a file there is done on
that processor: a benchmark that was interrupted goes on with the first cell that has none. Delete a
file to measure its cell again. What a cell's search for settings found is kept until the cell has
its result.
"""

import json
import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from workers import Worker, processor

RESULTS = Path(__file__).with_name("results")
MOST_ROUNDS = 5
WORSE = 1.03
"""What costs at most so much more than the best is as good."""
Step = dict[str, Any]
"""What a worker says of one step."""


class Named(Protocol):
    """A cell."""

    @property
    def name(self) -> str:
        """Names its result."""
        ...


AnyCell = TypeVar("AnyCell", bound=Named)


def result_file(benchmark: str, name: str) -> Path:
    """Where a cell's result lies or will lie, measured on this machine's processor."""
    folder = re.sub(r"[^a-z0-9]+", "-", processor().lower())
    return RESULTS / benchmark / folder / f"{name}.json"


def measured_anywhere(benchmark: str, name: str) -> bool:
    """Whether a cell has a result, of whichever processor."""
    return any((RESULTS / benchmark).glob(f"*/{name}.json"))


def save_result(benchmark: str, name: str, result: Mapping[str, Any]) -> Path:
    """Write a cell's result."""
    file = result_file(benchmark, name)
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f".{file.name}")
    unfinished.write_text(json.dumps(result, indent=1) + "\n")
    return unfinished.rename(file)


def kept_choices(benchmark: str, name: str, choose: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `choose` finds; a cell that is begun again does not search again."""
    file = result_file(benchmark, choices_of(name))
    if not file.exists():
        save_result(benchmark, choices_of(name), choose())
    return json.loads(file.read_text())


def choices_of(name: str) -> str:
    """What a cell's choices are called until it has its result: no result of a cell is so."""
    return f".{name}.choices"


def load_results(benchmark: str) -> list[dict[str, Any]]:
    """All results of a benchmark, by processor and file name."""
    files = sorted((RESULTS / benchmark).glob("*/[!.]*.json"))
    return [json.loads(file.read_text()) for file in files]


def smallest_good(tried: Sequence[Mapping[str, Any]], cost: str) -> Mapping[str, Any]:
    """The first that costs hardly more than the best: the smaller ones need less memory."""
    fitting = [one for one in tried if cost in one]
    least = min(one[cost] for one in fitting)
    return next(one for one in fitting if one[cost] <= WORSE * least)


def medians(steps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median of each number over the steps; of the peak, the largest."""
    found = {name: statistics.median(step[name] for step in steps) for name in steps[0]}
    return found | {"peak_bytes": max(step["peak_bytes"] for step in steps)}


def say(text: str) -> None:
    """Print at once."""
    print(text, flush=True)


def measure_missing(
    benchmark: str,
    cells: Sequence[AnyCell],
    measure: Callable[[AnyCell], dict[str, Any]],
    summary: Callable[[Mapping[str, Any]], str],
    *,
    anew: bool = False,
) -> None:
    """Measure the cells that have no result yet, or all of them `anew`, and say what came out."""
    for number, cell in enumerate(cells, 1):
        say(f"[{number}/{len(cells)}] {cell.name}")
        if not anew and result_file(benchmark, cell.name).exists():
            say("  measured already")
            continue
        result = measure(cell)
        save_result(benchmark, cell.name, result)
        result_file(benchmark, choices_of(cell.name)).unlink(missing_ok=True)
        say(summary(result))


def interleaved(
    workers: Mapping[str, Worker],
    seconds: float,
    finish: Callable[[str, Step], str],
    most: int = MOST_ROUNDS,
) -> dict[str, list[Step]]:
    """Rounds of one step of each side in turn, after a step of each that is not counted.

    At least one round, and no round that would end after `seconds` if it took as long as the last.
    `finish` completes or refuses what a side said of its step, and puts it in a few words.
    """
    for worker in workers.values():
        worker.ask("step")
    steps: dict[str, list[Step]] = {name: [] for name in workers}
    started = time.perf_counter()
    for _ in range(most):
        begun = time.perf_counter()
        words = []
        for name, worker in workers.items():
            step = worker.ask("step")
            words.append(f"{name} {finish(name, step)}")
            steps[name].append(step)
        say("  " + "   ".join(words))
        now = time.perf_counter()
        if now - started + (now - begun) > seconds:
            break
    return steps
