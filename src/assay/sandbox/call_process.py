"""The inside of one call: a forked process that limits itself, runs the function and answers.

It runs in its own session with an empty scratch directory as working directory, no inherited
descriptors but its answer pipe (and, where it may ask, one on which it hears the lab), and stdin,
stdout and stderr on /dev/null; in namespaces also in private folders, as another user and behind a
filter of system calls. It never returns.

`CallQueue` is a comfort for the code that asks and no protection from it: whoever runs in this
process can write to the pipes. What the supervisor and the lab make of that is decided there.
"""

import ctypes
import fcntl
import json
import os
import resource
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from assay.sandbox.isolation import enter_private_call, enter_private_root
from assay.sandbox.limits import CallLimits, Limits, system_call_filter
from assay.sandbox.pipes import ANSWER, CALL, checked_line, encode_line, write_all

if TYPE_CHECKING:
    from asyncio import Future

    from pyseccomp import SyscallFilter

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
OTHER_PROCESSES = 2
"""Processes of a user namespace that are not the call's: the supervisor and `unshare`."""

# Made beforehand, because there may be no memory left to make it when it is needed.
OUT_OF_MEMORY = encode_line({"failure": "memory", "why": "MemoryError: over the memory limit"})


@dataclass(frozen=True, slots=True)
class Privacy:
    """What a call in namespaces does before it runs anything."""

    visible: Sequence[str]
    """What may be read (`isolation.visible_paths`)."""
    user: int
    """The user id to take; 0 to stay the user namespace's own."""
    system_calls: "SyscallFilter"
    """Made before the call's process, which could not find the library any more."""


def process_control(option: int, value: int) -> None:
    """prctl(2) where there is one (Linux). Raises OSError when the kernel refuses."""
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option}")


def enter_call(
    limits: Limits, scratch: str, kept: Sequence[int], privacy: Privacy | None
) -> list[int]:
    """Cuts this process off from its supervisor's world but for the descriptors `kept`; returns
    their new numbers, from 3 on."""
    os.setsid()
    # By way of higher numbers: one of them may be in another's place.
    spare = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 3 + len(kept)) for descriptor in kept]
    numbers = [os.dup2(each, 3 + n, inheritable=False) for n, each in enumerate(spare)]
    os.closerange(3 + len(kept), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    if privacy is not None:
        enter_private_call(privacy.user, privacy.visible)
        scratch = "/tmp/call"
        Path(scratch).mkdir(mode=0o700)
    # After the change of user, which takes it back.
    process_control(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.chdir(scratch)
    cap = {
        # The hard limit lies one second above, so that the signal is SIGXCPU, which says why.
        resource.RLIMIT_CPU: (limits.cpu_seconds, limits.cpu_seconds + 1),
        resource.RLIMIT_AS: (limits.memory_bytes, limits.memory_bytes),
        resource.RLIMIT_FSIZE: (limits.file_bytes, limits.file_bytes),
        resource.RLIMIT_NOFILE: (limits.open_files, limits.open_files),
        resource.RLIMIT_CORE: (0, 0),
    }
    if privacy is not None:
        # A limit of the user, who has no other processes in namespaces only.
        most = limits.processes + OTHER_PROCESSES
        cap[resource.RLIMIT_NPROC] = (most, most)
    for kind, (soft, hard) in cap.items():
        ceiling = resource.getrlimit(kind)[1]
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)
        resource.setrlimit(kind, (soft, hard))
    if privacy is not None:
        privacy.system_calls.load()
    return numbers


def run_call(
    function: Callable[..., Any],
    arguments: bytearray,
    limits: Limits,
    calls: CallLimits | None,
    scratch: str,
    pipes: Sequence[int],
    privacy: Privacy | None,
) -> NoReturn:
    """Runs `function(**arguments)`, or `function(ask, **arguments)` where it may ask the lab, and
    writes its answer; ends the process.

    `arguments` is JSON; `pipes` are where it answers, and where it hears the lab.
    """
    code = os.EX_SOFTWARE
    try:
        ends = enter_call(limits, scratch, pipes, privacy)
        values = json.loads(arguments)
        if calls is None:
            write_all(ends[0], answer_of(function, values))
        else:
            asker = CallQueue(ends[0], ends[1], calls)
            asker.finish(answer_of(partial(function, asker.ask), values, checked_line))
        code = os.EX_OK
    finally:
        # Also when the answer cannot be written: nothing of the supervisor may run in this copy.
        os._exit(code)


class CallQueue:
    """Numbers calls, keeps as many open as may be, and hands answers to those who wait."""

    def __init__(self, speak: int, hear: int, limits: CallLimits):
        """`speak` is the descriptor to write to, `hear` the one to read."""
        self._speak, self._hear, self._limits = speak, hear, limits
        self._lock = threading.Lock()
        self._asked = 0
        self._open: dict[int, Future[dict[str, Any]]] = {}
        self._later: deque[tuple[str, bytes, Future[dict[str, Any]]]] = deque()
        self._hears = False

    async def ask(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The lab's answer. Several calls may be open at once, also from several event loops.

        Raises TypeError or ValueError where the arguments are none that the lab reads, RuntimeError
        where it gives no answer.
        """
        # Here, because it is a third of what a worker would import, and most calls ask nothing.
        import asyncio

        answer: Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        line = checked_line(dict(arguments))[:-1]
        with self._lock:
            self._later.append((name, line, answer))
            self._send()
            if not self._hears:
                self._hears = True
                threading.Thread(target=self._listen, daemon=True).start()
        return await answer

    def finish(self, line: bytes) -> None:
        """Writes the call's own answer, between whole calls."""
        with self._lock:
            write_all(self._speak, ANSWER + line)

    def _send(self) -> None:
        while self._later and len(self._open) < self._limits.together:
            name, text, answer = self._later.popleft()
            self._open[self._asked] = answer
            line = b'{"id": %d, "name": %s, "arguments": %s}\n'
            name_json = json.dumps(name).encode("ascii")
            write_all(self._speak, CALL + line % (self._asked, name_json, text))
            self._asked += 1

    def _listen(self) -> None:
        for line in os.fdopen(self._hear, "rb"):
            message = json.loads(line)
            with self._lock:
                answer = self._open.pop(message["id"])
                self._send()
            # The loop of one that nobody waits for any more may be closed.
            with suppress(RuntimeError):
                answer.get_loop().call_soon_threadsafe(settle, answer, message)


def settle(answer: "Future[dict[str, Any]]", message: Mapping[str, Any]) -> None:
    """Gives an answer to who waits for it, if anybody does."""
    if answer.done():
        return
    if "refused" in message:
        answer.set_exception(RuntimeError(message["refused"]))
    else:
        answer.set_result(message["reply"])


def rehearse(setup: Mapping[str, Any]) -> None:
    """Enter the namespaces of a worker and of a call, to see whether this machine can.

    Raises OSError where the kernel refuses a step, RuntimeError without libseccomp.
    """
    privacy = Privacy(setup["visible"], setup["user"], system_call_filter())
    enter_private_root(setup["visible"])
    _, send = os.pipe()
    enter_call(Limits(), "", [send], privacy)


def answer_of(
    function: Callable[..., Any],
    arguments: Mapping[str, Any],
    encode: Callable[[Any], bytes] = encode_line,
) -> bytes:
    """The line with the function's value, or with what it raised instead."""
    try:
        return encode({"value": function(**arguments)})
    except MemoryError:
        return OUT_OF_MEMORY
    except BaseException as error:  # SystemExit too: the called code must not end the protocol
        return encode_line({"failure": "exception", "why": f"{type(error).__name__}: {error}"})
