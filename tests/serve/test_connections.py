"""A real socket: a client that left costs nothing, and nobody's prompt stops another's stream.

What is measured is order: something that may not wait is awaited before the other is let go on.
"""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import httpx

from assay.serve.server import running
from tests.serve.scripted import HEADERS, MODEL, TOKEN, Says, served

CHAT = "/v1/chat/completions"
HELLO = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}


@contextmanager
def up(sampler: Says, **changed) -> Iterator[str]:
    with running(replace(served(sampler), **changed), TOKEN, 0) as address:
        yield address
        sampler.released.set()


@contextmanager
def connected(address: str) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", httpx.URL(address).port), timeout=30) as connection:
        yield connection


def head(length: int, *more: str) -> bytes:
    lines = [f"POST {CHAT} HTTP/1.1", "Host: x", f"Content-Length: {length}", *more]
    return "\r\n".join([*lines, f"Authorization: Bearer {TOKEN}", "", ""]).encode()


def ask(address: str, **more: object) -> httpx.Response:
    url = address.removesuffix("/v1") + CHAT
    return httpx.post(url, headers=HEADERS, json={**HELLO, **more}, timeout=30)


def test_a_body_that_never_ends_is_cut_off(monkeypatch) -> None:
    monkeypatch.setattr("assay.agents.http.BODY_SECONDS", 0.3)
    with up(Says(lambda *_: "x")) as address, connected(address) as connection:
        connection.sendall(head(500) + b'{"model"')
        assert connection.recv(100).startswith(b"HTTP/1.1 408")
        assert ask(address).status_code == 200


def test_a_client_that_goes_away_frees_its_slot_streamed_or_not() -> None:
    for stream in (True, False):
        sampler = Says(lambda *_: "word" * 100_000)
        sampler.pause = 0.001
        with (
            up(sampler, context_tokens=10**9) as address,
            connected(address) as connection,
        ):
            body = json.dumps({**HELLO, "stream": stream}).encode()
            sampler.released.clear()
            connection.sendall(head(len(body)) + body)
            while not sampler.rows:
                time.sleep(0.01)
            connection.shutdown(socket.SHUT_RDWR)
            connection.close()
            sampler.released.set()
            end = time.monotonic() + 20
            while sampler.rows and time.monotonic() < end:
                time.sleep(0.01)
            assert not sampler.rows, "the client is gone and its completion still runs"
