"""Runs the missing runs of a sweep: one process for each run, a few at a time on each device, or on
the nodes of a cluster.

An interrupted run is resumed, a run that is live elsewhere is left alone, a failed one is reported
at the end. Each process is an `assay run`. A node that dies costs the steps since a run's last
checkpoint: another node resumes it. Which nodes there are and which have room is known to the pool;
here is what a run needs, and what may be done again.
"""

import itertools
import os
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from assay.data.files import atomic_write_text
from assay.engines.environments import last_words_in
from assay.engines.ray_pool import (
    LOOK_AGAIN,
    MOST_LOST,
    PATIENCE,
    RAY,
    Node,
    NodeNeeds,
    Patience,
    RayPool,
    look_at_nodes,
    room_of,
)
from assay.errors import InputError, nearest
from assay.lab.run.resume import lacking
from assay.lab.session.validate import check_names
from assay.lab.sweep.read_sweep import PlannedRun, SweepFile, plan
from assay.runs.registry import check_same, newest
from assay.runs.run_directory import is_held, read_status
from assay.runs.run_names import SWEEPS

POLL_SECONDS = 0.05
CPU = "cpu"
PROGRAM = """
import signal, sys
from assay.sandbox.call_process import PR_SET_PDEATHSIG, process_control
process_control(PR_SET_PDEATHSIG, signal.SIGKILL)
sys.argv[0] = "assay"
from assay.cli.main import app
app()
"""
"""The command line in a process that dies with the one that started it, so that a killed `fill`
leaves nothing at work."""

Had = Literal["nothing", "interrupted", "failed", "unmeasured"]


@dataclass(frozen=True, slots=True)
class RunJob:
    """One run to be made or continued."""

    plan: PlannedRun
    seed: int
    had: Had
    """The state of the run before the job."""
    root: Path
    """The lab."""
    logs: Path
    """Where the output of the sweep's runs goes."""
    records: int = 1
    """Of a finished run: the evaluations that lack records, which several processes share."""

    @property
    def name(self) -> str:
        """The run as users name it."""
        return f"{self.plan.name}#{self.seed}"

    @property
    def log(self) -> Path:
        """Where its output goes."""
        return self.logs / f"{self.plan.name}.seed-{self.seed}.log"


@dataclass(frozen=True, slots=True)
class Done:
    """The outcome of a job."""

    job: RunJob
    device: str
    code: int
    failure: str
    """The last line that it wrote, where it failed."""


def ended(job: RunJob, device: str, code: int, tell: Callable[[str], None], failure: str) -> Done:
    """The outcome of a job that is over; `failure` says what its process said last."""
    tell(f"{job.name}: {(failure or f'exit code {code}') if code else 'finished'}")
    return Done(job, device, code, failure)


@dataclass(frozen=True, slots=True)
class Work:
    """The missing, live and finished runs of a sweep."""

    jobs: tuple[RunJob, ...]
    finished: tuple[str, ...]
    busy: tuple[str, ...]
    """Runs that a process elsewhere executes."""


def missing_work(root: Path, sweep_file: SweepFile, only: str | None = None) -> Work:
    """The jobs of a sweep in the order of its axes; with `only`, those of one run, or of
    one seed of it, `NAME#SEED`.

    Raises InputError for a name that no run of the sweep has, InputError where a run of a
    cell's name was made with other settings, and what reading and checking the names of each cell's
    experiment raise: nothing is started then.
    """
    every, logs = plan(sweep_file), root / SWEEPS / sweep_file.sweep.name / "logs"
    name, _, seeds = (only or "").partition("#")
    chosen = [planned for planned in every if only is None or planned.name == name]
    if not any(not seeds or seeds in map(str, p.experiment.seeds) for p in chosen):
        names = {f"{p.name}#{s}" if seeds else p.name for p in every for s in p.experiment.seeds}
        fix = nearest(only or "", names)
        raise InputError(f"{sweep_file.sweep.name} has no run {only!r}", field="--only", fix=fix)
    jobs, finished, busy = [], [], []
    for planned in chosen:
        check_names(planned.experiment, root)
        for seed in planned.experiment.seeds:
            if seeds not in ("", str(seed)):
                continue
            run, gone = newest(root, planned.name, seed), {}
            job = RunJob(planned, seed, "nothing", root, logs)
            if run is not None:
                check_same(run, planned.experiment)
                status = read_status(run.path).status
                gone = lacking(run, planned.experiment) if status == "finished" else {}
                if not gone and status in ("finished", "running"):
                    (finished if status == "finished" else busy).append(job.name)
                    continue
                had = "unmeasured" if status == "finished" else status
                job = replace(job, had=had, records=len(gone) or 1)
            jobs.append(job)
    return Work(tuple(jobs), tuple(finished), tuple(busy))


