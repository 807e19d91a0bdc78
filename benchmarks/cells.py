"""Results of benchmark cells: one JSON file each, written whole or not at all.

They lie in `benchmarks/results/<benchmark>/`. A cell that has a file is done: a benchmark that was
interrupted goes on with the first cell that has none. Delete a file to measure its cell again.
"""

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results")


def result_file(benchmark: str, name: str) -> Path:
    """Where a cell's result lies or will lie."""
    return RESULTS / benchmark / f"{name}.json"


def save_result(benchmark: str, name: str, result: Mapping[str, Any]) -> Path:
    """Write a cell's result."""
    file = result_file(benchmark, name)
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f".{file.name}")
    unfinished.write_text(json.dumps(result, indent=1) + "\n")
    return unfinished.rename(file)


def load_results(benchmark: str) -> list[dict[str, Any]]:
    """All results of a benchmark, by file name."""
    files = sorted((RESULTS / benchmark).glob("[!.]*.json"))
    return [json.loads(file.read_text()) for file in files]


def medians(steps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median of each number over the steps; of the peak, the largest."""
    found = {name: statistics.median(step[name] for step in steps) for name in steps[0]}
    return found | {"peak_bytes": max(step["peak_bytes"] for step in steps)}
