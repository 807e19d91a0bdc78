"""Samples requests together, in one thread beside the server's, a slice of tokens at a time.

Requests join and leave between two slices; a slice ends where one of them comes or ends. What is
drawn follows from a job's key and place alone, so concurrent requests never change an answer (but
for the last bits of the matrix products). The sampler keeps keys and values from slice to slice.
HTTP and text are handled elsewhere.
"""

import math
import queue
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field, replace

import numpy as np

from assay.data.episode import Turn
from assay.errors import RunFailure
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.cpu.sampler import ROWS, LocalSampler
from assay.rollout.engines.plain_sampler import PlainSampler

SLICE = 256
"""Tokens that are drawn at most without a look at who came and went."""


Sampler = LocalSampler | PlainSampler


@dataclass(eq=False)
class SamplingJob:
    """One completion to sample."""

    context: tuple[int, ...]
    key: SampleKey
    sampling: Sampling
    hears: Callable[[int], bool] | None = None
    """Called with each token drawn; True ends the completion."""
    cancelled: bool = False
    """The client is gone: the completion leaves before the next step."""
    done: Future[Turn] = field(default_factory=Future)
    actions: list[int] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)
    over: bool = False
    """Whether its limit or its listener has ended it."""


class Batcher:
    """Takes jobs from any thread and gives each its turn."""

    def __init__(self, sampler: Sampler):
        """The sampler says which tokens end a turn at the latest."""
        self.sampler = sampler
        self._jobs: queue.Queue[SamplingJob | None] = queue.Queue()
        self._open: set[SamplingJob] = set()
        self._closed = False
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="assay-sampling", daemon=True)
        self._thread.start()

    def submit(self, job: SamplingJob) -> None:
        """Queue a job; `job.done` gets its turn, or the exception that sampling raised."""
        self._open.add(job)
        job.done.add_done_callback(lambda _: self._open.discard(job))
        # Under the lock, so that no job is queued after the last one is refused.
        with self._closing:
            if not self._closed:
                self._jobs.put(job)
                return
        job.done.set_exception(CancelledError())

    def close(self) -> None:
        """Cancel running jobs before their next token, refuse queued ones, and stop the thread."""
        with self._closing:
            self._closed = True
            self._jobs.put(None)
        self._thread.join()
        for job in self._arrived():
            job.done.set_exception(CancelledError())

    def _work(self) -> None:
        running: list[SamplingJob] = []
        with self.sampler.conversations():
            while not self._closed:
                running += self._arrived(wait=not running)
                groups: dict[Sampling, list[SamplingJob]] = {}
                for job in running[:ROWS]:
                    if not job.cancelled:
                        kind = replace(job.sampling, max_tokens=SLICE)
                        groups.setdefault(kind, []).append(job)
                for sampling, jobs in groups.items():
                    self._draw(jobs, sampling)
                for job in running:
                    if job.cancelled and not job.done.done():
                        job.done.set_exception(CancelledError())
                running = [job for job in running if not job.done.done()]
        for job in running:
            job.done.set_exception(CancelledError())

    def _arrived(self, wait: bool = False) -> list[SamplingJob]:
        """Jobs queued since the last call; with `wait`, blocks until one comes or the end does."""
        jobs = [self._jobs.get()] if wait else []
        while not self._jobs.empty():
            jobs.append(self._jobs.get())
        return [job for job in jobs if job is not None]

    def _draw(self, jobs: list[SamplingJob], sampling: Sampling) -> None:
        """Draw a slice for jobs of one kind; finish or fail those that end."""
        before = [len(job.actions) for job in jobs]

        over = not self._jobs.empty()

        def watch(places_A: np.ndarray, tokens_A: np.ndarray) -> np.ndarray:
            nonlocal over
            for place, token in zip(places_A.tolist(), tokens_A.tolist(), strict=True):
                over |= self._hears(jobs[place], token)
            over |= self._closed or not self._jobs.empty()
            return np.full(len(places_A), over)

        try:
            turns = self.sampler.sample(
                [(*job.context, *job.actions) for job in jobs],
                [job.key for job in jobs],
                sampling,
                watch=watch,
                drawn=before,
            )
        except Exception as error:
            if len(jobs) > 1 and before == [len(job.actions) for job in jobs]:
                for job in jobs:  # none fails for another
                    self._draw([job], sampling)
                return
            for job in jobs:
                if not job.done.done():
                    job.done.set_exception(error)
            return
        for job, turn in zip(jobs, turns, strict=True):
            self._take(job, turn)

    def _hears(self, job: SamplingJob, token: int) -> bool:
        """Note a token of a job; whether the job ends with it."""
        job.actions.append(token)
        try:
            heard = job.hears is not None and job.hears(token)
        except Exception as error:  # this request fails; the others go on
            job.done.set_exception(error)
            return True
        job.over = heard or len(job.actions) >= job.sampling.max_tokens
        return job.over or job.cancelled or token in self.sampler.end_tokens

    def _take(self, job: SamplingJob, turn: Turn) -> None:
        """Note what was drawn in a slice, and finish the job where it ends."""
        job.logps += turn.behaviour_logps or ()
        if job.done.done() or job.cancelled:
            return
        if not all(map(math.isfinite, job.logps)):
            job.done.set_exception(RunFailure("the model's scores are not numbers"))
        elif turn.ended == "stop" or job.over:
            mask = (True,) * len(job.actions)
            drawn = tuple(job.actions), mask, tuple(job.logps)
            job.done.set_result(Turn(job.context, *drawn, turn.ended))
