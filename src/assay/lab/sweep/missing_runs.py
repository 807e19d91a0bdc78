"""Runs the missing runs of a sweep: one process for each run, a few at a time on each device.

An interrupted run is resumed, a run that is live elsewhere is left alone, a failed one is reported
at the end. Each process is an `assay run`.
"""

import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from assay.engines.environments import last_words_in
from assay.errors import InputError, nearest
from assay.lab.run.resume import lacking
from assay.lab.session.validate import check_names
from assay.lab.sweep.planned_runs import PlannedRun, plan
from assay.lab.sweep.read_sweep import SweepFile
from assay.runs.registry import check_same, newest
from assay.runs.run_directory import read_status
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
    records: int = 1
    """Of a finished run: the evaluations that lack records, which several processes share."""

    @property
    def name(self) -> str:
        """The run as users name it."""
        return f"{self.plan.name}#{self.seed}"


@dataclass(frozen=True, slots=True)
class Done:
    """The outcome of a job."""

    job: RunJob
    device: str
    code: int
    log: Path
    failure: str
    """The last line that it wrote, where it failed."""


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
    every = plan(sweep_file)
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
            run = newest(root, planned.name, seed)
            if run is not None:
                check_same(run, planned.experiment)
            status = read_status(run.path).status if run is not None else None
            gone = lacking(run, planned.experiment) if run and status == "finished" else {}
            if gone:
                jobs.append(RunJob(planned, seed, "unmeasured", len(gone)))
            elif status == "finished":
                finished.append(f"{planned.name}#{seed}")
            elif status == "running":
                busy.append(f"{planned.name}#{seed}")
            else:
                jobs.append(RunJob(planned, seed, status or "nothing"))
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
    root: Path,
    sweep: str,
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
    busy: dict[int, tuple[RunJob, subprocess.Popen[bytes], Path]] = {}
    read: dict[Path, int] = {}
    try:
        while waiting or busy:
            for slot, device in enumerate(slots):
                if slot not in busy and waiting:
                    job = waiting.popleft()
                    log = log_of(root, sweep, job)
                    process = launched(root, job, device, log, despite, threads)
                    busy[slot] = (job, process, log)
                    read[log] = log.stat().st_size
                    tell(f"{job.name}: {WORDS[job.had]} on {device} ({len(waiting)} waiting)")
            for job, process, log in busy.values():
                if process.poll() is None and (size := log.stat().st_size) > read[log]:
                    tell(f"{job.name}: {last_words_in(log)}")
                    read[log] = size
            for slot in [s for s, (_, process, _) in busy.items() if process.poll() is not None]:
                job, process, log = busy.pop(slot)
                code = process.returncode
                done.append(Done(job, slots[slot], code, log, last_words_in(log) if code else ""))
                tell(f"{job.name}: {'finished' if code == 0 else done[-1].failure}")
            time.sleep(POLL_SECONDS)
    finally:
        for _, process, _ in busy.values():
            process.terminate()
            process.wait()
    return done


def log_of(root: Path, sweep: str, job: RunJob) -> Path:
    """Where the output of a job goes."""
    return root / SWEEPS / sweep / "logs" / f"{job.plan.name}.seed-{job.seed}.log"


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
    root: Path,
    job: RunJob,
    device: str,
    log: Path,
    despite: str | None = None,
    threads: int | None = None,
) -> subprocess.Popen[bytes]:
    """The process of one job, whose output goes to its log; it dies with this one."""
    log.parent.mkdir(parents=True, exist_ok=True)
    settings = (*job.plan.overrides, f"seeds=[{job.seed}]")
    options = [part for setting in settings for part in ("--set", setting)]
    options += [] if despite is None else [f"--despite={despite}"]
    command = [sys.executable, "-c", PROGRAM, "run", str(job.plan.base), "--lab", str(root)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "" if device == CPU else device}
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    with log.open("ab") as stream:
        return subprocess.Popen(
            [*command, "--or-resume", *options],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
        )
