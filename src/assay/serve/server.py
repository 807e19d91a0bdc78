"""Serves a checkpoint over HTTP until it is stopped, on the loopback address unless another is
given.

An interrupt ends open requests, and the sockets are closed before `serve` returns.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assay.lab.evaluate.opened_model import Served, opened
from assay.rollout.engines.cpu.batcher import Batcher
from assay.serve.app import Counts, Endpoint
from assay.serve.connections import (
    HOST,
    TOKEN,
    answering,
    is_loopback,
    token_for_clients,
    until_stopped,
)


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


@contextmanager
def running(served: Served, token: str, port: int, host: str = HOST) -> Iterator[Address]:
    """The server, up as long as this is open. Raises InputError."""
    batcher = Batcher(served.sampler)
    endpoint = Endpoint(served, batcher, token)
    try:
        with answering(endpoint.app(), port, host) as taken:
            try:
                yield Address(taken, endpoint.counts, host)
            finally:  # before the server waits for open requests
                batcher.close()
    finally:
        batcher.close()


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
