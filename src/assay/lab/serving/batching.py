"""Requests that wait together are sampled together, in one thread beside the server's.

Nothing about HTTP or text is known here. Who samples is a `BatchSampler`: the lab's own engine, or
a scripted one in tests. What is drawn for a job follows from its key alone, so that company never
changes an answer (but for the last bits of the matrix products).
"""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Protocol

import numpy as np

from assay.data.episode import Turn
from assay.rl.policy import SampleKey
from assay.rollout.engine import Watch
from assay.rollout.sampling import Sampling

GATHER_SECONDS = 0.01
"""How long the first waiting request waits for company."""
MOST_TOGETHER = 256
"""Jobs of one batch; the engine keeps as many rows as fit."""


class BatchSampler(Protocol):
    """Samples one turn per context, and asks `watch` about every token."""

    def sample(
        self,
        contexts: Sequence[tuple[int, ...]],
        keys: Sequence[SampleKey],
        sampling: Sampling,
        policy_version: int = 0,
        watch: Watch | None = None,
    ) -> list[Turn]:
        """See `rollout.language.LocalSampler`."""
        ...


@dataclass(eq=False)
class Job:
    """One completion to sample."""

    context: tuple[int, ...]
    key: SampleKey
    sampling: Sampling
    listen: Callable[[], Callable[[int], bool]] | None = None
    """Begins to listen: what it returns is told each token as it is drawn, and says True where the
    completion ends. One that is sampled again is listened to anew."""
    cancelled: bool = False
    """Nobody waits any more: the completion ends at its next token."""
    done: Future[Turn] = field(default_factory=Future)

    @property
    def company(self) -> tuple[float, float, int, int]:
        """Jobs that agree here are sampled in one call: limits of tokens up to a factor of two."""
        one = self.sampling
        return one.temperature, one.top_p, one.top_k, (one.max_tokens - 1).bit_length()


class Batcher:
    """Takes jobs from any thread and gives each its turn."""

    def __init__(self, sampler: BatchSampler):
        self.sampler = sampler
        self._jobs: queue.Queue[Job | None] = queue.Queue()
        self._open: set[Job] = set()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="assay-sampling", daemon=True)
        self._thread.start()

    @property
    def open_jobs(self) -> int:
        """Completions that wait or are sampled."""
        return len(self._open)

    def submit(self, job: Job) -> None:
        """Queue a job; `job.done` gets its turn, or the exception that sampling raised."""
        if self._closed:
            job.done.set_exception(CancelledError())
            return
        self._open.add(job)
        job.done.add_done_callback(lambda _: self._open.discard(job))
        self._jobs.put(job)

    def close(self) -> None:
        """End what is under way at its next token, refuse what waits, and stop the thread."""
        self._closed = True
        for job in list(self._open):
            job.cancelled = True
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (first := self._jobs.get()) is not None:
            time.sleep(GATHER_SECONDS)
            waiting = [first, *islice(self._waiting(), MOST_TOGETHER - 1)]
            groups: dict[tuple[float, float, int, int], list[Job]] = {}
            for job in waiting:
                groups.setdefault(job.company, []).append(job)
            for group in groups.values():
                self._sample([job for job in group if not self._gone(job)])
            if self._closed:
                break
        for job in self._waiting():
            self._gone(job)

    def _waiting(self) -> Iterator[Job]:
        """Jobs that are there already."""
        while not self._jobs.empty():
            job = self._jobs.get()
            if job is None:
                self._closed = True
                return
            yield job

    def _gone(self, job: Job) -> bool:
        """Whether nobody waits for a job; it is then over."""
        if not job.done.done() and (job.cancelled or self._closed):
            job.done.set_exception(CancelledError())
        return job.done.done()

    def _sample(self, jobs: list[Job]) -> None:
        if not jobs:
            return
        limit = max(job.sampling.max_tokens for job in jobs)
        try:
            turns = self.sampler.sample(
                [job.context for job in jobs],
                [job.key for job in jobs],
                replace(jobs[0].sampling, max_tokens=limit),
                watch=watching(jobs),
            )
        except Exception as error:  # the request is told; the server goes on
            if len(jobs) == 1:
                jobs[0].done.set_exception(error)
                return
            # One request shall not fail for another's sake: each is sampled again, alone.
            for job in jobs:
                self._sample([job])
            return
        for job, turn in zip(jobs, turns, strict=True):
            # A turn that was cut because nobody waits, or because the server ends, is no answer.
            if not self._gone(job):
                job.done.set_result(turn)


def watching(jobs: Sequence[Job]) -> Watch:
    """What ends each job's turn: its own limit, its listener, or that nobody waits."""
    drawn = [0] * len(jobs)
    listening = [job.listen() if job.listen is not None else None for job in jobs]

    def over(number: int, token: int) -> bool:
        job = jobs[number]
        drawn[number] += 1
        hears = listening[number]
        ended = hears is not None and hears(token)
        return ended or job.cancelled or drawn[number] >= job.sampling.max_tokens

    def watch(turns_A: np.ndarray, tokens_A: np.ndarray) -> np.ndarray:
        pairs = zip(turns_A.tolist(), tokens_A.tolist(), strict=True)
        return np.array([over(number, token) for number, token in pairs], dtype=bool)

    return watch
