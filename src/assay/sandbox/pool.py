"""Killable workers: one primitive for everything slow or unsafe that the lab calls.

    with Worker("package.module:function") as worker:
        outcome = worker.call({"text": "..."}, deadline=5.0)

`WorkerPool` runs several workers of one function side by side, also whole programs that may ask the
lab while they run:

    where = "package.module:function"
    with WorkerPool(where, 2, isolation="namespaces", calls=CallLimits()) as pool:
        run = pool.run({"problem": "..."}, host, deadline=30.0)

There the function is called as `function(ask, **arguments)`, and `await ask(name, arguments)` is
answered by `host(name, arguments, number)` here.

What is covered
- Wall time: at its deadline a call is SIGKILLed with its process group and every other descendant,
  also those that left the group. The deadline counts from when the worker starts on the call.
- Limits of CPU time, address space, file size and open files for each process, and on the number of
  processes and the length of the answer of the whole call (`Limits`).
- Each call runs in its own process: an empty environment, an empty scratch directory as working
  directory, deleted afterwards, no inherited descriptors, nothing left of earlier calls.
- A crash of any kind is a `CallOutcome` with a failure; printing does not disturb the protocol, and
  nobody but the worker's supervisor can answer for a call.
- When the lab ends, be it by SIGKILL, workers and all that they started end too.

Of programs besides
- Of the disk a program sees the standard library, `assay`, its function's package and `folders`: no
  package that the user installed, for a benchmark has its answers there.
- The lab believes nothing it says: lengths and numbers are limited by the supervisor, and every
  line is checked here before anything is made of it. Abuse is the failure "protocol" or "calls" of
  this program; it cannot answer for another, nor say for the supervisor how it ended.
- One thread reads what a worker says, the hosts' write to it in turn; what they do late reaches no
  other program.
- A program's deadline counts its own time: while it waits for an answer, its CPU time alone.
- What `host` does is not limited here: `run` returns when the last question has ended.

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
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, Self

import psutil

from assay.errors import RunFailure
from assay.sandbox import pipes
from assay.sandbox.call_watch import tree
from assay.sandbox.isolation import (
    Mode,
    installed_paths,
    isolation_for,
    python_command,
    visible_paths,
)
from assay.sandbox.limits import CallLimits, CallOutcome, Limits

START_SECONDS = 120.0
"""For starting Python and importing the function's module on a busy machine."""
GRACE_SECONDS = 10.0
"""Seconds after a call's deadline in which the supervisor kills the call and reports it."""
Host = Callable[[str, Mapping[str, Any], int], Mapping[str, Any]]
"""What answers a program's calls: (name, arguments, number) -> JSON reply, in a thread for each.
They are numbered from 0 in the order in which the program makes them."""

DIED = CallOutcome(failure="crash", why="the worker process died")
SILENT = CallOutcome(failure="deadline", why="the worker gave no answer and was killed")
FORGED = CallOutcome(failure="crash", why="the reply is not the supervisor's")


class Closing:
    """Ends with the block that it is opened for."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends all that was started."""
        raise NotImplementedError


