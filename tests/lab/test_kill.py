"""kill -9 at any instant: a resumed run ends with the weights and records of an unbroken one."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from assay.lab.run_directory import all_runs
from assay.lab.verify import verify_run
from tests.tiny_lab import make_tiny_lab

TIMES = {"seconds", "rollout_seconds", "update_seconds", "peak_memory_mb"}
# A stage is checked whenever it starts, so a resumed one says so at a step of its own.
CHECK = "self_check_"
# More answers than one chunk holds, so that a kill can leave a record half written.
SETTINGS = ["--set", "evaluate.sampled.repeats=80", "--set", "stage.rl.steps=12"]


def command(folder: Path) -> list[str]:
    launch = "from assay.cli.main import app; app()"
    return [
        sys.executable,
        "-c",
        launch,
        "run",
        "tiny.toml",
        "--or-resume",
        "--lab",
        str(folder),
        *SETTINGS,
    ]


def spawn(folder: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    log = (folder / "log.txt").open("ab")
    return subprocess.Popen(
        command(folder), cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
    )


def finish(folder: Path) -> Path:
    """Run, or go on, to the end; returns the only run's folder."""
    process = spawn(folder)
    code = process.wait(timeout=240)
    assert code == 0, (folder / "log.txt").read_text()[-3000:]
    (run,) = (folder / "runs" / "tiny").iterdir()
    return run


def any_of(folder: Path, pattern: str) -> bool:
    return next((folder / "runs").glob(f"tiny/[!.]*/{pattern}"), None) is not None


def steps_done(folder: Path, stage: str) -> int:
    for file in (folder / "runs").glob("tiny/*/metrics.jsonl"):
        return sum(
            json.loads(line)["stage"] == stage
            for line in file.read_text().splitlines()
            if line.endswith("}")
        )
    return 0


INSTANTS: dict[str, Callable[[Path], bool]] = {
    "before the first step": lambda f: any_of(f, "manifest.json"),
    "during sft": lambda f: steps_done(f, "sft") >= 11,
    "while a checkpoint is written": lambda f: any_of(f, "checkpoints/sft/.step-000016.part"),
    "while dev items are answered": lambda f: any_of(f, "evaluations/dev-*/sft.step-000024.parts"),
    "late in sft": lambda f: steps_done(f, "sft") >= 37,
    "while a rollout is judged": lambda f: steps_done(f, "rl") >= 1,
    "between journal and update": lambda f: any_of(f, "samples/rl/step-000002.parquet"),
    "while a checkpoint of rl is written": lambda f: any_of(f, "checkpoints/rl/.step-*.part"),
    "late in rl": lambda f: steps_done(f, "rl") >= 9,
    "while the test is answered": lambda f: any_of(f, "evaluations/test-*/*.parts"),
    "between two chunks": lambda f: any_of(f, "evaluations/sampled-*/*.parts/00000.parquet"),
    "while the last is measured": lambda f: any_of(f, "evaluations/sampled-*/rl.step-*.parts"),
}


def kill_at(folder: Path, instant: Callable[[Path], bool], delay: float) -> bool:
    """Start or resume, wait for the instant, kill the process and all of its group."""
    process = spawn(folder)
    deadline = time.monotonic() + 120
    while not instant(folder):
        if process.poll() is not None or time.monotonic() > deadline:
            return False
        time.sleep(0.0005)
    time.sleep(delay)
    alive = process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert faults(folder) <= {"unknown"}, "what a kill left half written is no damage"
    return alive


def faults(folder: Path) -> set[str]:
    """The kinds of faults that `assay verify` finds in the lab's runs."""
    return {fault.kind for run in all_runs(folder) for fault in verify_run(run).faults}


def everything(run: Path) -> dict[str, object]:
    """All that a run recorded, but for times."""
    found: dict[str, object] = {}
    for file in sorted(run.rglob("*")):
        name = str(file.relative_to(run))
        if file.suffix == ".parquet":
            table = pq.read_table(file)
            kept = [column for column in table.column_names if column != "seconds"]
            found[name] = table.select(kept).to_pylist()
        elif file.suffix == ".safetensors":
            found[name] = {k: v.numpy().tobytes() for k, v in load_file(file).items()}
        elif file.name in ("optimizer.pt", "random.pt"):
            found[name] = str(torch.load(file, weights_only=True))
        elif file.name == "metrics.jsonl":
            lines = [json.loads(line) for line in file.read_text().splitlines()]
            found[name] = [
                {k: v for k, v in line.items() if k not in TIMES and not k.startswith(CHECK)}
                for line in lines
            ]
        elif file.name in ("state.json", "selection.json", "spec.toml", "evaluation.json"):
            found[name] = file.read_text()
    return found


@pytest.mark.timeout(900)
def test_killed_at_twelve_instants_and_resumed_a_run_ends_bit_identical(tmp_path):
    random.seed(20)
    make_tiny_lab(tmp_path)
    expected = everything(finish(tmp_path))
    # The same folder serves twice, because the paths in it are part of what is fingerprinted.
    shutil.move(tmp_path / "runs", tmp_path / "unbroken")
    (tmp_path / "lab.sqlite").unlink()
    hit = {
        name: kill_at(tmp_path, instant, random.uniform(0, 0.02))
        for name, instant in INSTANTS.items()
    }
    assert sum(hit.values()) >= 10, f"too few kills met a living process: {hit}"
    found = everything(finish(tmp_path))
    assert faults(tmp_path) == set()
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == value, f"{name} differs after kills"
