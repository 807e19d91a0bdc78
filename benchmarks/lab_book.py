"""How long the lab book takes: comparing two runs, and listing a lab of a thousand.

    python benchmarks/lab_book.py             the cells that have no result
    python benchmarks/lab_book.py --only runs

Makes records of the stated size (drawn with a fixed seed, nothing was trained), then times the work
in this process and the whole command in one of its own, round after round. A command's time holds
starting Python and writing the page.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from cells import load_results, result_file, save_result
from protocol import Meter
from results import markdown
from workers import machine

from assay.compare.compare_names import compare_runs
from assay.judge.intervals import DRAWS
from assay.runs.records import EvaluationRecord, RecordWriter
from assay.runs.registry import indexed_runs, rebuild_index
from assay.runs.run_directory import RunDirectory, all_runs, create_run
from assay.runs.status import stored_status, write_status

NAME = "lab_book"
ROUNDS = 7
COMMAND = "import sys; sys.argv[0] = 'assay'; from assay.cli.main import app; app()"
SPEC = """\
name = "{name}"
task = "math"
[evaluate.test]
benchmark = "math/gsm8k"
role = "report"
checkpoints = ["base"]
"""
ANSWER = "Each of the 12 boxes holds 7 pens, so that there are 12 * 7 = 84 of them. #### {number}"


@dataclass(frozen=True)
class Cell:
    """One thing that is timed."""

    what: str
    """`compare` or `runs`."""
    runs: int
    items: int
    repeats: int
    limit: float
    """Seconds that it should take at most."""

    @property
    def name(self) -> str:
        """Names the cell's result."""
        return f"{self.what}-{self.runs}x{self.items}x{self.repeats}"


CELLS = (Cell("compare", 2, 1000, 5, 1.0), Cell("runs", 1000, 20, 1, 0.5))


def make_lab(root: Path, cell: Cell) -> list[RunDirectory]:
    """Finished runs whose answers are drawn at random, with an index over them."""
    draw = np.random.default_rng(0)
    items = tuple(f"item-{index:04d}" for index in range(cell.items))
    record = EvaluationRecord(
        name="test",
        benchmark="math/gsm8k",
        role="report",
        items=items,
        items_hash="drawn",
        repeats=cell.repeats,
        sampling={"temperature": 0.7, "max_tokens": 256},
        rendering="drawn",
        checker="drawn",
        options={},
        seed=42,
        shared={},
    )
    for index in range(cell.runs):
        name = f"run-{index:04d}"
        run = create_run(root, name, seed=42, spec=SPEC.format(name=name))
        write_status(run.path, replace(stored_status(run.path), status="finished"))
        run.manifest.write_text(json.dumps({"seed": 42, "base_weights": {"sha256": "drawn"}}))
        write_record(run, record, draw)
    rebuild_index(root)
    return all_runs(root)


def write_record(run: RunDirectory, record: EvaluationRecord, draw: np.random.Generator) -> None:
    """Answers to all items; how hard one is and whether it was solved are drawn."""
    lines = []
    for item, easy in zip(record.items, draw.random(len(record.items)), strict=True):
        for repeat in range(record.repeats):
            score = float(draw.random() < easy)
            lines.append(
                {
                    "sample_id": f"{record.name}/base/{item}#{repeat}",
                    "item_id": item,
                    "repeat": repeat,
                    "output": ANSWER.format(number=84 if score else int(draw.integers(100))),
                    "tokens": draw.integers(0, 49_152, 128).tolist(),
                    "completion_tokens": 128,
                    "prompt_tokens": 200,
                    "score": score,
                    "parts": json.dumps({"format": 1.0, "answer": score}),
                    "error": "" if score else "wrong",
                    "why": "",
                    "ended": "stop",
                    "seconds": 0.1,
                }
            )
    with RecordWriter(run.evaluations, record, "base") as writer:
        writer.write_chunk(0, lines)
        writer.finish()


def work(cell: Cell, root: Path, runs: list[RunDirectory]) -> Callable[[], Any]:
    """What is timed in this process."""
    if cell.what == "compare":
        return lambda: compare_runs(runs[0], runs[1])
    return lambda: (indexed_runs(root), all_runs(root))


def arguments(cell: Cell, root: Path, runs: list[RunDirectory]) -> list[str]:
    """The command that is timed."""
    named = [str(run) for run in runs] if cell.what == "compare" else []
    return [sys.executable, "-c", COMMAND, cell.what, *named, "--lab", str(root)]


def timed_work(call: Callable[[], Any]) -> dict[str, float]:
    """CPU-seconds and wall seconds of one call."""
    meter = Meter.start()
    call()
    return {"cpu": meter.cpu, "wall": meter.wall}


def timed_command(command: list[str]) -> dict[str, float]:
    """CPU-seconds and wall seconds of a process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu": cpu, "wall": wall}


def measure(cell: Cell) -> dict[str, Any]:
    """The medians over the rounds, after one that warms up."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        runs = make_lab(root, cell)
        call, command = work(cell, root, runs), arguments(cell, root, runs)
        rounds = {"work": [], "command": []}
        for _ in range(ROUNDS + 1):
            rounds["work"].append(timed_work(call))
            rounds["command"].append(timed_command(command))
    kept = {kind: taken[1:] for kind, taken in rounds.items()}
    found = {
        kind: {key: statistics.median(t[key] for t in taken) for key in ("cpu", "wall")}
        for kind, taken in kept.items()
    }
    draws = DRAWS if cell.what == "compare" else None
    return {
        "cell": asdict(cell),
        "draws": draws,
        "medians": found,
        "rounds": kept,
        "machine": machine(),
    }


def table() -> str:
    """The results as a Markdown table."""
    heads = ["what", "size", "work, CPU-s", "work, s", "command, CPU-s", "command, s", "at most"]
    rows = []
    for result in load_results(NAME):
        cell, medians = result["cell"], result["medians"]
        draws = f", {result['draws']:,} draws" if result["draws"] else ""
        size = f"{cell['runs']:,} runs of {cell['items']:,} items x {cell['repeats']}{draws}"
        numbers = [f"{medians[kind][key]:.2f}" for kind in medians for key in ("cpu", "wall")]
        rows.append([f"`assay {cell['what']}`", size, *numbers, f"{cell['limit']:g} s"])
    return markdown(heads, rows, words=2)


def seconds(what: str, kind: str, key: str = "wall") -> float | None:
    """The median `wall` or `cpu` seconds of a cell's `work` or whole `command`, at worst."""
    found = [r for r in load_results(NAME) if r["cell"]["what"] == what]
    return max((r["medians"][kind][key] for r in found), default=None)


def main() -> None:
    """Measure the cells that have no result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="cells whose name contains this")
    only = parser.parse_args().only
    for cell in CELLS:
        if only in cell.name and not result_file(NAME, cell.name).exists():
            result = measure(cell)
            file = save_result(NAME, cell.name, result)
            print(f"{file.stem}: {result['medians']}", flush=True)


if __name__ == "__main__":
    main()
