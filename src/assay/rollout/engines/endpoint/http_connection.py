"""One HTTP/1.1 connection on asyncio's event loop: a request is sent whole, an answer read whole.

h11 reads and writes the protocol; one callback reads what has arrived, so that a request costs a
fraction of what a general client takes for it. Deadlines, reuse and proxies are not known here.
Errors are httpx's, by which other parts know them.
"""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import h11
import httpx

MOST_HEAD_BYTES = 100 << 10
"""Of a status line and headers."""


class Oversized(Exception):
    """An answer longer than allowed, or compressed although that was not asked for."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A server's answer."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    """By names in small letters."""


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
class Place:
    """Where a URL points."""

    host: str
    port: int
    secure: bool
    header: str
    """The value of Host."""
    target: str


@lru_cache(maxsize=64)
def place_of(url: str) -> Place:
    """Where a URL points. Raises httpx.InvalidURL."""
    parsed = httpx.URL(url)
    secure = parsed.scheme == "https"
    port = parsed.port or (443 if secure else 80)
    host, target = parsed.raw_host.decode("ascii"), parsed.raw_path.decode("ascii")
    return Place(host, port, secure, parsed.netloc.decode("ascii"), target)


class HttpConnection(asyncio.Protocol):
    """A connection that carries one request at a time; see `connected`."""

    def __init__(self) -> None:
        """Not yet connected."""
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=MOST_HEAD_BYTES)
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Reply] | None = None
        self._response: h11.Response | None = None
        self._body = bytearray()
        self._most_bytes = 0
        self.idle_since = 0.0
        """On the loop's clock."""

    @property
    def reusable(self) -> bool:
        """Whether another request may be sent."""
        transport = self._transport
        return transport is not None and not transport.is_closing()

    async def send(self, request: Request) -> Reply:
        """The answer to a request. Raises httpx.HTTPError and Oversized; after an error, or
        cancelled, the connection is closed."""
        loop = asyncio.get_running_loop()
        self._waiting, self._response = loop.create_future(), None
        self._body, self._most_bytes = bytearray(), request.most_bytes
        kept = False
        try:
            self._write(request)
            reply = await self._waiting
            kept = self._renewed()
        finally:
            self._waiting, self.idle_since = None, loop.time()
            if not kept:
                self.close()
        return reply

    def _write(self, request: Request) -> None:
        if self._transport is None or self._transport.is_closing():
            raise httpx.WriteError("the connection is closed")
        headers = [("Host", place_of(request.url).header), *request.headers.items()]
        if request.body is not None:
            headers.append(("Content-Length", str(len(request.body))))
        head = h11.Request(
            method=request.method, target=place_of(request.url).target, headers=headers
        )
        try:
            written = [self._http.send(head)]
            if request.body:
                written.append(self._http.send(h11.Data(data=request.body)))
            written.append(self._http.send(h11.EndOfMessage()))
        except h11.LocalProtocolError as error:
            raise httpx.LocalProtocolError(str(error)) from error
        self._transport.write(b"".join(piece for piece in written if piece))

    def _renewed(self) -> bool:
        """Make ready for another request, where the server keeps the connection."""
        whole = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        if not whole or self._http.trailing_data[0]:
            return False  # what follows an answer would pass for the next one
        self._http.start_next_cycle()
        return self.reusable

    def close(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self._waiting is None or self._waiting.done():
            self.close()  # nothing was asked
            return
        try:
            self._http.receive_data(data)
            while self._take(self._http.next_event()):
                pass
        except h11.RemoteProtocolError as error:
            self._fail(httpx.RemoteProtocolError(str(error)))
        except Oversized as error:
            self._fail(error)

    def eof_received(self) -> None:
        """See asyncio.Protocol; an answer may end with the connection."""
        if self._waiting is not None and not self._waiting.done():
            self.data_received(b"")

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._fail(httpx.ReadError(str(exc or "the connection is closed")))

    def _take(self, event: object) -> bool:
        """Take one event of an answer; whether there may be more."""
        if isinstance(event, h11.Data):
            self._body += event.data
            if len(self._body) > self._most_bytes:
                raise Oversized(f"more than {self._most_bytes} bytes")
        elif isinstance(event, h11.Response):
            self._response = event
            coding = dict(event.headers).get(b"content-encoding", b"identity")
            if coding.lower() != b"identity":
                raise Oversized("a compressed answer")
        elif isinstance(event, h11.EndOfMessage):
            self._finish()
            return False
        elif isinstance(event, h11.ConnectionClosed):
            self._fail(httpx.RemoteProtocolError("the server sent no answer"))
            return False
        return event is not h11.NEED_DATA and event is not h11.PAUSED

    def _finish(self) -> None:
        assert self._response is not None and self._waiting is not None
        headers = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in self._response.headers
        }
        self._waiting.set_result(Reply(self._response.status_code, bytes(self._body), headers))

    def _fail(self, error: Exception) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)


async def connected(place: Place, certificates: ssl.SSLContext | None) -> HttpConnection:
    """A new connection. Raises httpx.ConnectError."""
    loop = asyncio.get_running_loop()
    try:
        _, connection = await loop.create_connection(
            HttpConnection,
            place.host,
            place.port,
            ssl=certificates,
            happy_eyeballs_delay=0.25,
        )
    except OSError as error:  # ssl.SSLError is one
        raise httpx.ConnectError(str(error)) from error
    return connection
