"""Killable workers: one primitive for everything slow or unsafe that the lab calls.

    with Worker("package.module:function") as worker:
        outcome = worker.call({"text": "..."}, deadline=5.0)

`WorkerPool` runs several workers of one function side by side.

What is covered
- Wall time: at its deadline a call is SIGKILLed with its process group and every other descendant,
  also those that left the group. The deadline counts from when the worker starts on the call.
- Limits of CPU time, address space, file size and open files for each process, and on the number of
  processes and the length of the answer of the whole call (`Limits`).
- Each call runs in its own process: an empty environment, an empty scratch directory as working
  directory, deleted afterwards, no inherited descriptors, nothing left of earlier calls.
- A crash of any kind is an `Outcome` with a failure; printing does not disturb the protocol, and
  nobody but the worker's supervisor can answer for a call.
- When the lab ends, be it by SIGKILL, workers and all that they started end too.

What is not covered
- With isolation "limits-only" this is no security sandbox: the code can use the network and the
  user's files, and could kill its supervisor. Code that a model wrote needs "namespaces".
- The value comes from the process that ran the function. A function that runs untrusted code in its
  own process can have its value forged by that code.
- The kernel's limits hold for each process of a call; the sum of their memory and CPU time is
  counted ten times a second, so that it can be more for a moment.
- Linux only: elsewhere there are no subreapers, and nothing of this has been tried.
"""

import contextlib
import dataclasses
import json
import os
import queue
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, Self

import psutil

from assay.errors import RunFailure
from assay.sandbox.isolation import Mode, isolation_for, python_command, visible_paths
from assay.sandbox.limits import OF_A_CALL, Limits, Outcome
from assay.sandbox.pipes import ANSWER, NONCE_BYTES, LineReader, encode_line, signed, write_all

START_SECONDS = 120.0
"""For starting Python and importing the function's module on a busy machine."""
GRACE_SECONDS = 10.0
"""Seconds after a call's deadline in which the supervisor kills the call and reports it."""


DIED = Outcome(failure="crash", why="the worker process died")


