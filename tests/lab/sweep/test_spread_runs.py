"""The runs of a sweep on nodes of a cluster: each ends as `assay fill` would end it, a dead node
costs no run, and a run that kills nodes costs no other. Without Ray, which is in `test_ray.py`."""

import os
import random
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from assay.engines.ray_pool import MOST_LOST, Node, NodeNeeds, RayPool
from assay.errors import InputError
from assay.lab.sweep import missing_runs
from assay.lab.sweep.missing_runs import (
    Done,
    RunJob,
    Try,
    missing_work,
    needs_of,
    on_cluster,
    refuse_numbers,
    run_cell,
    spread_jobs,
)
from assay.lab.sweep.read_sweep import PlannedRun, read_sweep
from assay.runs.run_directory import hold_run, is_held
from tests.engines.local_pool import AFTER, BEFORE, LocalPool
from tests.lab.pivot_lab import PivotLab, make_pivot_lab
from tests.lab.sweep.test_missing_runs import STUB, SWEEP, marks

ONE = NodeNeeds(1.0)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PivotLab:
    monkeypatch.setattr(missing_runs, "PROGRAM", STUB)
    monkeypatch.setattr(missing_runs, "LOOK_AGAIN", 0.02)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)
    lab = make_pivot_lab(tmp_path)
    lab.sweep(SWEEP)
    return lab


def jobs_of(lab: PivotLab) -> tuple[RunJob, ...]:
    return missing_work(lab.root, read_sweep(lab.root / "sweep.toml")).jobs


def spread(lab: PivotLab, pool: LocalPool, told: list[str]) -> list[Done]:
    work = [(job, ONE) for job in jobs_of(lab)]
    return spread_jobs(work, cast(RayPool, pool), told.append)


def test_every_missing_run_is_executed_on_a_node_that_has_its_file(lab, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS")
    told: list[str] = []
    jobs = [replace(job, plan=replace(job.plan, base=Path("base.toml"))) for job in jobs_of(lab)]
    pool = LocalPool(there=[Node("1", "one", 4.0), Node("2", "two", 6.0)])
    done = on_cluster(jobs, lab.root, cast(RayPool, pool), None, 2, told.append)
    assert [d.code for d in done] == [0, 0, 0]
    found = marks(lab)
    assert set(found) == {"s.batch-2", "s.batch-4", "s.batch-8"}
    assert {threads for *_, threads in found.values()} == {"2"}, "of the smaller node, shared by 2"
    assert sum("started on" in line for line in told) == sum("finished" in line for line in told)
    said = (lab.root / "marks" / "s.batch-4").read_text()
    for part in (f"{lab.root}/base.toml", "--or-resume", "stage.sft.batch=4", "seeds=[1]"):
        assert part in said
    assert not [*lab.root.glob("sweeps/s/logs/.*"), *lab.root.glob(".ray-*")]


@pytest.mark.parametrize("seed", range(2))
def test_a_run_whose_node_died_goes_on_at_another(lab, seed):
    chance = random.Random(seed)
    dying = {n: chance.choice([BEFORE, AFTER]) for n in chance.sample(range(1, 6), 3)}
    told: list[str] = []
    done = spread(lab, LocalPool(lambda number: dying.get(number, "")), told)
    assert sorted((d.job.plan.name, d.code) for d in done) == [
        ("s.batch-2", 0),
        ("s.batch-4", 0),
        ("s.batch-8", 0),
    ]
    assert sum("is lost (the node is gone); another node goes on" in line for line in told) == 3
    assert sum("resumed on" in line for line in told) >= 1


def test_a_failed_run_one_that_kills_its_nodes_and_one_without_a_log_are_reported(lab, monkeypatch):
    monkeypatch.setenv("FAILS", "s.batch-2")
    begun = run_cell

    def deadly(each: Try, *given: Any) -> int:
        if each.job.plan.name == "s.batch-4":
            raise ChildProcessError("out of memory")
        code = begun(each, *given)
        if each.job.plan.name == "s.batch-8":  # on a file system that does not show it yet
            each.job.log.unlink()
            return 1
        return code

    class Direct(LocalPool):
        def _sent(self, function: Any, arguments: Any) -> Any:
            return deadly, arguments

        def _work(self, host: Any, sent: Any) -> Any:
            return sent[0](*sent[1])

        def take(self, ticket: Any) -> Any:
            return ticket.result()

    done = {d.job.plan.name: d for d in spread(lab, Direct(), [])}
    assert {d.code for d in done.values()} == {1} and len(done) == 3
    assert "No such file" in done["s.batch-8"].failure
    assert done["s.batch-2"].failure == "assay: disk full"
    assert done["s.batch-4"].failure == f"it lost {MOST_LOST} nodes: out of memory"


def test_a_resumed_run_waits_for_the_lock_of_the_node_that_died(lab, monkeypatch):
    job = jobs_of(lab)[0]
    run = lab.run(job.plan.name, "stage.sft.batch=2", status="running")
    (run.path / "manifest.json").write_text("{}")
    held, free, launched = threading.Event(), [], missing_runs.launched

    def dead() -> None:
        with hold_run(run.path):
            held.set()
            time.sleep(0.4)

    def seen(*given: Any) -> Any:
        free.append(not is_held(run.path))
        return launched(*given)

    monkeypatch.setattr(missing_runs, "launched", seen)
    thread = threading.Thread(target=dead)
    thread.start()
    held.wait(10)
    assert run_cell(Try(job, ONE, 0, lost=1), None, 1) == 0
    thread.join()
    assert free == [True] and job.plan.name in marks(lab)


def job_of(lab: PivotLab, *settings: str) -> RunJob:
    return RunJob(PlannedRun("x", lab.base, settings, ()), 1, "nothing", lab.root, lab.root)


def test_a_run_takes_the_gpus_of_its_ranks_or_the_cpus_of_the_smallest_node(lab):
    cpus = [Node("1", "head", 0.0), Node("2", "one", 8.0), Node("3", "two", 4.0)]
    gpus = [*cpus, Node("4", "three", 16.0, 2.0)]
    plain, two = job_of(lab), job_of(lab, "engine.ranks=2")
    assert needs_of(plain, cpus, None, 1) == NodeNeeds(4.0)
    assert needs_of(plain, cpus, None, 2) == NodeNeeds(2.0)
    assert needs_of(plain, cpus, None, 9) == NodeNeeds(1.0)
    assert needs_of(two, cpus, None, 9) == NodeNeeds(2.0)
    assert needs_of(plain, gpus, None, 2) == NodeNeeds(1.0, 0.5)
    assert needs_of(two, gpus, None, 1) == NodeNeeds(2.0, 2.0)
    assert needs_of(plain, gpus, "cpu", 1) == NodeNeeds(4.0)


def test_gpus_by_number_and_runs_without_room_are_refused(lab):
    for devices in ("0", "0,1", "gpu"):
        with pytest.raises(InputError, match=r"--devices: .*hands out its GPUs by itself"):
            refuse_numbers(devices)
    refuse_numbers("cpu")
    with pytest.raises(InputError, match="no node of the cluster has 2 CPUs"):
        spread_jobs([(jobs_of(lab)[0], NodeNeeds(2.0))], cast(RayPool, LocalPool()), print)
    lab.base.write_text(lab.base.read_text() + '[engine]\nevaluate = "ray"\n')
    with pytest.raises(InputError, match=r"engine.evaluate: x#1 would wait for nodes"):
        on_cluster([job_of(lab)], lab.root, cast(RayPool, LocalPool()), None, 1, print)
    assert not (lab.root / "marks").exists() and os.environ["OMP_NUM_THREADS"] == "1"
