"""Runs the missing runs of a sweep on the nodes of a cluster, each as `assay fill` would run it.

A node that dies costs the steps since a run's last checkpoint: another node resumes it. Which nodes
there are and which have room is known to the pool; here is what a run needs, and what may be done
again.
"""

import itertools
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

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
from assay.errors import InputError
from assay.lab.sweep.missing_runs import (
    CPU,
    WORDS,
    Done,
    RunJob,
    launched,
    log_of,
    shares,
)
from assay.runs.registry import newest
from assay.runs.run_directory import is_held
from assay.runs.run_names import SWEEPS

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


def on_cluster(
    root: Path,
    sweep: str,
    jobs: Sequence[RunJob],
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
    return spread_jobs(root, sweep, work, pool, tell, despite, pool.address != RAY or workers > 1)


def spread_jobs(
    root: Path,
    sweep: str,
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
        count = threads_of(needs, threads)
        waiting[pool.submit(needs, run_cell, root, sweep, each, despite, count)] = each

    for (job, needs), room in zip(work, rooms, strict=True):
        for same in shares([job], room):
            begin(same, needs)
    while waiting:
        ready = pool.ready([*waiting], LOOK_AGAIN)
        for ticket, each in waiting.items():
            if ticket not in working and (place := place_of(root, sweep, each)):
                working[ticket] = place
                rest = len(waiting) - len(working)
                verb = "resumed" if each.lost else WORDS[each.job.had]
                tell(f"{each.job.name}: {verb} on {place} ({rest} waiting)")
        for ticket in ready:
            each, place = waiting.pop(ticket), working.pop(ticket, "a node")
            job, log = each.job, log_of(root, sweep, each.job)
            try:
                code = pool.take(ticket)
                done.append(Done(job, place, code, log, last_words_in(log) if code else ""))
            except ChildProcessError as lost:
                if each.lost + 1 < MOST_LOST:
                    tell(f"{job.name}: {place} is lost ({lost}); another node goes on")
                    begin(job, each.needs, each.lost + 1)
                    continue
                done.append(Done(job, place, 1, log, f"it lost {MOST_LOST} nodes: {lost}"))
            except OSError as error:
                done.append(Done(job, place, 1, log, f"{place}: {error}"))
            tell(f"{job.name}: {done[-1].failure or 'finished'}")
        if waiting and not working:
            for each in waiting.values():
                if patience.look(each.needs):
                    tell(f"no node has {each.needs}: waits {PATIENCE:g} s for one to come back")
    return done


def threads_of(needs: NodeNeeds, fixed: bool) -> int | None:
    """Threads of a process; None: as many as it takes by itself."""
    if own := os.environ.get("OMP_NUM_THREADS"):
        return int(own)
    return int(needs.cpus) if fixed and not needs.gpus else None


def run_cell(root: Path, sweep: str, each: Try, despite: str | None, threads: int | None) -> int:
    """Do one job on the node that this is called on; returns its exit code."""
    gpu = each.needs.gpus > 0
    job, device = each.job, os.environ["CUDA_VISIBLE_DEVICES"] if gpu else CPU
    place = socket.gethostname() + (f" GPU {device}" if gpu else "")
    atomic_write_text(mark_of(root, sweep, each), place)
    end = time.monotonic() + (LEASE_SECONDS if each.lost else 0.0)
    run = newest(root, job.plan.name, job.seed)
    while run is not None and is_held(run.path) and time.monotonic() < end:
        time.sleep(0.2)
    if threads is None:
        os.environ.pop("OMP_NUM_THREADS", None)  # which Ray sets to the CPUs that a task takes
    process = launched(root, job, device, log_of(root, sweep, job), despite, threads)
    try:
        return process.wait()
    finally:
        process.terminate()
        process.wait()


def mark_of(root: Path, sweep: str, each: Try) -> Path:
    """The file by which a node says that it has begun."""
    name = f".{each.job.plan.name}.seed-{each.job.seed}.{each.number}.node"
    return root / SWEEPS / sweep / "logs" / name


def place_of(root: Path, sweep: str, each: Try) -> str:
    """The node that has begun, whose mark goes; "" where none has."""
    mark = mark_of(root, sweep, each)
    if not mark.exists():
        return ""
    place = mark.read_text(encoding="utf-8")
    mark.unlink()
    return place
