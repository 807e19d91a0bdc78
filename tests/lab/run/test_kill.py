"""kill -9 at any instant: a resumed run ends with the weights and records of an unbroken one."""

import json
import random
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from assay.runs.run_directory import all_runs
from assay.runs.verify_files import verify_run
from tests.forked import assay, kill
from tests.tiny_labs import make_lab

TIMES = {"seconds", "cpu_seconds", "rollout_seconds", "update_seconds"}
TIMES |= {"peak_memory_mb", "host_memory_mb"}
# A stage is checked whenever it starts, so a resumed one says so at a step of its own.
CHECK = "self_check_"
# More answers than one chunk holds, so that a kill can leave a record half written.
SETTINGS = ["--set", "evaluate.sampled.repeats=80", "--set", "stage.rl.steps=12"]


def spawn(folder: Path, settings: Sequence[str]) -> BaseProcess:
    """`assay run` in a process of its own."""
    words = ["run", folder / "tiny.toml", "--or-resume", "--lab", folder, *settings]
    return assay(*words, log=folder / "log.txt", HF_HUB_OFFLINE="1")


def finish(folder: Path, settings: Sequence[str]) -> Path:
    """Run, or go on, to the end; returns the only run's folder."""
    process = spawn(folder, settings)
    process.join(240)
    assert process.exitcode == 0, (folder / "log.txt").read_text()[-3000:]
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
    # Or just behind it: where nobody looked in time, the run must not end before it is killed.
    "while a checkpoint is written": lambda f: any_of(f, "checkpoints/sft/*step-000016*"),
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


def kill_at(
    folder: Path, settings: Sequence[str], instant: Callable[[Path], bool], delay: float
) -> bool:
    """Start or resume, wait for the instant, kill the process and all of its group."""
    process = spawn(folder, settings)
    deadline = time.monotonic() + 120
    while not instant(folder):
        if not process.is_alive() or time.monotonic() > deadline:
            return False
        time.sleep(0.0005)
    time.sleep(delay)
    alive = process.is_alive()
    kill(process)
    assert faults(folder) <= {"unknown"}, "what a kill left half written is no damage"
    return alive


def faults(folder: Path) -> set[str]:
    """The kinds of faults that `assay runs verify` finds in the lab's runs."""
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


def assert_same(found: Mapping[str, object], expected: Mapping[str, object]) -> None:
    """Two runs recorded the same; one file after the other, so that it is named."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == value, name


def killed_and_resumed(tmp_path: Path, settings: Sequence[str], instants: Sequence[str]) -> int:
    """How many kills met a living process; all that is recorded is as without them."""
    random.seed(20)
    make_lab(tmp_path)
    expected = everything(finish(tmp_path, settings))
    # The same folder serves twice, because the paths in it are part of what is fingerprinted.
    shutil.move(tmp_path / "runs", tmp_path / "unbroken")
    (tmp_path / "lab.sqlite").unlink()
    hits = sum(
        kill_at(tmp_path, settings, INSTANTS[name], random.uniform(0, 0.02)) for name in instants
    )
    found = everything(finish(tmp_path, settings))
    assert faults(tmp_path) == set()
    assert_same(found, expected)
    return hits


FEW = ("while a checkpoint is written", "between journal and update", "while the test is answered")
"""The instants at which something of each kind is half written."""
ONE_WORKER = [
    f"{table}.reward_workers=1"
    for table in ("stage.rl", "evaluate.dev", "evaluate.test", "evaluate.sampled")
]
LESS = [
    word
    for setting in ("stage.sft.steps=16", "stage.rl.steps=3", *ONE_WORKER)
    for word in ("--set", setting)
]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("instants", "settings", "met"),
    [(FEW, LESS, 2), pytest.param(tuple(INSTANTS), SETTINGS, 10, marks=pytest.mark.slow)],
    ids=["three", "twelve"],
)
def test_killed_at_many_instants_and_resumed_a_run_ends_bit_identical(
    tmp_path: Path, instants: Sequence[str], settings: Sequence[str], met: int
) -> None:
    assert killed_and_resumed(tmp_path, settings, instants) >= met
