"""Sends requests and reads whole answers, many at once, from one event loop in a thread of its own.

Connections are kept and used again; each carries one request at a time. What is asked and what an
answer means is not known here.
"""

import asyncio
import importlib.util
import ssl
import sys
import threading
import weakref
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from functools import cache
from http.cookiejar import DefaultCookiePolicy
from typing import Any, TypeVar

import httpx

Found = TypeVar("Found")

if importlib.util.find_spec("sniffio") is None:
    # httpcore looks for it four times in every request, which is a quarter of a request's time
    # where it is not installed. This entry is Python's own way to say that it is not.
    sys.modules.setdefault("sniffio", None)  # type: ignore[arg-type]

KEPT_SECONDS = 3.0
"""An idle connection is kept so long: less than servers do, which usually close after 5."""


class Late(Exception):
    """There was no whole answer in time."""


class Oversized(Exception):
    """An answer longer than allowed, or compressed although that was not asked for."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A server's answer."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    """By names in small letters."""


class Connections:
    """The connections to one server; safe to use from several threads, which block, and from the
    event loop itself, which does not."""

    def __init__(self) -> None:
        """Nothing is started before the first request."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        # One client for each connection: the time that a pool of httpx takes for a request grows
        # with its connections (25 ms at 200).
        self._free: list[httpx.AsyncClient] = []

    def wait(self, work: Coroutine[Any, Any, Found]) -> Found:
        """The result of `work`, which runs on the event loop; raises what it raises. Interrupted,
        it is cancelled."""
        waiting = asyncio.run_coroutine_threadsafe(work, self._running())
        try:
            return waiting.result()
        finally:
            waiting.cancel()

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                name = "assay-endpoint-loop"
                threading.Thread(target=_run, args=(self._loop,), name=name, daemon=True).start()
                weakref.finalize(self, _stop, self._loop, self._free)
            return self._loop

    async def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        *,
        seconds: float,
        most_bytes: int,
    ) -> Reply:
        """The answer to one request, all of it within `seconds`; on the event loop.

        Raises Late, Oversized, and httpx.HTTPError where there is no connection or no HTTP.
        """
        client = self._free.pop() if self._free else _client()
        try:
            async with asyncio.timeout(max(seconds, 0.001)):
                reply = await _answer(client, method, url, headers, body, most_bytes)
        except TimeoutError as error:
            raise Late from error
        finally:
            # The last used comes first, so that those that are no longer needed expire.
            self._free.append(client)
        return reply


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


def _stop(loop: asyncio.AbstractEventLoop, free: list[httpx.AsyncClient]) -> None:
    """Close the connections and end the thread."""

    async def close() -> None:
        for client in free:
            await client.aclose()
        loop.stop()

    if loop.is_running():
        asyncio.run_coroutine_threadsafe(close(), loop)


def _client() -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=1, keepalive_expiry=KEPT_SECONDS)
    client = httpx.AsyncClient(
        follow_redirects=False, timeout=None, verify=_certificates(), limits=limits
    )
    # A server's cookies would tie requests to those before them.
    client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    return client


async def _answer(
    client: httpx.AsyncClient,
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes | None,
    most_bytes: int,
) -> Reply:
    sent = {**headers, "Accept-Encoding": "identity"}
    if body is not None:
        sent["Content-Type"] = "application/json"
    received = bytearray()
    async with client.stream(method, url, headers=sent, content=body) as response:
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise Oversized("a compressed answer")
        async for piece in response.aiter_raw():
            received += piece
            if len(received) > most_bytes:
                raise Oversized(f"more than {most_bytes} bytes")
    return Reply(response.status_code, bytes(received), dict(response.headers))


@cache
def _certificates() -> ssl.SSLContext:
    """Reading the certificates takes longer than a request."""
    return httpx.create_ssl_context()
