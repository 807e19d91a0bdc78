"""The connections of Assay's HTTP servers: addresses, tokens, and deadlines for slow clients.

Uvicorn runs in a thread, so that the process keeps its signals. Uvicorn's own protocol waits
without end for a request's headers, its body, and a client that does not read: here they have
deadlines.
"""

import asyncio
import errno
import ipaddress
import json
import os
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from assay.errors import InputError, RunFailure
from assay.serve.requests import Refusal, error_body

HOST = "127.0.0.1"
TOKEN = "ASSAY_SERVE_TOKEN"
STOP_SECONDS = 5
"""Seconds that open connections may take to end."""


@dataclass(frozen=True)
class Limits:
    """Limits of a server's connections."""

    connections: int = 256
    """Open at once."""
    of_one_peer: int = 192
    """Of them those of one address, so that none takes all."""
    header_bytes: int = 16 << 10
    """Bytes of a request's line and headers while they are incomplete."""
    header_seconds: float = 10
    """From a connection's opening, or a request's first byte, to the end of its headers."""
    silent_seconds: float = 1
    """Without a byte before it gives way, where there are too many."""
    body_seconds: float = 60
    """From there to the end of its body."""
    stall_seconds: float = 60
    """For a client to read something of what was written to it."""


class GuardedProtocol(H11Protocol):
    """Uvicorn's HTTP/1.1 with `Limits`."""

    def __init__(self, *arguments: Any, limits: Limits, **named: Any):
        """See `H11Protocol`."""
        super().__init__(*arguments, **named)
        self.limits = limits
        self.opened = 0.0
        """On the loop's clock."""
        self._awaited: Any = None
        """The part of a request that is being received: h11.IDLE for its headers."""
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for headers, but not for ever. For a connection too many, of this peer or in all,
        the oldest goes that asks nothing, this one if there is none."""
        super().connection_made(transport)
        self.opened = self.loop.time()
        others = [e for e in self.connections if isinstance(e, GuardedProtocol) and e is not self]
        of_peer = [each for each in others if each.peer == self.peer]
        for full, most in ((of_peer, self.limits.of_one_peer), (others, self.limits.connections)):
            if len(full) < most:
                continue
            waiting = [each for each in full if each.asks_nothing]
            closed = min(waiting, key=lambda each: each.opened, default=self)
            closed.refuse(503, "too many connections are open", "too_many_connections")
            # Its end is noticed later; another must not wait for that, nor be counted against it.
            self.connections.discard(closed)
            if closed is self:
                return
            break
        self._await(h11.IDLE, self.limits.header_seconds)

    @property
    def peer(self) -> str:
        """The address of the other end, without its port."""
        return str(self.client[0]) if self.client else ""

    @property
    def asks_nothing(self) -> bool:
        """Whether it may give way to another: it sent a part of its headers, which honest clients
        send whole, or it was silent for longer than `silent_seconds`."""
        if not self.conn.their_state is self.conn.our_state is h11.IDLE:
            return False
        silent = self.loop.time() - self.opened
        return bool(self.conn.trailing_data[0]) or silent > self.limits.silent_seconds

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers."""
        self._await(None, 0)
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Update the deadline to the part of the request that is being received."""
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """The same for a pipelined next request."""
        super().on_response_complete()
        self._look()

    def pause_writing(self) -> None:
        """The client does not read: wait for it, but not for ever."""
        super().pause_writing()
        self._stalled = self.loop.call_later(self.limits.stall_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def send_400_response(self, msg: str) -> None:
        """Refuse invalid HTTP and too large headers."""
        most = self.limits.header_bytes
        problem = f"no valid HTTP request, or headers of more than {most} bytes"
        self.refuse(400, problem, "invalid_http")

    def refuse(self, status: int, problem: str, code: str) -> None:
        """Send an error if no response has started, and close."""
        self._await(None, 0)
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps(error_body(Refusal(status, problem, code=code))).encode()
            headers = [("content-type", "application/json"), ("connection", "close")]
            headers += [("content-length", str(len(body)))]
            response = h11.Response(
                status_code=status, headers=headers, reason=STATUS_PHRASES[status]
            )
            for event in (response, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        if self.cycle is not None and not self.cycle.response_complete:
            # A handler that still awaits the body must see the disconnect.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()

    def _look(self) -> None:
        """Set the deadline of what is awaited now: rest of the headers, of the body, or nothing."""
        state = self.conn.their_state
        begun = bool(self.conn.trailing_data[0])
        if state is h11.IDLE and (begun or self._awaited is h11.IDLE):
            # Between two requests uvicorn's own keep-alive timer runs.
            self._await(h11.IDLE, self.limits.header_seconds)
        elif state is h11.SEND_BODY:
            self._await(h11.SEND_BODY, self.limits.body_seconds)
        else:
            self._await(None, 0)

    def _await(self, part: Any, seconds: float) -> None:
        if part is self._awaited and part is not None:
            return
        self._awaited = part
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if part is not None:
            self._deadline = self.loop.call_later(seconds, self._too_slow, seconds)

    def _too_slow(self, seconds: float) -> None:
        what = "headers" if self._awaited is h11.IDLE else "body"
        problem = f"the request's {what} did not come within {seconds:g} seconds"
        self.refuse(408, problem, "request_timeout")


LIMITS = Limits()
"""The limits outside of tests."""


def guarded(limits: Limits) -> Callable[..., GuardedProtocol]:
    """The factory that uvicorn calls for each connection."""
    return lambda *arguments, **named: GuardedProtocol(*arguments, limits=limits, **named)


def given_token(file: Path | None) -> str | None:
    """The token in the file, else in the environment, if any. Raises InputError that hides it."""
    if file is not None:
        try:
            given, where = file.read_text("utf-8").strip("\r\n"), f"--token-file {file}"
        except (OSError, UnicodeDecodeError) as error:
            raise InputError("cannot be read", file=file, field="--token-file") from error
    elif (given := os.environ.get(TOKEN)) is not None:
        where = TOKEN
    else:
        return None
    if not given.isascii() or not given.isprintable() or not given or " " in given:
        raise InputError("holds no token", field=where, fix="printable ASCII without spaces")
    return given


def token_for_clients(host: str, file: Path | None = None) -> tuple[str, bool]:
    """The token that clients must send, and whether it was made just now.

    Raises InputError where other machines can reach the server and nobody chose a token.
    """
    given = given_token(file)
    if given is not None:
        return given, False
    if not is_loopback(host):
        problem = f"other machines can reach {host}, and no token is set"
        raise InputError(problem, field="--host", fix=f"set one with --token-file FILE or {TOKEN}")
    return secrets.token_urlsafe(24), True


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address. Raises InputError."""
    _, (address, *_) = resolved(host, 0)
    return ipaddress.ip_address(str(address).partition("%")[0]).is_loopback


