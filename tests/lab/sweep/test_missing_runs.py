"""Filling a sweep: one process per device, failures reported at the end, a kill loses nothing.

The fast tests put a small program in the place of `assay run`; the slow one trains.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from assay.errors import InputError
from assay.lab.sweep import missing_runs
from assay.lab.sweep.missing_runs import Done, devices_of, missing_work, run_jobs, threads_of
from assay.lab.sweep.read_sweep import read_sweep
from assay.runs.run_directory import read_status, runs_of
from tests.forked import forked
from tests.lab.pivot_lab import HARD, TEST, PivotLab, make_pivot_lab, ones, score
from tests.lab.run.test_runs_of_ranks import is_over
from tests.tiny_labs import RL, make_lab

SWEEP = """\
name = "s"
base = "base.toml"
on = ["test"]
[axes]
stage.sft.batch = [2, 4, 8]
"""
STUB = """
import os, pathlib, sys, time, tomllib
root = pathlib.Path(sys.argv[sys.argv.index("--lab") + 1])
own = tomllib.loads(pathlib.Path(sys.argv[2]).read_text())["name"]
given = [a for a in sys.argv if a.startswith("name=")]
name = given[0].partition("=")[2].strip('"') if given else own
mark = root / "marks" / name
mark.parent.mkdir(exist_ok=True)
began = time.monotonic()
(root / "begun").mkdir(exist_ok=True)
(root / "begun" / name).touch()
together = int(os.environ.get("TOGETHER", 1))
while len(list((root / "begun").iterdir())) < together and time.monotonic() < began + 30:
    time.sleep(0.01)
print("a line of progress", flush=True)
time.sleep(float(os.environ.get("LINGER", 0)))
if name in os.environ.get("FAILS", "").split():
    print("assay: disk full", file=sys.stderr)
    sys.exit(1)
threads = os.environ.get("OMP_NUM_THREADS", "")
device = os.environ["CUDA_VISIBLE_DEVICES"]
text = f"{device} {began} {time.monotonic()} {threads} {' '.join(sys.argv)}"
mark.write_text(text)
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PivotLab:
    monkeypatch.setattr(missing_runs, "PROGRAM", STUB)
    lab = make_pivot_lab(tmp_path)
    lab.sweep(SWEEP)
    return lab


def filled(lab: PivotLab, devices: list[str], told: list[str] | None = None) -> list[Done]:
    work = missing_work(lab.root, read_sweep(lab.root / "sweep.toml"))
    return run_jobs(work.jobs, devices, (told if told is not None else []).append)


def marks(lab: PivotLab) -> dict[str, tuple[str, float, float, str]]:
    """Device, start, end and threads of every stubbed run."""
    found = {}
    for file in (lab.root / "marks").iterdir():
        device, began, ended, threads, *_ = file.read_text().split(" ")
        found[file.name] = (device, float(began), float(ended), threads)
    return found


