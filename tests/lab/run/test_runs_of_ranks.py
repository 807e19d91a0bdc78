"""Runs whose model several processes train: their ends, their resumption, their launch."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from assay.runs.run_directory import RunDirectory, all_runs, read_manifest, stored_status
from tests.forked import assay
from tests.lab.run.test_kill import everything, steps_done
from tests.tiny_labs import make_lab

pytestmark = pytest.mark.slow

FEW = ["stage.sft.steps=16", "stage.rl.steps=4", "evaluate.sampled.repeats=2"]
SETTINGS = [word for each in FEW for word in ("--set", each)]
WAIT = 240


def start(folder: Path, ranks: int, *more: str):
    """`assay run` with so many processes of one thread."""
    words = ["run", folder / "tiny.toml", "--lab", folder, *SETTINGS]
    words += ["--set", f"engine.ranks={ranks}", *more]
    return assay(*words, log=folder / "log.txt", OMP_NUM_THREADS="1")


def go_on(folder: Path, *words: str) -> None:
    process = assay(
        "resume", "tiny", "--lab", folder, *words, log=folder / "log.txt", OMP_NUM_THREADS="1"
    )
    process.join(WAIT)
    assert process.exitcode == 0, (folder / "log.txt").read_text()[-3000:]


def whole_run(folder: Path, ranks: int, *more: str) -> RunDirectory:
    """A lab's finished run."""
    folder.mkdir()
    make_lab(folder)
    process = start(folder, ranks, *more)
    process.join(WAIT)
    assert process.exitcode == 0, (folder / "log.txt").read_text()[-3000:]
    return all_runs(folder)[0]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_over(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def others_of(pid: int) -> list[psutil.Process]:
    """The ranks that a process started."""
    children = psutil.Process(pid).children()
    return [each for each in children if "assay.lab.run.runner" in each.cmdline()]


def stopped(folder: Path, stage: str, steps: int, *more: str) -> None:
    """A run of two ranks, of which one is killed after so many steps; it ends at once, resumable
    and with one line."""
    folder.mkdir(exist_ok=True)
    make_lab(folder)
    process = start(folder, 2, *more)
    until(lambda: steps_done(folder, stage) >= steps)
    (other,) = others_of(process.pid or 0)
    other.send_signal(signal.SIGKILL)
    process.join(30)
    assert process.exitcode == 1
    last = (folder / "log.txt").read_text().strip().splitlines()[-1]
    assert "rank 1 ended (signal 9)" in last
    status = stored_status(all_runs(folder)[0].path)
    assert status.status == "failed" and "rank 1 ended (signal 9)" in status.message


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> RunDirectory:
    """A run that two ranks trained without an interruption."""
    return whole_run(tmp_path_factory.mktemp("two") / "lab", 2)


def weights(run: RunDirectory, stage: str, step: int) -> dict[str, torch.Tensor]:
    return load_file(run.checkpoint(stage, step) / "model.safetensors")


def first_step(run: RunDirectory) -> tuple[float, float]:
    line = json.loads(run.metrics.read_text().splitlines()[0])
    return line["nll"], line["grad_norm"]


def expect_near(ours: RunDirectory, theirs: RunDirectory) -> None:
    """The same but for rounding, which Adam multiplies where a gradient is almost nothing."""
    assert first_step(ours) == pytest.approx(first_step(theirs), rel=0.01)
    base, own = load_file(theirs.root / "model" / "model.safetensors"), weights(ours, "sft", 16)
    for name, weight in weights(theirs, "sft", 16).items():
        assert (own[name] - weight).norm() < 0.1 * (weight - base[name]).norm(), name


def trained(run: RunDirectory) -> dict[str, object]:
    """Weights, moments, samples and metrics of a run, but for times; where its lab lies is in the
    names of evaluations alone."""
    own = everything(run.path)
    parts = ("checkpoints/", "samples/", "metrics.jsonl")
    return {n: v for n, v in own.items() if n.startswith(parts) and "selection" not in n}


def files(run: RunDirectory) -> list[str]:
    """The names of all that stages wrote."""
    folders = [run.path / "checkpoints", run.path / "samples"]
    return sorted(str(file.relative_to(run.path)) for f in folders for file in f.rglob("*"))


SHARDED = ("--set", "engine.sharded=true")


def test_two_processes_train_what_one_does(two: RunDirectory, tmp_path: Path) -> None:
    one = whole_run(tmp_path / "one", 1)
    expect_near(two, one)
    assert files(one) == files(two)
    assert read_manifest(two)["machine"]["ranks"] == 2
    assert "ranks" not in read_manifest(one)["machine"]


@pytest.mark.parametrize(("stage", "steps"), [("sft", 11), ("rl", 1)])
def test_a_killed_rank_ends_the_run_and_it_is_resumed_bit_by_bit(
    two: RunDirectory, tmp_path: Path, stage: str, steps: int
) -> None:
    stopped(tmp_path, stage, steps)
    go_on(tmp_path)
    assert trained(all_runs(tmp_path)[0]) == trained(two)


def test_a_stopped_rank_ends_the_run_after_its_patience_and_it_is_resumed_bit_by_bit(
    two: RunDirectory, tmp_path: Path
) -> None:
    make_lab(tmp_path)
    process = start(tmp_path, 2, "--set", "engine.patience=1")
    until(lambda: steps_done(tmp_path, "sft") >= 5)
    (other,) = others_of(process.pid or 0)
    other.send_signal(signal.SIGSTOP)
    process.join(WAIT)
    assert process.exitcode == 1 and is_over(other)
    assert "rank 1 is stopped" in (tmp_path / "log.txt").read_text().strip().splitlines()[-1]
    go_on(tmp_path)
    assert trained(all_runs(tmp_path)[0]) == trained(two)


def test_a_run_of_two_ranks_goes_on_with_one(two: RunDirectory, tmp_path: Path) -> None:
    stopped(tmp_path, "sft", 11)
    go_on(tmp_path, "--ranks", "1")
    expect_near(all_runs(tmp_path)[0], two)
    assert read_manifest(all_runs(tmp_path)[0])["time"]["resumed"][0]["changed"]["machine.ranks"]


@pytest.mark.timeout(900)
def test_ranks_with_a_part_of_the_weights_each_write_the_same_files(
    two: RunDirectory, tmp_path: Path
) -> None:
    run = whole_run(tmp_path / "sharded", 2, *SHARDED)
    expect_near(run, two)
    assert files(run) == files(two)
    stopped(tmp_path / "stopped", "sft", 11, *SHARDED)
    go_on(tmp_path / "stopped")
    assert trained(all_runs(tmp_path / "stopped")[0]) == trained(run)


def test_a_run_with_sharded_weights_goes_on_in_one_process(
    two: RunDirectory, tmp_path: Path
) -> None:
    stopped(tmp_path, "sft", 11, *SHARDED)
    go_on(tmp_path, "--ranks", "1")
    expect_near(all_runs(tmp_path)[0], two)


def test_no_rank_outlives_rank_0(tmp_path: Path) -> None:
    make_lab(tmp_path)
    process = start(tmp_path, 2)
    until(lambda: steps_done(tmp_path, "sft") >= 3)
    (other,) = others_of(process.pid or 0)
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    until(lambda: is_over(other))