def resolved(host: str, port: int) -> tuple[socket.AddressFamily, tuple[Any, ...]]:
    """The first address of a host's name. Raises InputError."""
    try:
        found = socket.getaddrinfo(host or " ", port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        fix = f"for example {HOST}, or 0.0.0.0 for all networks"
        raise InputError(f"{host!r} is no address", field="--host", fix=fix) from error
    family, _, _, _, address = found[0]
    return family, address


def bound(port: int, host: str = HOST) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises InputError."""
    family, address = resolved(host, port)
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(address)
        listening.listen()
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRNOTAVAIL:
            problem = f"{host} is no address of this machine"
            raise InputError(problem, field="--host") from error
        problem = f"cannot listen on port {port}: {error.strerror}"
        raise InputError(
            problem, field="--port", fix="choose another, or 0 for a free one"
        ) from error
    return listening


@contextmanager
def answering(app: Any, port: int, host: str = HOST, limits: Limits = LIMITS) -> Iterator[int]:
    """An application behind its port, which is returned, up as long as this is open.

    Raises InputError for an address that cannot be had.
    """
    import uvicorn

    listening = bound(port, host)
    config = uvicorn.Config(
        app,
        log_level="error",
        access_log=False,
        lifespan="off",
        http=guarded(limits),  # type: ignore[arg-type]
        ws="none",
        h11_max_incomplete_event_size=limits.header_bytes,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],), name="assay-http")
    thread.start()
    try:
        yield listening.getsockname()[1]
        if not thread.is_alive():
            raise RunFailure("the server ended by itself")
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


@contextmanager
def until_stopped() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set."""
    stop = threading.Event()
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in signals}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
