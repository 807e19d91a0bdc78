"""Runs the HTTP server until it is stopped, on the loopback address unless another is given.

Uvicorn runs in a thread, so that this process keeps its signals: an interrupt ends open requests,
and the sockets are closed before `serve` returns.
"""

import errno
import ipaddress
import os
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assay.errors import InputError, RunFailure
from assay.lab.evaluate.opened_model import Served, opened
from assay.rollout.engines.cpu.batcher import Batcher
from assay.serve.app import Counts, Endpoint
from assay.serve.connections import LIMITS, Limits, guarded

HOST = "127.0.0.1"
TOKEN = "ASSAY_SERVE_TOKEN"
STOP_SECONDS = 5
"""Seconds that open connections may take to end."""


@dataclass(frozen=True)
class Address:
    """The address of a running server."""

    port: int
    counts: Counts
    host: str = HOST

    @property
    def url(self) -> str:
        """The base URL that clients take."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/v1"


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


@contextmanager
def running(
    served: Served, token: str, port: int, limits: Limits = LIMITS, host: str = HOST
) -> Iterator[Address]:
    """The server, up as long as this is open. Raises InputError."""
    import uvicorn

    listening = bound(port, host)
    batcher = Batcher(served.decoder, served.end_tokens)
    endpoint = Endpoint(served, batcher, token)
    config = uvicorn.Config(
        endpoint.app(),
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
        yield Address(listening.getsockname()[1], endpoint.counts, host)
        if not thread.is_alive():
            raise RunFailure("the server ended by itself")
    finally:
        batcher.close()
        server.should_exit = True
        thread.join()
        listening.close()
        endpoint.close()


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


def serve(
    root: Path,
    target: str,
    *,
    host: str,
    port: int,
    token_file: Path | None,
    rendering: str,
    name: str | None,
    note: Callable[[str], None],
) -> dict[str, Any]:
    """Serve a checkpoint until SIGINT or SIGTERM; returns what the server did.

    Raises InputError for what does not exist.
    """
    token, made = token_for_clients(host, token_file)
    with until_stopped() as stop, opened(root, target, rendering, name) as served:
        with running(served, token, port, host=host) as address:
            for line in greeting(served, address, token if made else None):
                note(line)
            stop.wait()
            note("stopping")
        return {"model": served.name, "url": address.url, **asdict(address.counts)}


def greeting(served: Served, address: Address, token: str | None) -> list[str]:
    """The lines that are printed when the server starts."""
    lines = [
        f"serving {served.name} at {address.url}, {served.context_tokens} tokens of context, "
        f"rendering {served.renderer.name}",
        f"tokenizer and config for clients that render themselves: {served.folder}",
    ]
    if not is_loopback(address.host):
        lines.append("other machines can reach it; what is sent is not encrypted")
    if token is not None:
        lines.append(f"token: {token} (made for this server; {TOKEN} sets one)")
    return lines


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