def test_every_missing_run_is_executed_with_its_settings_one_at_a_time(lab, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    monkeypatch.setenv("LINGER", "0.5")
    told: list[str] = []
    done = filled(lab, ["cpu"], told)
    assert [d.code for d in done] == [0, 0, 0]
    found = marks(lab)
    assert set(found) == {"s.batch-2", "s.batch-4", "s.batch-8"}
    assert {device for device, *_ in found.values()} == {""}, "on the CPU no GPU is seen"
    spans = sorted((began, ended) for _, began, ended, _ in found.values())
    assert all(first[1] <= second[0] for first, second in pairwise(spans))
    said = (lab.root / "marks" / "s.batch-4").read_text()
    for part in ("run", "--or-resume", "stage.sft.batch=4", 'name="s.batch-4"', "seeds=[1]"):
        assert part in said
    assert told[0] == "s.batch-2#1: started on cpu (2 waiting)"
    assert told[1] == "s.batch-2#1: a line of progress"


def test_two_devices_work_side_by_side_each_seeing_itself_alone(lab, monkeypatch):
    monkeypatch.setenv("TOGETHER", "2")
    filled(lab, ["0", "3"])
    found = marks(lab)
    assert {device for device, *_ in found.values()} == {"0", "3"}
    first, second = found["s.batch-2"], found["s.batch-4"]
    assert first[0] != second[0]
    assert first[1] < second[2] and second[1] < first[2]


def test_workers_share_the_cores_and_the_threads_of_the_user_stay(lab, monkeypatch):
    monkeypatch.setattr(missing_runs.os, "sched_getaffinity", lambda _: set(range(6)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert (threads_of(["cpu"], 1), threads_of(["cpu"] * 4, 4)) == (None, 1)
    assert threads_of(["cpu"] * 2, 2) == 3 and threads_of(["cpu"] * 9, 9) == 1
    work = missing_work(lab.root, read_sweep(lab.root / "sweep.toml"))
    monkeypatch.setenv("FAILS", "s.batch-2")
    done = run_jobs(work.jobs, ["cpu"], print, workers=2)
    assert sorted(d.code for d in done) == [0, 0, 1] and {d.device for d in done} == {"cpu"}
    found = marks(lab)
    assert found["s.batch-4"][1] < found["s.batch-8"][2]
    assert {threads for *_, threads in found.values()} == {"3"}
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert threads_of(["cpu"] * 2, 2) is None


def test_a_failed_run_is_reported_while_the_others_go_on(lab, monkeypatch):
    monkeypatch.setenv("FAILS", "s.batch-2")
    done = filled(lab, ["cpu"])
    assert [(d.job.plan.name, d.code) for d in done] == [
        ("s.batch-2", 1),
        ("s.batch-4", 0),
        ("s.batch-8", 0),
    ]
    assert done[0].failure == "assay: disk full"
    assert done[0].job.log.read_text().startswith("a line of progress")


def test_what_is_finished_or_busy_is_no_work(lab):
    finished = lab.run("s.batch-2", "stage.sft.batch=2")
    for record in (TEST, HARD):
        score(finished, "base", ones(1, 2), record)
    lab.run("s.batch-4", "stage.sft.batch=4", status="failed")
    lab.run("s.batch-8", "stage.sft.batch=8", status="running")
    work = missing_work(lab.root, read_sweep(lab.root / "sweep.toml"))
    assert work.finished == ("s.batch-2#1",)
    assert [(job.name, job.had) for job in work.jobs] == [
        ("s.batch-4#1", "failed"),
        ("s.batch-8#1", "interrupted"),
    ]


def test_a_run_of_the_same_name_made_otherwise_stops_the_filling_before_it_begins(lab):
    lab.run("s.batch-8", "stage.sft.batch=8", "stage.sft.steps=7")
    with pytest.raises(InputError, match=r"stage\.sft\.steps"):
        missing_work(lab.root, read_sweep(lab.root / "sweep.toml"))
    assert not (lab.root / "marks").exists()


@pytest.mark.parametrize("given", ["", "0,,1", "cpu,cpu", "7", "gpu"])
def test_devices_that_cannot_be_used_are_refused(given, monkeypatch):
    monkeypatch.setattr(missing_runs.torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(InputError, match="--devices"):
        devices_of(given)


def test_devices_are_the_gpus_that_may_be_seen_or_the_cpu(monkeypatch):
    monkeypatch.setattr(missing_runs.torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    assert devices_of(None) == ["4", "6"]
    assert devices_of("6") == ["6"]
    monkeypatch.setattr(missing_runs.torch.cuda, "device_count", lambda: 0)
    assert devices_of(None) == ["cpu"]


SLEEPS = """
import os, pathlib, time
root = pathlib.Path(sys.argv[sys.argv.index("--lab") + 1])
(root / "child").write_text(str(os.getpid()))
time.sleep(60)
"""


def fill_whose_run_sleeps(root: Path) -> None:
    missing_runs.PROGRAM = missing_runs.PROGRAM.partition("sys.argv")[0] + SLEEPS
    run_jobs(missing_work(root, read_sweep(root / "sweep.toml")).jobs, ["cpu"], print)


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs prctl")
def test_a_killed_fill_leaves_no_process_at_work(lab):
    parent = forked(fill_whose_run_sleeps, lab.root, log=lab.root / "log")
    child = lab.root / "child"
    assert wait_for(lambda: child.exists() and child.read_text() != "", 60)
    process = psutil.Process(int(child.read_text()))
    assert not is_over(process)
    parent.kill()
    parent.join()
    assert wait_for(lambda: is_over(process), 5)


def tiny_sweep(root: Path) -> None:
    """Two runs of the tiny lab's SFT stage."""
    edits = {RL: "", "= 40": "= 60", "checkpoint_every = 8": "", '"rl.last"': '"sft.last"'}
    make_lab(root, file="base.toml", until="[evaluate.sampled]", edits=edits)
    (root / "sweep.toml").write_text(SWEEP.replace("[2, 4, 8]", "[2, 4]"))


def spawn(root: Path) -> subprocess.Popen[bytes]:
    code = "from assay.cli.main import app; app()"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", code, "fill", str(root / "sweep.toml"), "--lab", str(root)]
    return subprocess.Popen(
        command, env=environment, start_new_session=True, stdout=subprocess.DEVNULL
    )


@pytest.mark.slow
def test_a_sweep_killed_half_way_is_continued_and_loses_nothing(tmp_path):
    tiny_sweep(tmp_path)
    process = spawn(tmp_path)

    def trained(name: str, steps: int) -> bool:
        files = tmp_path.glob(f"runs/{name}/*/metrics.jsonl")
        return any(len(f.read_text().splitlines()) >= steps for f in files)

    assert wait_for(lambda: trained("s.batch-4", 3), 240)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (first,), (second,) = runs_of(tmp_path, "s.batch-2"), runs_of(tmp_path, "s.batch-4")
    assert wait_for(lambda: read_status(second.path).status == "interrupted", 10)
    assert read_status(first.path).status == "finished"
    finished = first.manifest.stat().st_mtime_ns
    assert spawn(tmp_path).wait(timeout=240) == 0
    assert runs_of(tmp_path, "s.batch-4") == [second]
    assert read_status(second.path).status == "finished"
    assert first.manifest.stat().st_mtime_ns == finished
    assert spawn(tmp_path).wait(timeout=60) == 0
    assert runs_of(tmp_path, "s.batch-2") == [first]
