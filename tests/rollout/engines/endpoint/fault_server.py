"""A local server of OpenAI's chat interface that fails as it is told, and keeps its own account.

It runs on an event loop in a thread and keeps connections open. What it charges is its own word:
every answer that it has made, whether or not the client ever gets it.
"""

import asyncio
import json
import random
import threading
from asyncio import StreamReader, StreamWriter
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from tests.rollout.engines.endpoint.raw_server import chat

CHARGED = ("answer", "uncounted", "truncated", "cut", "slow", "endless", "silent")
"""Faults after which an answer was made, and paid for."""
REFUSED = {
    "429": (429, ""),
    "later": (429, "Retry-After: 0\r\n"),
    "500": (500, ""),
    "denied": (401, ""),
}
FINAL = {"too long": (400, ""), "bad": (400, ""), "too large": (413, "")}
"""Refusals that are not asked again."""
SAID = {"too long": b'{"error": {"code": "context_length_exceeded"}}'}
"""What stands in a refusal; `{}` in the others."""


@dataclass
class FaultServer:
    """Where it is, what it is to do, and what it did."""

    faults: Callable[[int], str]
    """The fault of each request, counted from 0: "answer" is none."""
    by_text: Callable[[str, int], str] | None = None
    """The same by what is asked, and how often it was asked before."""
    says: Callable[[str], str] = "about {}".format
    completion_tokens: int = 3
    seconds: float = 0.0
    """That an answer takes."""
    url: str = ""
    done: Counter[str] = field(default_factory=Counter)
    connections: int = 0
    at_once: int = 0
    """The most requests that were open at the same time."""
    texts: list[str] = field(default_factory=list)
    prompt_tokens: int = 0
    """Charged."""
    charged: int = 0
    """Answers."""
    heads: list[str] = field(default_factory=list)
    _open: int = 0

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """One connection."""
        self.connections += 1
        with suppress(asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            while await self._request(reader, writer):
                pass
        writer.close()

    async def _request(self, reader: StreamReader, writer: StreamWriter) -> bool:
        """Answer one request; whether the connection goes on."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        length = next(
            (int(x.split(":")[1]) for x in head.split("\r\n") if x.lower().startswith("content-l")),
            0,
        )
        body = json.loads(await reader.readexactly(length)) if length else {}
        self._open += 1
        self.at_once = max(self.at_once, self._open)
        try:
            return await self._answer(writer, body)
        finally:
            self._open -= 1

    async def _answer(self, writer: StreamWriter, body: dict) -> bool:
        if "messages" not in body:
            writer.write(whole(200, b'{"data": []}'))
            return True
        number = sum(self.done.values())
        text = body["messages"][-1]["content"]
        fault = self.by_text(text, self.texts.count(text)) if self.by_text else self.faults(number)
        self.done[fault] += 1
        self.texts.append(text)
        if fault in CHARGED:
            self.charged += 1
            self.prompt_tokens += len(text.split())
        await asyncio.sleep(self.seconds)
        return await self._send(writer, fault, text)

    async def _send(self, writer: StreamWriter, fault: str, text: str) -> bool:
        if fault in REFUSED or fault in FINAL:
            status, headers = {**REFUSED, **FINAL}[fault]
            writer.write(whole(status, SAID.get(fault, b"{}"), headers))
            return True
        usage = {"prompt_tokens": len(text.split()), "completion_tokens": self.completion_tokens}
        said = chat(self.says(text), None if fault == "uncounted" else usage)
        if fault in ("answer", "uncounted"):
            writer.write(whole(200, said))
            return True
        if fault == "truncated":
            writer.write(whole(200, said[: len(said) // 2]))
            return True
        if fault == "cut":
            writer.write(whole(200, said)[:-9])
            return False
        if fault == "silent":
            await asyncio.sleep(30)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in said if fault == "slow" else iter(lambda: 32, None):
            writer.write(b"1\r\n" + bytes([piece]) + b"\r\n")
            await writer.drain()
            await asyncio.sleep(0.05)
        return False


def whole(status: int, body: bytes, headers: str = "") -> bytes:
    """A whole answer on a connection that stays open."""
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


def drawn(faults: Sequence[str], seed: int = 0) -> Callable[[int], str]:
    """A fault for each request, drawn once."""
    return lambda number: random.Random(f"{seed} {number}").choice(faults)


@contextmanager
def fault_server(server: FaultServer) -> Iterator[FaultServer]:
    """The server at work on a free loopback port."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def begin() -> asyncio.Server:
        return await asyncio.start_server(server.serve, "127.0.0.1", 0, backlog=1024)

    async def end() -> None:
        listening.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    listening = asyncio.run_coroutine_threadsafe(begin(), loop).result()
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(end(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
