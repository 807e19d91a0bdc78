"""The inside of a program's calls back to the host: what `program_pool` gives a function as `ask`.

One line of JSON each way over a socket that only this call holds; calls are numbered from 0, and
several may be open at once. Nothing here is trusted: the program can do all this by itself, so the
host checks every line (`program_pool`).
"""

import asyncio
import json
import os
from typing import Any

CHANNEL = 4
"""The descriptor of the socket in the process of a call."""


class HostRefused(Exception):
    """The host did not answer a call."""


class HostCalls:
    """Asks the host from inside one event loop."""

    def __init__(self, descriptor: int):
        self.descriptor = descriptor
        self._open: dict[int, asyncio.Future[Any]] = {}
        self._asked = 0
        self._received = bytearray()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def ask(self, name: str, arguments: dict[str, Any]) -> Any:
        """The host's reply. Raises HostRefused, and TypeError for arguments that are no JSON."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            os.set_blocking(self.descriptor, False)
            loop.add_reader(self.descriptor, self._read)
            self._loop = loop
        line = json.dumps({"id": self._asked, "name": name, "arguments": arguments})
        future = self._open[self._asked] = loop.create_future()
        self._asked += 1
        await self._send(line.encode() + b"\n")
        return await future

    async def _send(self, line: bytes) -> None:
        left = memoryview(line)
        while left:
            try:
                left = left[os.write(self.descriptor, left) :]
            except BlockingIOError:
                await asyncio.sleep(0.002)

    def _read(self) -> None:
        try:
            chunk = os.read(self.descriptor, 1 << 16)
        except BlockingIOError:
            return
        if not chunk:
            assert self._loop
            self._loop.remove_reader(self.descriptor)
            self._fail("the host is gone")
        self._received += chunk
        *lines, rest = bytes(self._received).split(b"\n")
        self._received = bytearray(rest)
        for line in lines:
            self._hear(json.loads(line))

    def _hear(self, message: dict[str, Any]) -> None:
        future = self._open.pop(message["id"], None)
        if future is None or future.done():  # its call was cancelled
            return
        if "refused" in message:
            future.set_exception(HostRefused(message["refused"]))
        else:
            future.set_result(message["reply"])

    def _fail(self, why: str) -> None:
        for future in self._open.values():
            if not future.done():
                future.set_exception(HostRefused(why))
        self._open.clear()
