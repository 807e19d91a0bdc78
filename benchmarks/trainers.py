"""One GRPO experiment by Assay, TRL, verl and ms-swift, trained for real on the CPU.

    python -m benchmarks.trainers curves    the start, then each trainer with each seed

What is there already is not made again: exported folders and logs lie in build/trainers, Assay's
runs in runs/. One thread; the environments of the tools are needed (`assay engines add trl`, `verl`,
`swift`).
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from assay.engines.environments import installed
from benchmarks.driver import ROOT, say
from benchmarks.process_tree import run_measured
from benchmarks.results import machine
from benchmarks.worker import Record

FILES = ROOT / "experiments" / "chat" / "trainers"
WORK = ROOT / "build" / "trainers"
TOOLS = ("trl", "verl", "swift")
SEEDS = (1, 2)
ALONE = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def assay(*arguments: str | Path) -> list[str | Path]:
    """The command line of Assay, here and now."""
    start = "import sys; from assay.cli.main import app; sys.exit(app())"
    return [sys.executable, "-c", start, "--lab", ROOT, *arguments]


def call(*arguments: str | Path) -> str:
    """What Assay prints. Raises CalledProcessError."""
    done = subprocess.run(assay(*arguments), env=os.environ | ALONE, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def runs_of(name: str) -> list[Path]:
    """The finished runs of that name."""
    found = sorted((ROOT / "runs" / name).glob("*/status.json"))
    return [f.parent for f in found if json.loads(f.read_text())["status"] == "finished"]


def lines_of(file: Path, mark: str) -> int:
    """How many lines of a log have a mark; 0 where it is not there."""
    return file.read_text(errors="replace").count(mark) if file.exists() else 0


def exported(tool: str, folder: Path, settings: Sequence[str]) -> None:
    """The folder that a tool trains, made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    options = [part for each in settings for part in ("--set", each)]
    call("export", FILES / "grpo.toml", folder, "--to", tool, *options)


def steps_of(tool: str, folder: Path, log: Path) -> Callable[[], int]:
    """Counts the steps that a tool has finished."""
    if tool == "verl":
        return lambda: lines_of(folder / "output" / "metrics.jsonl", '"step":')
    return lambda: lines_of(log, "'loss':")


def trained_by(tool: str, folder: Path, *more: str) -> Record:
    """What a tool took to train an exported folder."""
    log = folder / "run.log"
    environment = {**ALONE, "PYTHON": str(installed(tool)), "ASSAY_PYTHON": sys.executable}
    counter = steps_of(tool, folder, log)
    command = ["bash", "run.sh", *more]
    return run_measured(command, log, counter, folder=folder, environment=environment)


def trained_here(folder: Path, *settings: str) -> Record:
    """What Assay took to train the experiment, which it also evaluates."""
    folder.mkdir(parents=True, exist_ok=True)
    options = [part for each in settings for part in ("--set", each)]
    before = set((ROOT / "runs").glob("*/*"))

    def done() -> int:
        new = set((ROOT / "runs").glob("*/*")) - before
        return sum(lines_of(run / "metrics.jsonl", '"step":') for run in new)

    command = assay("run", FILES / "grpo.toml", "--new", *options)
    return run_measured(command, folder / "run.log", done, folder=ROOT, environment=ALONE)


def curves() -> None:
    """Each trainer with each seed, a run after the other."""
    if not runs_of("trainers-start"):
        call("run", FILES / "start.toml")
    for seed in SEEDS:
        for tool in ("assay", *TOOLS):
            folder = WORK / f"{tool}-{seed}"
            file = folder / "measured.json"
            if file.exists():
                continue
            say(f"{tool}, seed {seed}")
            before, own = machine(), f"seeds=[{seed}]"
            if tool == "assay":
                result = trained_here(folder, own)
            else:
                exported(tool, folder, [own])
                result = trained_by(tool, folder)
            file.write_text(json.dumps({"machine": before, **result}, indent=1) + "\n")


if __name__ == "__main__":
    curves()