class CallConversation:
    """What is said of one call, from its request to the end of the last answer."""

    def __init__(self, worker: "Worker", requests: int, mark: bytes, host: Host | None):
        """`mark` stands before what the supervisor says."""
        self._worker, self._requests, self._mark, self._host = worker, requests, mark, host
        self._turn = threading.Lock()
        """Whoever has it may write to the supervisor, and may wait until that reads: who reads what
        it says never asks for it."""
        self._counted = threading.Condition()
        self.count = self._open = 0
        self._last = time.monotonic()
        """When the supervisor said something, or was told."""
        self.error: BaseException | None = None
        """What the host raised first."""
        self._over = False
        self._fault: CallOutcome | None = None

    def heard(self, silence: float, longest: float) -> CallOutcome | None:
        """How the call ended; None where the worker died.

        `silence` is how many seconds the supervisor may say nothing while no call is open,
        `longest` how many in all. Writes nothing: the supervisor may wait to be heard.
        """
        at_most = time.monotonic() + longest
        while True:
            line = self._worker.replies.read_line(min(at_most, self._last + silence))
            now = time.monotonic()
            silent = now >= self._last + silence and not self._open
            if line is None and (now >= at_most or silent):
                return SILENT
            self._last = now
            if line == b"":
                return None
            if line is not None and not line.startswith(self._mark):
                return FORGED
            message = (line or b"")[len(self._mark) :]
            if message[:1] == pipes.CALL:
                self._take(message[1:])
            elif message:
                return self._fault or self._outcome(message)

    def finish(self) -> None:
        """Tells the supervisor, once the host has answered all, that the conversation is over."""
        with self._counted:
            self._counted.wait_for(lambda: not self._open)
        self._tell(b"")

    def leave(self) -> None:
        """Nothing more is written. Of a worker that is dead, for who writes has the turn."""
        with self._turn:
            self._over = True

    def _take(self, line: bytes) -> None:
        """Has the host answer a call, or ends a program whose line is none."""
        if self._over or self._fault:
            return
        assert self._worker.threads
        try:
            call = pipes.read_call(line, self.count)
        except ValueError as bad:
            self._fault = CallOutcome(failure="protocol", why=str(bad))
            self._worker.threads.submit(self._tell, b"")
            return
        with self._counted:
            self._open += 1
        self._worker.threads.submit(self._ask, self.count, *call)
        self.count += 1

    def _ask(self, number: int, name: str, arguments: Mapping[str, Any]) -> None:
        """In a thread of its own."""
        assert self._host and self._worker.calls
        try:
            reply = dict(self._host(name, arguments, number))
            line = pipes.encode_line({"id": number, "reply": reply}, finite=True)
            if len(line) > self._worker.calls.reply_bytes:
                why = f"the answer is over {self._worker.calls.reply_bytes} bytes"
                line = pipes.encode_line({"id": number, "refused": why})
        except BaseException as error:  # also what ends a thread, which would wait for ever else
            line = b""
            with self._counted:
                self.error = self.error or error
        # Before it is told: a supervisor that does not read is silent, not waiting.
        with self._counted:
            self._open, self._last = self._open - 1, time.monotonic()
            self._counted.notify()
        self._tell(line)

    def _tell(self, line: bytes) -> None:
        """Sends a frame; an empty one ends the conversation."""
        with self._turn:
            # A worker that is dead is heard as the end of its replies.
            if not self._over:
                with contextlib.suppress(BrokenPipeError):
                    pipes.write_all(self._requests, pipes.FRAME.pack(len(line)) + line)
            self._over = self._over or not line

    def _outcome(self, last: bytes) -> CallOutcome:
        """What the last line says: the supervisor's word, or the called code's about itself."""
        if last[:1] != pipes.ANSWER:
            return CallOutcome(**json.loads(last[1:]))
        try:
            return pipes.read_answer(last[1:], checked=self._worker.calls is not None)
        except (ValueError, RecursionError) as bad:
            if self._worker.calls:
                return CallOutcome(failure="protocol", why=str(bad))
            # The called code wrote to the answer pipe itself.
            return CallOutcome(failure="crash", why="the answer is not in the worker's form")