class Worker:
    """A process that runs one importable function on JSON arguments, one call at a time.

    It starts with its first call and starts anew whenever it is found dead. Not to be called from
    two threads at once; `WorkerPool` runs several.
    """

    def __init__(
        self,
        function: str,
        limits: Limits | None = None,
        isolation: Mode = "limits-only",
        folders: Sequence[str] = (),
    ):
        """`function` is "package.module:function", or "package.module:maker:text" for what
        `maker(text)` returns, called once; its module may import from `folders` too, which can be
        read in namespaces as well. Raises RunFailure."""
        self.function, self.folders = function, folders
        self.limits = limits or Limits()
        self._isolation = isolation_for(isolation)
        self._process: subprocess.Popen[bytes] | None = None
        self._scratch = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, arguments: Mapping[str, Any], deadline: float) -> Outcome:
        """The function's value for `arguments`, or how it failed within `deadline` seconds.

        Raises RunFailure when the worker itself cannot start, and TypeError when the
        arguments are not JSON: neither says anything about the call.
        """
        line = encode_line({"arguments": arguments, "deadline": deadline})
        try:
            # A worker that dies was killed from outside, or by the call: a second try shows which.
            return self._attempt(line, deadline) or self._attempt(line, deadline) or DIED
        except BaseException:
            # After an interruption the pending answer would be taken for that of the next call.
            self.close()
            raise

    def _attempt(self, line: bytes, deadline: float) -> Outcome | None:
        """The outcome of one request; None when the worker died, while starting too."""
        nonce = os.urandom(NONCE_BYTES)
        reply = self._exchange(nonce + line, deadline)
        mark = signed(nonce, b"")
        if reply and reply.startswith(mark):
            return _outcome(reply.removeprefix(mark))
        self.close()
        if reply is None:
            return Outcome(failure="deadline", why="the worker gave no answer and was killed")
        return Outcome(failure="crash", why="the reply is not the supervisor's") if reply else None

    def close(self) -> None:
        """Ends the worker and all it started; a later call starts it anew."""
        if self._process is None:
            return
        process, self._process = self._process, None
        assert process.stdin and process.stdout
        process.stdin.close()
        try:
            process.wait(timeout=GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            _kill_tree(process)
        process.stdout.close()
        # The supervisor deletes it when it can; a killed one cannot.
        shutil.rmtree(self._scratch, ignore_errors=True)

    def kill(self) -> None:
        """As `close`, without waiting for what the worker does."""
        if self._process is not None:
            _kill_tree(self._process)
        self.close()

    def _exchange(self, request: bytes, deadline: float) -> bytes | None:
        """The reply line; b"" when the worker died; None when it is silent past the deadline."""
        if not self._alive():
            return b""
        assert self._process and self._process.stdin
        try:
            write_all(self._process.stdin.fileno(), request)
        except BrokenPipeError:
            return b""
        return self._replies.read_line(time.monotonic() + deadline + GRACE_SECONDS)

    def _alive(self) -> bool:
        """Whether there is a worker, started anew where there was none. Raises RunFailure."""
        if self._process is not None and self._process.poll() is None:
            return True
        self.close()
        return self._start()

    def _setup(self, private: bool) -> dict[str, Any]:
        """What the supervisor is told."""
        return {
            "function": self.function,
            "limits": dataclasses.asdict(self.limits),
            "calls": None,
            "scratch": self._scratch,
            "visible": visible_paths(self.folders) if private else [],
            "hidden": [],
            "shown": [],
            "user": self._isolation.call_user(),
            "lab": 0 if private else os.getpid(),
        }

    def _start(self) -> bool:
        """Whether the worker came up; False where it died meanwhile. Raises RunFailure."""
        # In namespaces every call makes its scratch folder in its own /tmp.
        private = bool(self._isolation.tool)
        self._scratch = "" if private else tempfile.mkdtemp(prefix="assay-worker-")
        setup = self._setup(private)
        start = python_command("from assay.sandbox.supervisor import main; main()", self.folders)
        self._process = subprocess.Popen(
            [*self._isolation.prefix, *start, json.dumps(setup)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.environ.get("PATH", os.defpath)},
            cwd="/",
            start_new_session=True,
        )
        assert self._process.stdout
        self._replies = LineReader(self._process.stdout.fileno())
        line = self._replies.read_line(time.monotonic() + START_SECONDS)
        if line is None:
            raise RunFailure(f"the worker for {self.function} did not start")
        ready = json.loads(line) if line else {"ready": True}
        if not ready["ready"]:
            raise RunFailure(f"the worker cannot load {self.function}: {ready['why']}")
        return bool(line)


def _outcome(reply: bytes) -> Outcome:
    try:
        outcome = Outcome(**json.loads(reply[1:]))
    except (ValueError, TypeError, RecursionError):
        outcome = None
    if outcome is None or (reply[:1] == ANSWER and outcome.failure not in (None, *OF_A_CALL)):
        # The called code wrote to the answer pipe itself.
        return Outcome(failure="crash", why="the answer is not in the worker's form")
    return outcome


def _kill_tree(process: subprocess.Popen[bytes]) -> None:
    """SIGKILLs a worker that no longer answers, with its descendants, and reaps it."""
    try:
        descendants = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        descendants = []
    groups = {process.pid}
    for descendant in descendants:
        with contextlib.suppress(ProcessLookupError):
            groups.add(os.getpgid(descendant.pid))
    # By groups, because a call that forks all the time has children that no list holds.
    for group in groups - {os.getpgrp()}:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    for descendant in descendants:
        # Killed ones vanish with their namespace while the list is walked.
        with contextlib.suppress(psutil.NoSuchProcess):
            descendant.kill()
    process.wait()


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
        """`function` and `folders` as `Worker` has them. Raises RunFailure."""
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

        Raises RunFailure when a worker cannot start.
        """

        found = dict(self.completed(arguments, deadline))
        return [found[n] for n in range(len(arguments))]

    def completed(
        self, arguments: Sequence[Mapping[str, Any]], deadline: float
    ) -> Iterator[tuple[int, Outcome]]:
        """As `map`: the place and the outcome of each call, as soon as it is over."""

        def run(one: Mapping[str, Any]) -> Outcome:
            worker = self._idle.get()
            try:
                return worker.call(one, deadline)
            finally:
                self._idle.put(worker)

        places = {self._threads.submit(run, one): n for n, one in enumerate(arguments)}
        try:
            for future in as_completed(places):
                yield places[future], future.result()
        finally:
            for future in places:
                future.cancel()

    def close(self) -> None:
        """Drops calls that wait, lets running ones end by their deadline, ends the workers."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        for worker in self._workers:
            worker.close()


class WorkerPools:
    """Pools by what their workers are, for all that ask one after the other: a worker may import
    for a second. Not for several threads, one of which could renew what another one uses."""

    def __init__(self) -> None:
        """Without any yet."""
        self._pools: dict[tuple[Any, ...], WorkerPool] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def pool(
        self, function: str, size: int, limits: Limits, isolation: Mode, folders: tuple[str, ...]
    ) -> WorkerPool:
        """The pool, arguments as `WorkerPool` has them. Raises RunFailure."""
        key = (function, size, limits, isolation, folders)
        if key not in self._pools:
            self._pools[key] = WorkerPool(*key)
        return self._pools[key]

    def renew(self, *key: Any) -> None:
        """Whoever asks for this pool next gets workers that have served nobody."""
        if key in self._pools:
            self._pools.pop(key).close()

    def close(self) -> None:
        """Ends all workers."""
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()
