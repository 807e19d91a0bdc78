"""Sends requests and reads whole answers, many at once, from one event loop in a thread of its own.

h11 reads and writes the protocol over asyncio's streams. httpx's client is not used for it: with
200 requests on their way it takes ten times the CPU (`python -m benchmarks.endpoint`). Connections
are kept and used again; each carries one request at a time. Where the environment names a proxy for
a server, httpx asks through it. Errors are httpx's. What is asked and what an answer means is not
known here.
"""

import asyncio
import ssl
import threading
import weakref
from collections import deque
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cache, lru_cache
from http.cookiejar import DefaultCookiePolicy
from typing import Any, TypeVar
from urllib.request import getproxies, proxy_bypass

import h11
import httpx

Result = TypeVar("Result")

KEPT_SECONDS = 3.0
"""An idle connection is kept so long: less than servers do, which usually close after 5."""
MOST_HEAD_BYTES = 100 << 10
"""Of a status line and headers."""
PIECE_BYTES = 1 << 16


class Late(Exception):
    """There was no whole answer in time."""


class Oversized(Exception):
    """An answer longer than allowed, or compressed although that was not asked for."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of a server."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None
    most_bytes: int
    """Of the answer's body."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A server's answer."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    """By names in small letters."""


@lru_cache(maxsize=64)
def _parsed(url: str) -> httpx.URL:
    return httpx.URL(url)


class _Connection(asyncio.StreamReaderProtocol):
    """A connection to one server, which carries one request at a time."""

    def __init__(self) -> None:
        self.arrived = asyncio.StreamReader()
        super().__init__(self.arrived)
        self.http = h11.Connection(h11.CLIENT, max_incomplete_event_size=MOST_HEAD_BYTES)
        self.transport: asyncio.Transport | None = None
        self.asked = False
        self.idle_since = 0.0
        """On the loop's clock."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol. What nobody asked for would pass for the next answer."""
        if self.asked:
            super().data_received(data)
        else:
            self.close()

    @property
    def reusable(self) -> bool:
        """Whether another request may be sent."""
        open_still = self.transport is not None and not self.transport.is_closing()
        return open_still and not self.arrived.at_eof() and self.http.our_state is h11.IDLE

    def close(self) -> None:
        """Close at once."""
        if self.transport is not None:
            self.transport.abort()

    async def send(self, request: Request) -> Reply:
        """The answer to a request. Raises httpx.HTTPError and Oversized; after an error, or
        cancelled, the connection is closed."""
        self.asked = True
        try:
            self._write(request)
            reply = await self._read(request.most_bytes)
            # What follows an answer would pass for the next one.
            if self.http.their_state is h11.DONE and not self.http.trailing_data[0]:
                self.http.start_next_cycle()
        except h11.LocalProtocolError as error:
            raise httpx.LocalProtocolError(str(error)) from error
        except h11.RemoteProtocolError as error:
            raise httpx.RemoteProtocolError(str(error)) from error
        except OSError as error:
            raise httpx.ReadError(str(error) or "the connection is closed") from error
        finally:
            self.asked, self.idle_since = False, asyncio.get_running_loop().time()
            if not self.reusable:
                self.close()
        return reply

    def _write(self, request: Request) -> None:
        if self.transport is None or not self.reusable:
            raise httpx.WriteError("the connection is closed")
        url = _parsed(request.url)
        headers = [("Host", url.netloc), *request.headers.items()]
        if request.body is not None:
            headers.append(("Content-Length", str(len(request.body))))
        head = h11.Request(method=request.method, target=url.raw_path, headers=headers)
        events = [head, h11.Data(data=request.body or b""), h11.EndOfMessage()]
        self.transport.write(b"".join(self.http.send(event) or b"" for event in events))

    async def _read(self, most_bytes: int) -> Reply:
        body, response = bytearray(), None
        while True:
            event = self.http.next_event()
            if event is h11.NEED_DATA:
                self.http.receive_data(await self.arrived.read(PIECE_BYTES))
            elif isinstance(event, h11.Response):
                response = event
                coding = dict(event.headers).get(b"content-encoding", b"identity")
                if coding.lower() != b"identity":
                    raise Oversized("a compressed answer")
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > most_bytes:
                    raise Oversized(f"more than {most_bytes} bytes")
            elif isinstance(event, h11.EndOfMessage) and response is not None:
                break
            elif not isinstance(event, h11.InformationalResponse):
                raise httpx.RemoteProtocolError("the server sent no answer")
        headers = {
            name.decode("latin-1"): text.decode("latin-1") for name, text in response.headers
        }
        return Reply(response.status_code, bytes(body), headers)


@dataclass(slots=True)
class _Waiting:
    """Work of a thread that waits for it; but for `done` of the event loop."""

    work: Coroutine[Any, Any, Any]
    done: Future[Any] = field(default_factory=Future)
    _task: asyncio.Task[Any] | None = None

    def begin(self) -> None:
        """Begin it."""
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


def _begin_all(waiting: deque[_Waiting]) -> None:
    while waiting:
        waiting.popleft().begin()


class Connections:
    """The connections to one server; safe to use from several threads, which block, and from the
    event loop itself, which does not."""

    def __init__(self) -> None:
        """Nothing is started before the first request."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: deque[_Waiting] = deque()
        self._free: list[_Connection] = []

    def wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of `work`, which runs on the event loop; raises what it raises. Interrupted,
        it is cancelled."""
        waiting = _Waiting(work)
        with self._lock:
            loop = self._running()
            self._waiting.append(waiting)
            # One awakening for all that threads hand in before the loop looks.
            if len(self._waiting) == 1:
                loop.call_soon_threadsafe(_begin_all, self._waiting)
        try:
            return waiting.done.result()
        finally:
            if not waiting.done.done():
                loop.call_soon_threadsafe(waiting.cancel)

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
        url = _parsed(request.url)
        try:
            async with asyncio.timeout(max(seconds, 0.001)):
                if through_proxy(url.scheme, url.host):
                    return await _through_proxy(request)
                connection = self._kept() or await _connected(url)
                reply = await connection.send(request)
        except TimeoutError as error:
            raise Late from error
        if connection.reusable:
            self._free.append(connection)
        return reply

    def _kept(self) -> _Connection | None:
        """The connection that was used last, so that those that are no longer needed expire."""
        oldest = asyncio.get_running_loop().time() - KEPT_SECONDS
        while self._free:
            connection = self._free.pop()
            if connection.reusable and connection.idle_since > oldest:
                return connection
            connection.close()
        return None


async def _connected(url: httpx.URL) -> _Connection:
    """A new connection. Raises httpx.ConnectError."""
    secure = url.scheme == "https"
    host, port = url.raw_host.decode("ascii"), url.port or (443 if secure else 80)
    made = asyncio.get_running_loop().create_connection(
        _Connection, host, port, ssl=certificates(secure), happy_eyeballs_delay=0.25
    )
    try:
        return (await made)[1]
    except OSError as error:  # ssl.SSLError is one
        raise httpx.ConnectError(str(error)) from error


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


def _stop(loop: asyncio.AbstractEventLoop, free: list[_Connection]) -> None:
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
def through_proxy(scheme: str, host: str) -> bool:
    """Whether the environment, as it is when a server is first asked, names a proxy for it."""
    proxies = getproxies()
    named = any(proxies.get(name) for name in (scheme, "all"))
    return named and not proxy_bypass(host)


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