def devices_of(option: str | None) -> list[str]:
    """`0,1` as a list; omitted, the GPUs that this process may see, or `cpu` alone.

    Raises InputError for an empty or repeated device and for one that is not there, which would
    train on the CPU without a word.
    """
    count, visible = torch.cuda.device_count(), os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = visible.split(",")[:count] if visible else [str(n) for n in range(count)]
    if option is None:
        return gpus or [CPU]
    names = [name.strip() for name in option.split(",")]
    if not all(names) or len(set(names)) < len(names):
        fix = "write each device once, such as --devices 0,1"
        raise InputError(f"{option!r} is not a list of devices", field="--devices", fix=fix)
    for name in names:
        if name not in (*gpus, CPU):
            fix = "there are: " + ", ".join([*gpus, CPU])
            raise InputError(f"no device {name!r}", field="--devices", fix=fix)
    return names


def threads_of(slots: Sequence[str], workers: int) -> int | None:
    """Threads of each process where several share the cores; None: as many as it takes by itself.

    OMP_NUM_THREADS of the user stays: results depend on the number of threads, and on nothing else
    that `workers` changes.
    """
    if workers == 1 or "OMP_NUM_THREADS" in os.environ:
        return None
    return max(1, len(os.sched_getaffinity(0)) // len(slots))


def run_jobs(
    jobs: Sequence[RunJob],
    devices: Sequence[str],
    tell: Callable[[str], None],
    despite: str | None = None,
    workers: int = 1,
) -> list[Done]:
    """Execute the jobs, each on the next free device; returns how they ended, in that order.

    `despite` is the reason why runs are made whose checks end with errors. `workers` is the number
    of runs at a time on each device.

    When this process is stopped, the processes it started are stopped too; what they had done is
    on disk and is continued by the next call.
    """
    slots = [device for _ in range(workers) for device in devices]
    waiting, done = deque(shares(jobs, len(slots))), []
    threads = threads_of(slots, workers)
    busy: dict[int, tuple[RunJob, subprocess.Popen[bytes]]] = {}
    read: dict[Path, int] = {}
    try:
        while waiting or busy:
            for slot, device in enumerate(slots):
                if slot not in busy and waiting:
                    job = waiting.popleft()
                    busy[slot] = (job, launched(job, device, despite, threads))
                    read[job.log] = job.log.stat().st_size
                    tell(f"{job.name}: {WORDS[job.had]} on {device} ({len(waiting)} waiting)")
            for job, process in busy.values():
                if process.poll() is None and (size := job.log.stat().st_size) > read[job.log]:
                    tell(f"{job.name}: {last_words_in(job.log)}")
                    read[job.log] = size
            for slot in [s for s, (_, process) in busy.items() if process.poll() is not None]:
                job, process = busy.pop(slot)
                words = last_words_in(job.log) if process.returncode else ""
                done.append(ended(job, slots[slot], process.returncode, tell, words))
            time.sleep(POLL_SECONDS)
    finally:
        for _, process in busy.values():
            process.terminate()
            process.wait()
    return done


def shares(jobs: Sequence[RunJob], most: int) -> list[RunJob]:
    """The jobs, those that measure a finished run once for each process that can take part: each
    takes records that no other has."""
    return [job for job in jobs for _ in range(min(job.records, most))]


WORDS = {
    "nothing": "started",
    "interrupted": "resumed",
    "failed": "tried again",
    "unmeasured": "measured on what was added",
}


def launched(
    job: RunJob, device: str, despite: str | None = None, threads: int | None = None
) -> subprocess.Popen[bytes]:
    """The process of one job, whose output goes to its log; it dies with this one."""
    job.logs.mkdir(parents=True, exist_ok=True)
    settings = (*job.plan.overrides, f"seeds=[{job.seed}]")
    options = [part for setting in settings for part in ("--set", setting)]
    options += [] if despite is None else [f"--despite={despite}"]
    command = [sys.executable, "-c", PROGRAM, "run", str(job.plan.base), "--lab", str(job.root)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "" if device == CPU else device}
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    with job.log.open("ab") as stream:
        return subprocess.Popen(
            [*command, "--or-resume", *options],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
        )


LEASE_SECONDS = 120.0
"""For the lock of a dead node to go: at once on one machine, after its lease on NFS."""


def refuse_numbers(devices: str | None) -> None:
    """Raise InputError for GPUs by number, which the cluster hands out by itself."""
    if devices not in (None, CPU):
        problem = f"{devices!r}: the cluster hands out its GPUs by itself"
        raise InputError(problem, field="--devices", fix="leave it out, or write --devices cpu")


def needs_of(job: RunJob, nodes: Sequence[Node], devices: str | None, workers: int) -> NodeNeeds:
    """What a run takes of its node: GPUs where the cluster has some, one for each of its ranks;
    else the CPUs of the smallest node, which `workers` share."""
    engine = job.plan.experiment.engine
    ranks = engine.ranks if engine is not None else 1
    if devices is None and any(node.gpus for node in nodes):
        return NodeNeeds(float(ranks), float(ranks) if ranks > 1 else 1 / workers)
    cores = min((int(node.cpus) for node in nodes if node.cpus >= 1), default=1)
    return NodeNeeds(float(max(1, ranks, cores // workers)))


@dataclass(frozen=True, slots=True)
class Try:
    """A job on its way to a node, or at work there."""

    job: RunJob
    needs: NodeNeeds
    number: int
    """Among the tries of the sweep: several processes may share a job."""
    lost: int = 0
    """Nodes that died under it."""

    @property
    def mark(self) -> Path:
        """The file by which a node says that it has begun."""
        return self.job.log.with_name(f".{self.job.log.stem}.{self.number}.node")


def on_cluster(
    jobs: Sequence[RunJob],
    root: Path,
    pool: RayPool,
    devices: str | None,
    workers: int,
    tell: Callable[[str], None],
    despite: str | None = None,
) -> list[Done]:
    """Execute the jobs on the nodes of a cluster; see `spread_jobs`. Raises InputError for a node
    that cannot work in the lab, and for runs that would spread their evaluations in turn."""
    for job in jobs:
        engine = job.plan.experiment.engine
        if engine is not None and engine.evaluate != "own":
            problem = f"{job.name} would wait for nodes that the runs of the sweep take"
            raise InputError(problem, field="engine.evaluate", fix="leave it out with --on")
    jobs = [replace(job, plan=replace(job.plan, base=job.plan.base.resolve())) for job in jobs]
    look_at_nodes(pool, root, sorted({job.plan.base for job in jobs}))
    nodes = pool.nodes()
    work = [(job, needs_of(job, nodes, devices, workers)) for job in jobs]
    return spread_jobs(work, pool, tell, despite, pool.address != RAY or workers > 1)


def spread_jobs(
    work: Sequence[tuple[RunJob, NodeNeeds]],
    pool: RayPool,
    tell: Callable[[str], None],
    despite: str | None = None,
    threads: bool = True,
) -> list[Done]:
    """Execute jobs wherever there is room for what each needs; returns how they ended, in that
    order.

    `threads`: a process on CPUs takes as many threads as CPUs, so that nodes with more compute the
    same; else as many as it takes by itself. OMP_NUM_THREADS of the user stays. Raises InputError
    where no node has room for a run, RunFailure where none is left that has.
    """
    rooms, patience = [room_of(pool, needs) for _, needs in work], Patience(pool)
    waiting: dict[Any, Try] = {}
    working: dict[Any, str] = {}
    done: list[Done] = []
    numbers = itertools.count()

    def begin(job: RunJob, needs: NodeNeeds, lost: int = 0) -> None:
        each = Try(job, needs, next(numbers), lost)
        own = os.environ.get("OMP_NUM_THREADS")
        fixed = int(needs.cpus) if threads and not needs.gpus else None
        count = int(own) if own else fixed
        waiting[pool.submit(needs, run_cell, each, despite, count)] = each

    for (job, needs), room in zip(work, rooms, strict=True):
        for same in shares([job], room):
            begin(same, needs)
    while waiting:
        ready = pool.ready([*waiting], LOOK_AGAIN)
        for ticket, each in waiting.items():
            if ticket not in working and (place := place_of(each)):
                working[ticket] = place
                rest = len(waiting) - len(working)
                verb = "resumed" if each.lost else WORDS[each.job.had]
                tell(f"{each.job.name}: {verb} on {place} ({rest} waiting)")
        for ticket in ready:
            each, place = waiting.pop(ticket), working.pop(ticket, "a node")
            try:
                code = pool.take(ticket)
                failure = last_words_in(each.job.log) if code else ""
            except ChildProcessError as lost:
                if each.lost + 1 < MOST_LOST:
                    tell(f"{each.job.name}: {place} is lost ({lost}); another node goes on")
                    begin(each.job, each.needs, each.lost + 1)
                    continue
                code, failure = 1, f"it lost {MOST_LOST} nodes: {lost}"
            except OSError as error:
                code, failure = 1, f"{place}: {error}"
            done.append(ended(each.job, place, code, tell, failure))
        if waiting and not working:
            for each in waiting.values():
                if patience.look(each.needs):
                    tell(f"no node has {each.needs}: waits {PATIENCE:g} s for one to come back")
    return done


def run_cell(each: Try, despite: str | None, threads: int | None) -> int:
    """Do one job on the node that this is called on; returns its exit code."""
    gpu = each.needs.gpus > 0
    job, device = each.job, os.environ["CUDA_VISIBLE_DEVICES"] if gpu else CPU
    place = socket.gethostname() + (f" GPU {device}" if gpu else "")
    atomic_write_text(each.mark, place)
    end = time.monotonic() + (LEASE_SECONDS if each.lost else 0.0)
    run = newest(job.root, job.plan.name, job.seed)
    while run is not None and is_held(run.path) and time.monotonic() < end:
        time.sleep(0.2)
    if threads is None:
        os.environ.pop("OMP_NUM_THREADS", None)  # which Ray sets to the CPUs that a task takes
    process = launched(job, device, despite, threads)
    try:
        return process.wait()
    finally:
        process.terminate()
        process.wait()


def place_of(each: Try) -> str:
    """The node that has begun, whose mark goes; "" where none has."""
    if not each.mark.exists():
        return ""
    place = each.mark.read_text(encoding="utf-8")
    each.mark.unlink()
    return place
