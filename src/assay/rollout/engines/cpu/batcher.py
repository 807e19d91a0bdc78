"""Samples requests together, in one thread beside the server's; they join between two steps.

A `Decoder` samples: the lab's continuous batch, or a scripted one in tests. Tokens follow from a
job's key alone, so concurrent requests never change an answer (but for the last bits of the matrix
products). HTTP and text are handled elsewhere.
"""

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from typing import Protocol

from assay.data.episode import Turn
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.cpu.continuous_batch import Row, Step


class Decoder(Protocol):
    """Draws tokens for completions that come and go; see `continuous_batch.ContinuousBatch`."""

    def join(self, context: Sequence[int], key: SampleKey, sampling: Sampling) -> Row:
        """Queue a completion."""
        ...

    def step(self) -> Step:
        """At most one token for each completion."""
        ...

    def leave(self, row: Row) -> None:
        """Forget a completion that has not failed."""
        ...

    def clear(self) -> None:
        """Forget all."""
        ...


@dataclass(eq=False)
class Job:
    """One completion to sample."""

    context: tuple[int, ...]
    key: SampleKey
    sampling: Sampling
    hears: Callable[[int], bool] | None = None
    """Called with each token drawn; True ends the completion."""
    cancelled: bool = False
    """The client is gone: the completion leaves before the next step."""
    done: Future[Turn] = field(default_factory=Future)


@dataclass(eq=False)
class Running:
    """A job under way and what was drawn for it."""

    job: Job
    row: Row
    actions: list[int] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)

    def turn(self, stopped: bool) -> Turn:
        """What was drawn, as a turn."""
        mask = (True,) * len(self.actions)
        ended = "stop" if stopped else "length"
        return Turn(self.job.context, tuple(self.actions), mask, tuple(self.logps), ended)


class Batcher:
    """Takes jobs from any thread and gives each its turn."""

    def __init__(self, decoder: Decoder, end_tokens: frozenset[int]):
        """A turn ends with one of `end_tokens` at the latest."""
        self.decoder = decoder
        self.end_tokens = end_tokens
        self._jobs: queue.Queue[Job | None] = queue.Queue()
        self._open: set[Job] = set()
        self._closed = False
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="assay-sampling", daemon=True)
        self._thread.start()

    @property
    def open_jobs(self) -> int:
        """Completions that wait or are sampled."""
        return len(self._open)

    def submit(self, job: Job) -> None:
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
        running: dict[Row, Running] = {}
        while not self._closed:
            for job in self._arrived(wait=not running):
                self._join(job, running)
            try:
                self._drop([one for one in running.values() if one.job.cancelled], running)
                if running:
                    self._step(running)
            except Exception as error:  # these requests fail; the server goes on
                self.decoder.clear()
                for one in running.values():
                    one.job.done.set_exception(error)
                running.clear()
        self._drop(list(running.values()), running)

    def _join(self, job: Job, running: dict[Row, Running]) -> None:
        try:
            row = self.decoder.join(job.context, job.key, job.sampling)
            running[row] = Running(job, row)
        except Exception as error:
            job.done.set_exception(error)

    def _arrived(self, wait: bool = False) -> list[Job]:
        """Jobs queued since the last call; with `wait`, blocks until one comes or the end does."""
        found = [self._jobs.get()] if wait else []
        while not self._jobs.empty():
            found.append(self._jobs.get())
        return [job for job in found if job is not None]

    def _drop(self, unwanted: Sequence[Running], running: dict[Row, Running]) -> None:
        for one in unwanted:
            self._end(one, running)
            one.job.done.set_exception(CancelledError())

    def _end(self, one: Running, running: dict[Row, Running]) -> None:
        self.decoder.leave(one.row)
        del running[one.row]

    def _step(self, running: dict[Row, Running]) -> None:
        """Draw one token for each job; finish or fail the jobs that end."""
        step = self.decoder.step()
        for row, error in step.failed:
            running.pop(row).job.done.set_exception(error)
        for row, token, logp in step.drawn:
            one = running[row]
            one.actions.append(token)
            one.logps.append(logp)
            stopped = token in self.end_tokens
            try:
                heard = one.job.hears is not None and one.job.hears(token)
            except Exception as error:  # this request fails; the others go on
                self._end(one, running)
                one.job.done.set_exception(error)
                continue
            if stopped or heard or len(one.actions) >= one.job.sampling.max_tokens:
                self._end(one, running)
                one.job.done.set_result(one.turn(stopped))
