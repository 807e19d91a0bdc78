"""Sends requests and reads whole answers, many at once, from one event loop in a thread of its own.

Connections are kept and used again; each carries one request at a time. Where the environment names
a proxy for a server, httpx asks through it. What is asked and what an answer means is not known
here.
"""

import asyncio
import ssl
import threading
import weakref
from collections import deque
from collections.abc import Coroutine
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cache, lru_cache
from http.cookiejar import DefaultCookiePolicy
from typing import Any, TypeVar
from urllib.request import getproxies, proxy_bypass

import httpx

from assay.rollout.engines.endpoint.http_connection import (
    HttpConnection,
    Oversized,
    Place,
    Reply,
    Request,
    connected,
    place_of,
)

Found = TypeVar("Found")

KEPT_SECONDS = 3.0
"""An idle connection is kept so long: less than servers do, which usually close after 5."""


class Late(Exception):
    """There was no whole answer in time."""


@dataclass(slots=True)
class _Handed:
    """Work that a thread hands to the event loop and waits for."""

    work: Coroutine[Any, Any, Any]
    done: Future[Any] = field(default_factory=Future)
    _task: asyncio.Task[Any] | None = None

    def begin(self) -> None:
        """Begin it; on the event loop, as the others."""
        self._task = asyncio.get_running_loop().create_task(self.work)
        self._task.add_done_callback(self._ended)

    def cancel(self) -> None:
        """Give it up."""
        if self._task is not None:
            self._task.cancel()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            self.done.cancel()
        elif error := task.exception():
            self.done.set_exception(error)
        else:
            self.done.set_result(task.result())


class Connections:
    """The connections to one server; safe to use from several threads, which block, and from the
    event loop itself, which does not."""

    def __init__(self) -> None:
        """Nothing is started before the first request."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handed: deque[_Handed] = deque()
        self._free: list[HttpConnection] = []

    def wait(self, work: Coroutine[Any, Any, Found]) -> Found:
        """The result of `work`, which runs on the event loop; raises what it raises. Interrupted,
        it is cancelled."""
        handed = _Handed(work)
        with self._lock:
            loop = self._running()
            self._handed.append(handed)
            # One awakening for all that threads hand in before the loop looks.
            if len(self._handed) == 1:
                loop.call_soon_threadsafe(_begin_all, self._handed)
        try:
            return handed.done.result()
        finally:
            if not handed.done.done():
                loop.call_soon_threadsafe(handed.cancel)

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            name = "assay-endpoint-loop"
            threading.Thread(target=_run, args=(self._loop,), name=name, daemon=True).start()
            weakref.finalize(self, _stop, self._loop, self._free)
        return self._loop

    async def send(self, request: Request, *, seconds: float) -> Reply:
        """The answer to one request, all of it within `seconds`; on the event loop.

        Raises Late, Oversized, and httpx.HTTPError where there is no connection or no HTTP.
        """
        place = place_of(request.url)
        try:
            async with asyncio.timeout(max(seconds, 0.001)):
                if through_proxy(place):
                    return await _through_proxy(request)
                connection = self._kept() or await connected(place, certificates(place.secure))
                reply = await connection.send(request)
        except TimeoutError as error:
            raise Late from error
        if connection.reusable:
            self._free.append(connection)
        return reply

    def _kept(self) -> HttpConnection | None:
        """The connection that was used last, so that those that are no longer needed expire."""
        oldest = asyncio.get_running_loop().time() - KEPT_SECONDS
        while self._free:
            connection = self._free.pop()
            if connection.reusable and connection.idle_since > oldest:
                return connection
            connection.close()
        return None


def _begin_all(handed: deque[_Handed]) -> None:
    while handed:
        handed.popleft().begin()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


def _stop(loop: asyncio.AbstractEventLoop, free: list[HttpConnection]) -> None:
    """Close the connections and end the thread."""

    async def close() -> None:
        for connection in free:
            connection.close()
        # The transports close on the loop's next round.
        loop.call_soon(loop.stop)

    if loop.is_running():
        asyncio.run_coroutine_threadsafe(close(), loop)


@cache
def certificates(secure: bool) -> ssl.SSLContext | None:
    """Reading the certificates takes longer than a request."""
    if not secure:
        return None
    context = httpx.create_ssl_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


@lru_cache(maxsize=64)
def through_proxy(place: Place) -> bool:
    """Whether the environment, as it is when a server is first asked, names a proxy for it."""
    proxies = getproxies()
    scheme = "https" if place.secure else "http"
    named = any(proxies.get(name) for name in (scheme, "all"))
    return named and not proxy_bypass(place.host)


async def _through_proxy(request: Request) -> Reply:
    """The answer to one request over a connection of its own to the proxy."""
    received = bytearray()
    client = httpx.AsyncClient(
        follow_redirects=False, timeout=None, verify=certificates(True) or True
    )
    # A server's cookies would tie requests to those before them.
    client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    given = {"headers": dict(request.headers), "content": request.body}
    async with client, client.stream(request.method, request.url, **given) as response:
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise Oversized("a compressed answer")
        async for piece in response.aiter_raw():
            received += piece
            if len(received) > request.most_bytes:
                raise Oversized(f"more than {request.most_bytes} bytes")
    return Reply(response.status_code, bytes(received), dict(response.headers))
