"""The processes of one machine that train one model together.

Rank 0 starts the others for a stage, and they end with it. Calls and replies go by gloo; gradients
by gloo on a CPU and by nccl on GPUs. What is computed together is in `train.ranks`.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import psutil
import torch
import torch.distributed as dist
from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]

from assay.engines.environments import how_ended, last_words_in
from assay.errors import InputError, RunFailure
from assay.sandbox.call_process import PR_SET_PDEATHSIG, process_control
from assay.train.ranks import Team, silent

LEADER = "ASSAY_LEADER"
"""The environment's name of the process that a rank ends with."""
HERE = "here/"
"""How the key begins by which a rank says that it has come."""
SECONDS_TO_END = 5.0


def check_ranks(ranks: int) -> None:
    """Raise InputError for more ranks than this machine has cores or GPUs."""
    if torch.cuda.is_available():
        have, name = torch.cuda.device_count(), "GPUs"
    else:
        have, name = len(os.sched_getaffinity(0)), "cores"
    if ranks > have:
        raise InputError(
            f"{ranks} ranks, and this machine has {have} {name}", fix=f"at most {have}"
        )


@dataclass
class Others:
    """The ranks that this process started."""

    processes: "list[subprocess.Popen[bytes]]" = field(default_factory=list)
    logs: list[Path] = field(default_factory=list)

    def ended(self) -> str:
        """Which rank ended and how, with its last words, or is stopped; "" while all live."""
        deadline = time.monotonic() + SECONDS_TO_END
        while time.monotonic() < deadline:
            for rank, process in enumerate(self.processes, 1):
                if (code := process.poll()) is not None:
                    words = last_words_in(self.logs[rank - 1])
                    return f"rank {rank} ended ({how_ended(code)}): {words}"
            time.sleep(0.05)
        for rank, process in enumerate(self.processes, 1):
            if psutil.Process(process.pid).status() == psutil.STATUS_STOPPED:
                return f"rank {rank} is stopped, as SIGSTOP does"
        return ""

    def wait_for(self, store: Store, patience: float) -> None:
        """Return when all have come. Raises RunFailure where one ends before or is late by so
        many seconds."""
        here = [f"{HERE}{rank}" for rank in range(1, len(self.processes) + 1)]
        late = time.monotonic() + patience
        while not store.check(here):
            if any(process.poll() is not None for process in self.processes):
                raise RunFailure(self.ended())
            if time.monotonic() > late:
                raise RunFailure(self.ended() or silent(patience))
            time.sleep(0.05)

    def end(self) -> None:
        """Let nothing of them live."""
        for process in self.processes:
            process.kill()
            process.wait()


@contextmanager
def team(ranks: int, command: Sequence[str], patience: float) -> Iterator[Team]:
    """Rank 0's part in `ranks` processes, of which it starts the others with `command`; they end
    with the block. `patience` is in seconds."""
    others = Others()
    store = TCPStore("127.0.0.1", 0, ranks, is_master=True, wait_for_workers=False)
    with tempfile.TemporaryDirectory(prefix="assay-ranks-") as folder:
        try:
            for rank in range(1, ranks):
                others.logs.append(Path(folder, f"rank-{rank}.log"))
                surroundings = {
                    LEADER: str(os.getpid()),
                    "RANK": str(rank),
                    "WORLD_SIZE": str(ranks),
                    "STORE_PORT": str(store.port),
                    "OMP_NUM_THREADS": str(threads_of(ranks)),
                }
                with others.logs[-1].open("wb") as log:
                    process = subprocess.Popen(
                        [*command],
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        env={**os.environ, **surroundings},
                    )
                others.processes.append(process)
            others.wait_for(store, patience)
            member = _joined(0, ranks, store, patience)
            member.ended = others.ended
            yield member
        finally:
            others.end()
            if dist.is_initialized():
                dist.destroy_process_group()


def threads_of(ranks: int) -> int:
    """The threads of each rank: no more than the user set."""
    share = len(os.sched_getaffinity(0)) // ranks
    return max(1, min(share, torch.get_num_threads()))


def followed() -> Team:
    """This process among others, as one that rank 0 started; it waits while rank 0 judges and
    measures, which has the patience of the experiment."""
    # Ctrl-C is for rank 0, which ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    process_control(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(os.environ[LEADER]):
        sys.exit(1)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = TCPStore("127.0.0.1", int(os.environ["STORE_PORT"]), size, is_master=False)
    store.set(f"{HERE}{rank}", "")
    return _joined(rank, size, store, timedelta(days=30).total_seconds())


def _joined(rank: int, size: int, store: Store, patience: float) -> Team:
    objects, limit = None, timedelta(seconds=patience)
    kind = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(rank)
        kind = "cpu:gloo,cuda:nccl"
    dist.init_process_group(kind, store=store, rank=rank, world_size=size, timeout=limit)
    if torch.cuda.is_available():
        objects = dist.new_group(backend="gloo", timeout=limit)
    return Team(rank, size, threads_of(size), objects, patience)
