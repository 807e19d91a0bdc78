"""Runs the endpoint on this machine's loopback address until it is told to stop.

Uvicorn speaks HTTP in a thread of its own, so that this process keeps its signals: an interrupt
ends what is under way, and the sockets are closed before `serve` returns.
"""

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
from assay.lab.serving.app import Counts, Endpoint
from assay.lab.serving.batching import Batcher
from assay.lab.serving.connections import LIMITS, Limits, guarded
from assay.lab.serving.served import Served, opened

HOST = "127.0.0.1"
TOKEN = "ASSAY_SERVE_TOKEN"
STOP_SECONDS = 5
"""How long open connections may take to end."""


class PortTaken(InputError):
    """Something else listens on the port."""


class BadToken(InputError):
    """The token in the environment cannot stand in a header."""


@dataclass(frozen=True)
class Address:
    """Where a running server is reached."""

    port: int
    counts: Counts

    @property
    def url(self) -> str:
        """The base URL that clients take."""
        return f"http://{HOST}:{self.port}/v1"


def token_for_clients() -> tuple[str, bool]:
    """The token that clients must send, and whether it was made just now. Raises BadToken."""
    given = os.environ.get(TOKEN)
    if given is None:
        return secrets.token_urlsafe(24), True
    if not given.isascii() or not given.isprintable() or not given or " " in given:
        raise BadToken("holds no token", field=TOKEN, fix="printable ASCII without spaces")
    return given, False


@contextmanager
def running(served: Served, token: str, port: int, limits: Limits = LIMITS) -> Iterator[Address]:
    """The server, up as long as this is open. Raises PortTaken."""
    import uvicorn

    listening = bound(port)
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
        yield Address(listening.getsockname()[1], endpoint.counts)
        if not thread.is_alive():
            raise RunFailure("the server ended by itself")
    finally:
        batcher.close()
        server.should_exit = True
        thread.join()
        listening.close()


def bound(port: int) -> socket.socket:
    """A listening socket on the loopback address; port 0 takes a free one. Raises PortTaken."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen()
    except OSError as error:
        listening.close()
        problem = f"cannot listen on port {port}: {error.strerror}"
        raise PortTaken(
            problem, field="--port", fix="choose another, or 0 for a free one"
        ) from error
    return listening


def serve(
    root: Path,
    target: str,
    *,
    port: int,
    rendering: str,
    name: str | None,
    note: Callable[[str], None],
) -> dict[str, Any]:
    """Serve a checkpoint until SIGINT or SIGTERM; returns what the server did.

    Raises InputError for what does not exist, PortTaken and BadToken.
    """
    token, made = token_for_clients()
    with until_stopped() as stop, opened(root, target, rendering, name) as served:
        with running(served, token, port) as address:
            for line in greeting(served, address, token if made else None):
                note(line)
            stop.wait()
            note("stopping")
        return {"model": served.name, "url": address.url, **asdict(address.counts)}


def greeting(served: Served, address: Address, token: str | None) -> list[str]:
    """What whoever starts the server has to know."""
    lines = [
        f"serving {served.name} at {address.url}, {served.context_tokens} tokens of context, "
        f"rendering {served.renderer.name}",
        f"tokenizer and config for clients that render themselves: {served.folder}",
    ]
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
