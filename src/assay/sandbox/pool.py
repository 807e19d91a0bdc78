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
- One thread reads and writes the pipes of a worker; what hosts do late reaches no other program.
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
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Self

import psutil

from assay.errors import RunFailure
from assay.sandbox import pipes
from assay.sandbox.isolation import (
    Mode,
    installed_paths,
    isolation_for,
    python_command,
    visible_paths,
)
from assay.sandbox.limits import OF_A_CALL, CallLimits, CallOutcome, Limits

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


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """What became of one call."""

    outcome: CallOutcome
    own_seconds: float = 0.0
    """Seconds of its own, as its deadline counts them."""
    seconds: float = 0.0
    """Wall time, the answers of the lab included."""


@dataclass(frozen=True, slots=True)
class CallService:
    """What calls of a worker that ask may ask, and who answers."""

    limits: CallLimits
    threads: ThreadPoolExecutor
    """Run the host."""
    wake: int
    waker: int
    """A pipe that wakes who waits for answers."""


class CallConversation:
    """What is said of one call, from its request to the end of the last answer."""

    def __init__(
        self,
        replies: pipes.LineReader,
        requests: int,
        mark: bytes,
        asking: CallService | None,
        host: Host | None,
    ):
        """`mark` stands before what the supervisor says."""
        self._replies, self._requests, self._mark = replies, requests, mark
        self._asking, self._host = asking, host
        self._answered: SimpleQueue[bytes | BaseException] = SimpleQueue()
        self._outgoing = bytearray()
        self.count = self._open = 0
        self.error: BaseException | None = None
        """What the host raised first."""
        self._stopped = False
        self._fault: CallOutcome | None = None

    def begin(self, request: bytes) -> None:
        """Sends the request; a worker that is dead is heard as the end of its replies."""
        os.set_blocking(self._requests, True)
        with contextlib.suppress(BrokenPipeError):
            pipes.write_all(self._requests, request)
        os.set_blocking(self._requests, False)

    def listen(self, silence: float, longest: float) -> ProgramRun | None:
        """How the program ended; None where the worker died.

        `silence` is how many seconds the supervisor may say nothing while no call is open,
        `longest` how many in all. Does not return before the host has.
        """
        verdict = self._heard(silence, time.monotonic() + longest)
        while self._open:
            self._collect(self._answered.get())
        self._stop()
        return verdict

    def end(self) -> None:
        """Tells a worker that lives that the conversation is over."""
        os.set_blocking(self._requests, True)
        # A worker that is dead by now is found so by the next program.
        with contextlib.suppress(BrokenPipeError):
            pipes.write_all(self._requests, self._outgoing)

    def _heard(self, silence: float, at_most: float) -> ProgramRun | None:
        replies = self._replies
        wake = [self._asking.wake] if self._asking else []
        heard = time.monotonic()
        while True:
            writable = [self._requests] if self._outgoing else []
            left = min(at_most, heard + silence) - time.monotonic()
            ready = pipes.wait_ready([replies.descriptor, *wake], min(left, 1.0), writable)
            now = time.monotonic()
            heard = now if ready or self._open else heard
            if now >= min(at_most, heard + silence):
                return ProgramRun(SILENT)
            if wake and wake[0] in ready:
                os.read(wake[0], 1 << 16)
                while not self._answered.empty():
                    self._collect(self._answered.get())
            if self._requests in ready and not self._send():
                return None
            if replies.descriptor in ready:
                if not replies.fill():
                    return None
                if verdict := self._hear():
                    return verdict

    def _hear(self) -> ProgramRun | None:
        while (line := self._replies.take_line()) is not None:
            if not line.startswith(self._mark):
                return ProgramRun(FORGED)
            message = line[len(self._mark) :]
            if message[:1] != pipes.CALL:
                seconds, _, last = message.partition(b" ")
                return ProgramRun(self._fault or self._outcome(last), float(seconds))
            self._take(message[1:])
        return None

    def _take(self, line: bytes) -> None:
        """Has the host answer a call, or ends a program whose line is none."""
        if self._stopped:
            return
        try:
            call = pipes.read_call(line, self.count)
        except ValueError as bad:
            self._fault = CallOutcome(failure="protocol", why=str(bad))
            self._stop()
            return
        self.count += 1
        self._open += 1
        assert self._asking
        self._asking.threads.submit(self._ask, call, self._asking)

    def _ask(self, call: pipes.PipeRequest, asking: CallService) -> None:
        """In a thread of its own."""
        assert self._host
        try:
            reply = dict(self._host(call.name, call.arguments, call.number))
            line = pipes.encode_line({"id": call.number, "reply": reply}, finite=True)
            if len(line) > asking.limits.reply_bytes:
                why = f"the answer is over {asking.limits.reply_bytes} bytes"
                line = pipes.encode_line({"id": call.number, "refused": why})
            self._answered.put(line)
        except BaseException as error:  # also what ends a thread, which would wait for ever else
            self._answered.put(error)
        os.write(asking.waker, b".")

    def _collect(self, answer: bytes | BaseException) -> None:
        self._open -= 1
        if isinstance(answer, BaseException):
            self.error = self.error or answer
            self._stop()
        elif not self._stopped:
            self._outgoing += pipes.FRAME.pack(len(answer)) + answer

    def _stop(self) -> None:
        if not self._stopped:
            self._outgoing += pipes.FRAME.pack(0)
            self._stopped = True

    def _send(self) -> bool:
        """Writes what the pipe takes; whether there is a worker to read it."""
        try:
            done = os.write(self._requests, self._outgoing)
        except BrokenPipeError:
            return False
        del self._outgoing[:done]
        return True

    def _outcome(self, last: bytes) -> CallOutcome:
        """What the last line says: the supervisor's word, or the called code's about itself."""
        if last[:1] != pipes.ANSWER:
            return CallOutcome(**json.loads(last[1:]))
        if self._asking:
            try:
                return pipes.read_answer(last[1:])
            except ValueError as bad:
                return CallOutcome(failure="protocol", why=str(bad))
        try:
            outcome = CallOutcome(**json.loads(last[1:]))
        except (ValueError, TypeError, RecursionError):
            outcome = None
        if outcome is None or outcome.failure not in (None, *OF_A_CALL):
            # The called code wrote to the answer pipe itself.
            return CallOutcome(failure="crash", why="the answer is not in the worker's form")
        return outcome


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
        asking: CallService | None = None,
    ):
        """`function` is "package.module:function", or "package.module:maker:text" for what
        `maker(text)` returns, called once; its module may import from `folders` too, which can be
        read in namespaces as well. With `asking` calls are programs. Raises RunFailure."""
        self.function, self.folders, self.asking = function, folders, asking
        self.limits = limits or Limits()
        self._isolation = isolation_for(isolation)
        self._process: subprocess.Popen[bytes] | None = None
        self._scratch = ""

    def call(self, arguments: Mapping[str, Any], deadline: float) -> CallOutcome:
        """The function's value for `arguments`, or how it failed within `deadline` seconds.

        Raises RunFailure when the worker itself cannot start, and TypeError when the
        arguments are not JSON: neither says anything about the call.
        """
        return self.run(pipes.encode_line(arguments), deadline, deadline).outcome

    def run(
        self, arguments: bytes, deadline: float, longest: float, host: Host | None = None
    ) -> ProgramRun:
        """One call with arguments as JSON; see `WorkerPool.run`."""
        request = pipes.REQUEST.pack(deadline, longest, len(arguments)) + arguments
        start = time.monotonic()
        # One that dies before it asked was killed from outside, or by the call, or died as it
        # started: a second try shows which.
        ended = self._converse(request, deadline, longest, host)
        ended = ended or self._converse(request, deadline, longest, host) or ProgramRun(DIED)
        return dataclasses.replace(ended, seconds=time.monotonic() - start)

    def _converse(
        self, request: bytes, deadline: float, longest: float, host: Host | None
    ) -> ProgramRun | None:
        """How the call ended; None where its worker died before it asked anything. Raises what
        the host raises."""
        try:
            if self._process is None or self._process.poll() is not None:
                self.close()
                if not self._start():
                    self.kill()
                    return None
            assert self._process and self._process.stdin
            nonce, requests = os.urandom(pipes.NONCE_BYTES), self._process.stdin.fileno()
            mark = pipes.signed(nonce, b"")
            conversation = CallConversation(self._replies, requests, mark, self.asking, host)
            conversation.begin(nonce + request)
            verdict = conversation.listen(deadline + GRACE_SECONDS, longest + GRACE_SECONDS)
        except BaseException:
            # After an interruption what is open would be taken for the next call's.
            self.kill()
            raise
        if verdict is None or verdict.outcome in (SILENT, FORGED):
            self.kill()
        else:
            conversation.end()
        if conversation.error is not None:
            raise conversation.error
        if verdict is None and conversation.count:
            return ProgramRun(DIED)
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

    def kill(self) -> None:
        """As `close`, without waiting for what the worker does."""
        if self._process is not None:
            _kill_tree(self._process)
        self.close()

    def _setup(self, private: bool) -> dict[str, Any]:
        """What the supervisor is told."""
        packages = None
        if self.asking:
            packages = ["assay", self.function.split(":")[0].split(".")[0]]
        hidden, shown = installed_paths(packages) if private and packages else ([], [])
        return {
            "function": self.function,
            "limits": dataclasses.asdict(self.limits),
            "calls": dataclasses.asdict(self.asking.limits) if self.asking else None,
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
        self._replies = pipes.LineReader(self._process.stdout.fileno())
        line = self._replies.read_line(time.monotonic() + START_SECONDS)
        if line is None:
            raise RunFailure(f"the worker for {self.function} did not start")
        ready = json.loads(line) if line else {"ready": True}
        if not ready["ready"]:
            raise RunFailure(f"the worker cannot load {self.function}: {ready['why']}")
        return bool(line)


def _kill_tree(process: subprocess.Popen[bytes]) -> None:
    """SIGKILLs a worker that no longer answers, with its descendants, and reaps it."""
    descendants, groups = [], {process.pid}
    with contextlib.suppress(psutil.NoSuchProcess):
        descendants = psutil.Process(process.pid).children(recursive=True)
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
        # Of programs they run the hosts, else the calls.
        self._threads = ThreadPoolExecutor(size * (calls.together if calls else 1), "assay-worker")
        asking = [calls and CallService(calls, self._threads, *os.pipe()) for _ in range(size)]
        self._workers = [Worker(function, limits, isolation, folders, each) for each in asking]
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
    ) -> ProgramRun:
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
            if worker.asking:
                os.close(worker.asking.wake)
                os.close(worker.asking.waker)
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
