"""Sides in processes of their own: measured in turn, failures recorded, killed and resumed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from benchmarks.driver import (
    ROOT,
    Limits,
    Measured,
    Side,
    measure_in_turn,
    running,
)

STUB = "tests.benchmarks.stub_worker"
LIMITS = Limits(seconds=60, most=3)


def side(name: str, folder: Path, costs: list[float], **settings: Any) -> Side:
    """A stub side."""
    given = {"name": name, "costs": costs, "log": str(folder / "log"), **settings}
    return Side(name, STUB, given)


def measured(sides: list[Side], limits: Limits = LIMITS) -> Measured:
    """What the sides come to."""
    with running(sides) as (workers, failures):
        return measure_in_turn(workers, failures, limits, lambda n, _: workers[n].ask("step"))


def log_of(folder: Path) -> list[str]:
    return (folder / "log").read_text().splitlines()


def test_sides_take_turns_and_the_warm_up_is_not_counted(tmp_path: Path) -> None:
    found = measured(
        [side("a", tmp_path, [50, 1, 5, 3]), side("b", tmp_path, [90, 4, 10, 9])]
    ).record()
    assert log_of(tmp_path) == [f"{name} {n}" for n in range(4) for name in "ab"]
    assert found["medians"]["a"] == {"cpu": 3, "wall": 6, "peak_bytes": 103}
    assert found["medians"]["b"]["cpu"] == 9
    assert (found["failures"], found["versions"]["a"]) == ({}, {"stub": "1.0"})


@pytest.mark.parametrize("crash", [0, 2])
def test_a_side_that_crashes_is_recorded_as_failed_without_a_number(
    tmp_path: Path, crash: int
) -> None:
    sides = [side("a", tmp_path, [1] * 4), side("b", tmp_path, [1] * 4, crash=crash)]
    found = measured(sides).record()
    assert (set(found["steps"]), len(found["steps"]["a"])) == ({"a"}, 3)
    assert set(found["medians"]) == set(found["versions"]) == {"a"}
    assert "exit 1" in found["failures"]["b"]
    assert "no more memory" in found["failures"]["b"]


def stub_benchmark(folder: Path) -> subprocess.Popen[bytes]:
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.stub_benchmark", str(folder)],
        env={**os.environ, "PYTHONPATH": paths},
        start_new_session=True,
    )


@pytest.mark.slow
def test_a_killed_benchmark_goes_on_with_the_cell_it_was_in(tmp_path: Path) -> None:
    (tmp_path / "hang").touch()
    process = stub_benchmark(tmp_path)
    deadline = time.monotonic() + 120
    while not (tmp_path / "log").exists() or "second 0" not in log_of(tmp_path):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert names(tmp_path) == {".second.choices", "first"}
    (tmp_path / "hang").unlink()
    assert stub_benchmark(tmp_path).wait() == 0
    assert names(tmp_path) == {"first", "second", "third"}
    asked = ["choose", "first 0", "first 1", "choose", "second 0"]
    assert log_of(tmp_path) == [*asked, "second 0", "second 1", "choose", "third 0", "third 1"]
    (file,) = tmp_path.glob("results/stub/*/second.json")
    assert json.loads(file.read_text())["medians"]["assay"]["cpu"] == 1


def names(folder: Path) -> set[str]:
    """Names of the files with results and choices."""
    return {file.stem for file in folder.glob("results/stub/*/*")}
