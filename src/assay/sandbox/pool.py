"""Several workers of one function, so that slow calls run side by side.

Order, limits and deadlines of one call are `worker`'s matter; here is only the spreading.
"""

import queue
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from assay.sandbox.isolation import Mode
from assay.sandbox.limits import Limits, Outcome
from assay.sandbox.worker import Worker


class WorkerPool:
    """`size` workers of one function; each starts when there is a call for it."""

    def __init__(
        self,
        function: str,
        size: int,
        limits: Limits | None = None,
        isolation: Mode = "limits-only",
        folders: Sequence[str] = (),
    ):
        """`function` and `folders` as `Worker` has them. Raises IsolationUnavailable."""
        self._workers = [Worker(function, limits, isolation, folders) for _ in range(size)]
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="assay-worker")
        # Last in, first out: few calls keep few workers busy, and the others are never started.
        self._idle: queue.LifoQueue[Worker] = queue.LifoQueue()
        for worker in self._workers:
            self._idle.put(worker)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def map(self, arguments: Sequence[Mapping[str, Any]], deadline: float) -> list[Outcome]:
        """The outcome of each call, in the order of `arguments`; `deadline` is each call's own.

        Raises WorkerStartError when a worker cannot start.
        """

        def run(one: Mapping[str, Any]) -> Outcome:
            worker = self._idle.get()
            try:
                return worker.call(one, deadline)
            finally:
                self._idle.put(worker)

        return list(self._threads.map(run, arguments))

    def close(self) -> None:
        """Drops calls that wait, lets running ones end by their deadline, ends the workers."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        for worker in self._workers:
            worker.close()
