"""A benchmark of three cells over stub workers, as its own process: `FOLDER` is its argument.

`FOLDER/hang`, while it is there, makes the second cell's worker hang.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.driver import (
    Limits,
    Side,
    kept_choices,
    measure_in_turn,
    measure_missing,
    running,
    summary_lines,
)
from benchmarks.worker import Record

from benchmarks import results

FOLDER = Path(sys.argv[1])


@dataclass(frozen=True)
class Cell:
    """A cell of a stub."""

    name: str
    dtype: str = "fp32"


def choose() -> Record:
    """Some settings; logs that they were searched for."""
    with (FOLDER / "log").open("a") as log:
        log.write("choose\n")
    return {"rows": 2}


def measure(cell: Cell) -> Record:
    """One step of one side."""
    choices = kept_choices("stub", cell.name, choose)
    settings: Record = {"name": cell.name, "costs": [9.0, 1.0], "log": str(FOLDER / "log")}
    if cell.name == "second":
        settings["hang"] = str(FOLDER / "hang")
    with running([Side("assay", "tests.benchmarks.stub_worker", settings)]) as (workers, failures):
        limits = Limits(seconds=60, most=1)
        measured = measure_in_turn(workers, failures, limits, lambda n, _: workers[n].ask("step"))
    return {"choices": choices, **measured.record()}


if __name__ == "__main__":
    results.RESULTS = FOLDER / "results"
    cells = [Cell(name) for name in ("first", "second", "third")]
    measure_missing("stub", cells, measure, summary_lines)
