"""The inside of a call that may ask the lab while it runs; else as `call_process` has it.

`Asker` is a comfort for the code and no protection from it: whoever runs in this process can write
to the pipes. What the supervisor and the lab make of that is decided there.

Apart from `call_process`, because asyncio is a third of what a worker imports, and most workers'
calls ask nothing.
"""

import asyncio
import json
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, NoReturn

from assay.sandbox.call_process import Privacy, answer_of, enter_call
from assay.sandbox.limits import CallLimits, Limits
from assay.sandbox.pipes import ANSWER, CALL, LineReader, checked_line, write_all


class Asker:
    """Numbers calls, keeps as many open as may be, and hands answers to those who wait."""

    def __init__(self, speak: int, hear: int, limits: CallLimits):
        """`speak` is the descriptor to write to, `hear` the one to read."""
        self._speak, self._replies, self._limits = speak, LineReader(hear), limits
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
        answer: Future[dict[str, Any]] = Future()
        asked = checked_line(dict(arguments))[:-1]
        with self._lock:
            self._later.append((name, asked, answer))
            self._send()
            if not self._hears:
                self._hears = True
                threading.Thread(target=self._listen, daemon=True).start()
        return await asyncio.wrap_future(answer)

    def finish(self, line: bytes) -> None:
        """Writes the call's own answer, between whole calls."""
        with self._lock:
            write_all(self._speak, ANSWER + line)

    def _send(self) -> None:
        while self._later and len(self._open) < self._limits.together:
            name, asked, answer = self._later.popleft()
            self._open[self._asked] = answer
            line = b'{"id": %d, "name": %s, "arguments": %s}\n'
            name_json = json.dumps(name).encode("ascii")
            write_all(self._speak, CALL + line % (self._asked, name_json, asked))
            self._asked += 1

    def _listen(self) -> None:
        while self._replies.fill():
            while line := self._replies.take_line():
                self._take(json.loads(line))

    def _take(self, message: dict[str, Any]) -> None:
        with self._lock:
            answer = self._open.pop(message["id"])
            self._send()
        # One that nobody waits for any more takes no answer.
        if not answer.set_running_or_notify_cancel():
            return
        if "refused" in message:
            answer.set_exception(RuntimeError(message["refused"]))
        else:
            answer.set_result(message["reply"])


def run_asking_call(
    function: Callable[..., Any],
    arguments: bytearray,
    limits: Limits,
    calls: CallLimits,
    scratch: str,
    pipes: Sequence[int],
    privacy: Privacy | None,
) -> NoReturn:
    """Runs `function(ask, **arguments)`, which may ask the lab; ends the process.

    `arguments` is JSON; `pipes` are where it asks and answers, and where it hears the lab.
    """
    code = os.EX_SOFTWARE
    try:
        speak, hear = enter_call(limits, scratch, pipes, privacy)
        asker = Asker(speak, hear, calls)
        given = json.loads(arguments)
        asker.finish(answer_of(partial(function, asker.ask), given, checked_line))
        code = os.EX_OK
    finally:
        os._exit(code)