class Worker(Closing):
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
        calls: CallLimits | None = None,
        threads: ThreadPoolExecutor | None = None,
    ):
        """`function` is "package.module:function", or "package.module:maker:text" for what
        `maker(text)` returns, called once; its module may import from `folders` too, which can be
        read in namespaces as well. With `calls` its calls are programs, whose hosts run in
        `threads`. Raises RunFailure."""
        self.function, self.folders, self.calls, self.threads = function, folders, calls, threads
        self.limits = limits or Limits()
        self._isolation = isolation_for(isolation)
        self._process: subprocess.Popen[bytes] | None = None
        self._scratch = ""

    def call(self, arguments: Mapping[str, Any], deadline: float) -> CallOutcome:
        """The function's value for `arguments`, or how it failed within `deadline` seconds.

        Raises RunFailure when the worker itself cannot start, and TypeError when the
        arguments are not JSON: neither says anything about the call.
        """
        return self.run(pipes.encode_line(arguments), deadline, deadline)

    def run(
        self, arguments: bytes, deadline: float, longest: float, host: Host | None = None
    ) -> CallOutcome:
        """One call with arguments as JSON; see `WorkerPool.run`."""
        request = pipes.REQUEST.pack(deadline, longest, len(arguments)) + arguments
        # One that dies before it asked was killed from outside, or by the call, or died as it
        # started: a second try shows which.
        tries = (self._converse(request, deadline, longest, host) for _ in range(2))
        return next(filter(None, tries), DIED)

    def _converse(
        self, request: bytes, deadline: float, longest: float, host: Host | None
    ) -> CallOutcome | None:
        """How the call ended; None where its worker died before it asked anything. Raises what
        the host raises."""
        conversation = None
        try:
            if self._process is None or self._process.poll() is not None:
                self.close()
                if not self._start():
                    self.close()
                    return None
            assert self._process and self._process.stdin
            nonce, requests = os.urandom(pipes.NONCE_BYTES), self._process.stdin.fileno()
            conversation = CallConversation(self, requests, pipes.signed(nonce, b""), host)
            # A worker that is dead is heard as the end of its replies.
            with contextlib.suppress(BrokenPipeError):
                pipes.write_all(requests, nonce + request)
            verdict = conversation.heard(deadline + GRACE_SECONDS, longest + GRACE_SECONDS)
            dead = verdict in (None, SILENT, FORGED)
            if dead:
                _kill_tree(self._process)
            conversation.finish()
            if dead:
                self.close()
        except BaseException:
            # After an interruption what is open would be taken for the next call's.
            if self._process is not None:
                _kill_tree(self._process)
            if conversation is not None:
                conversation.leave()
            self.close()
            raise
        if conversation.error is not None:
            raise conversation.error
        if verdict is None and conversation.count:
            return DIED
        return verdict

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

    def _setup(self, private: bool) -> dict[str, Any]:
        """What the supervisor is told."""
        packages = None
        if self.calls:
            packages = ["assay", self.function.split(":")[0].split(".")[0]]
        hidden, shown = installed_paths(packages) if private and packages else ([], [])
        return {
            "function": self.function,
            "limits": dataclasses.asdict(self.limits),
            "calls": dataclasses.asdict(self.calls) if self.calls else None,
            "scratch": self._scratch,
            "visible": visible_paths(self.folders, packages) if private else [],
            "hidden": hidden,
            "shown": shown,
            "user": self._isolation.call_user(),
            # Its process id, where it can be seen.
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
        self.replies = pipes.LineReader(self._process.stdout.fileno())
        line = self.replies.read_line(time.monotonic() + START_SECONDS)
        if line is None:
            raise RunFailure(f"the worker for {self.function} did not start")
        ready = json.loads(line) if line else {"ready": True}
        if not ready["ready"]:
            raise RunFailure(f"the worker cannot load {self.function}: {ready['why']}")
        return bool(line)


def _kill_tree(process: subprocess.Popen[bytes]) -> None:
    """SIGKILLs a worker that no longer answers, with its descendants, and reaps it."""
    descendants, groups = tree(process.pid)[1:], {process.pid}
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


class WorkerPool(Closing):
    """`size` workers of one function; each starts when there is a call for it. Any thread may
    call."""

    def __init__(
        self,
        function: str,
        size: int,
        limits: Limits | None = None,
        isolation: Mode = "limits-only",
        folders: Sequence[str] = (),
        *,
        calls: CallLimits | None = None,
    ):
        """`function` and `folders` as `Worker` has them; with `calls` the calls are programs, each
        with these limits. Raises RunFailure."""
        self._asks = calls is not None
        # Of programs they run the hosts, and one ends what goes wrong; else the calls.
        together = calls.together + 1 if calls else 1
        self._threads = ThreadPoolExecutor(size * together, "assay-worker")
        kinds = function, limits, isolation, folders, calls
        self._workers = [Worker(*kinds, threads=self._threads) for _ in range(size)]
        # Last in, first out: few calls keep few workers busy, and the others are never started.
        self._idle: queue.LifoQueue[Worker | None] = queue.LifoQueue()
        for worker in self._workers:
            self._idle.put(worker)
        self._closed = False

    def map(self, arguments: Sequence[Mapping[str, Any]], deadline: float) -> list[CallOutcome]:
        """The outcome of each call, in the order of `arguments`; `deadline` is each call's own.

        Raises RunFailure when a worker cannot start.
        """
        outcomes = dict(self.completed(arguments, deadline))
        return [outcomes[n] for n in range(len(arguments))]

    def completed(
        self, arguments: Sequence[Mapping[str, Any]], deadline: float
    ) -> Iterator[tuple[int, CallOutcome]]:
        """As `map`: the place and the outcome of each call, as soon as it is over."""

        def run(one: Mapping[str, Any]) -> CallOutcome:
            with self._worker() as worker:
                return worker.call(one, deadline)

        places = {self._threads.submit(run, one): n for n, one in enumerate(arguments)}
        try:
            for future in as_completed(places):
                yield places[future], future.result()
        finally:
            for future in places:
                future.cancel()

    def run(
        self, arguments: Mapping[str, Any], host: Host, deadline: float, longest: float = 600.0
    ) -> CallOutcome:
        """Runs one program; waits for a worker that is idle.

        `deadline` is in seconds of the program's own time, `longest` in seconds altogether. Raises
        what `host` raised first, which ends the program at once; RunFailure when a worker
        cannot start; TypeError or ValueError when the arguments are not JSON; RuntimeError once the
        pool is closed.
        """
        with self._worker() as worker:
            line = pipes.encode_line(dict(arguments), finite=True)
            return worker.run(line, deadline, longest, host)

    @contextlib.contextmanager
    def _worker(self) -> Iterator[Worker]:
        """A worker that is idle, for one call."""
        worker = self._idle.get()
        try:
            if worker is None:
                raise RuntimeError("the pool of workers is closed")
            yield worker
        finally:
            self._idle.put(worker)

    def close(self) -> None:
        """Drops calls that wait, lets running ones and programs end, ends the workers."""
        if self._closed:
            return
        self._closed = True
        if not self._asks:
            self._threads.shutdown(wait=True, cancel_futures=True)
        for _ in self._workers:
            self._idle.get()
        self._threads.shutdown(wait=True)
        for worker in self._workers:
            worker.close()
        self._idle.put(None)


class WorkerPools(Closing):
    """Pools by what their workers are, for all that ask one after the other: a worker may import
    for a second. Not for several threads, one of which could renew what another one uses."""

    def __init__(self) -> None:
        """Without any yet."""
        self._pools: dict[tuple[Any, ...], WorkerPool] = {}

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
