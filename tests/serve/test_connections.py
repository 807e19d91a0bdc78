"""A real socket: nobody holds a connection for nothing, and nobody's prompt stops another's stream.

What is measured is order: something that may not wait is awaited before the other is let go on.
"""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import httpx
import pytest
import uvicorn
from uvicorn.server import ServerState

from assay.data.renderings.rendering import Renderer
from assay.serve.connections import LIMITS, Limits, guarded
from assay.serve.server import Address, running
from tests.serve.scripted import HEADERS, MODEL, TOKEN, Says, served

CHAT = "/v1/chat/completions"
HELLO = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
HASTY = Limits(connections=3, header_bytes=2000, header_seconds=0.3, body_seconds=0.3)


@contextmanager
def up(sampler: Says, limits: Limits = LIMITS, **changed) -> Iterator[Address]:
    with running(replace(served(sampler), **changed), TOKEN, 0, limits) as address:
        yield address
        sampler.released.set()


@contextmanager
def connected(address: Address) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", address.port), timeout=30) as connection:
        yield connection


def received(connection: socket.socket) -> bytes:
    """Everything until the server closes."""
    found = b""
    while chunk := connection.recv(65536):
        found += chunk
    return found


def refused(connection: socket.socket) -> tuple[int, str]:
    """The status and the code of the error with which the server closes."""
    head, _, body = received(connection).partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower()
    return int(head.split()[1]), json.loads(body)["error"]["code"]


def head(length: int, *more: str) -> bytes:
    lines = [f"POST {CHAT} HTTP/1.1", "Host: x", f"Content-Length: {length}", *more]
    return "\r\n".join([*lines, f"Authorization: Bearer {TOKEN}", "", ""]).encode()


def ask(address: Address, **more: object) -> httpx.Response:
    url = f"http://127.0.0.1:{address.port}{CHAT}"
    return httpx.post(url, headers=HEADERS, json={**HELLO, **more}, timeout=30)


@pytest.mark.parametrize(
    "sent", [b"", b"POST /v1/cha", b"GET /v1/models HTTP/1.1\r\nHost: x\r\nX: "]
)
def test_headers_that_never_end_are_cut_off(sent: bytes) -> None:
    with up(Says(lambda *_: "x"), HASTY) as address, connected(address) as connection:
        connection.sendall(sent)
        assert refused(connection) == (408, "request_timeout")
        assert ask(address).status_code == 200


def test_headers_of_a_second_request_are_cut_off_too() -> None:
    with up(Says(lambda *_: "x"), HASTY) as address, connected(address) as connection:
        connection.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\nGET /v1")
        said = received(connection)
        assert b" 200 " in said and b" 408 " in said


@pytest.mark.parametrize("token", [TOKEN, "wrong"])
def test_a_body_that_never_ends_is_cut_off_with_and_without_the_token(token: str) -> None:
    sampler = Says(lambda *_: "x")
    with up(sampler, HASTY) as address, connected(address) as connection:
        connection.sendall(head(500).replace(TOKEN.encode(), token.encode()) + b'{"model"')
        said = received(connection)
        assert said.startswith(b"HTTP/1.1 408" if token == TOKEN else b"HTTP/1.1 401")
        assert ask(address).status_code == 200
    assert len(sampler.prompts) == 1


def test_more_connections_than_the_limit_are_refused_and_come_back_when_some_close() -> None:
    with up(Says(lambda *_: "x"), replace(HASTY, header_seconds=30)) as address:
        held = [socket.create_connection(("127.0.0.1", address.port)) for _ in range(3)]
        with connected(address) as connection:
            assert refused(connection) == (503, "too_many_connections")
        for one in held:
            one.sendall(b"\r\n")
            one.close()
        while (answer := ask(address)).status_code == 503:
            pass
        assert answer.status_code == 200


@pytest.mark.parametrize("limits", [{"of_one_peer": 3}, {"connections": 3}])
@pytest.mark.parametrize("sent", [b"", b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"])
def test_half_open_headers_of_one_client_lock_nobody_out(limits: dict, sent: bytes) -> None:
    silent = {"header_seconds": 30, "silent_seconds": 0 if not sent else 30}
    with up(Says(lambda *_: "x"), replace(LIMITS, **silent, **limits)) as address:
        held = [socket.create_connection(("127.0.0.1", address.port)) for _ in range(9)]
        for one in held:
            one.sendall(sent)
        assert ask(address).status_code == 200
        for one in held:
            one.close()


def test_one_address_cannot_take_the_connections_of_others() -> None:
    limits = replace(LIMITS, header_seconds=30, connections=4, of_one_peer=3)
    sampler = Says(lambda *_: "x")
    with up(sampler, limits) as address:
        bodies = [socket.create_connection(("127.0.0.1", address.port)) for _ in range(3)]
        for one in bodies:  # asked for and not yet sent: nothing that may be closed
            one.sendall(head(500) + b"{")
        with connected(address) as fourth:
            assert refused(fourth) == (503, "too_many_connections")
        with socket.socket() as other:
            other.bind(("127.0.0.2", 0))
            other.connect(("127.0.0.1", address.port))
            body = json.dumps(HELLO).encode()
            other.sendall(head(len(body), "Connection: close") + body)
            assert received(other).startswith(b"HTTP/1.1 200")
        for one in bodies:
            one.close()


def test_headers_that_are_too_large_and_what_is_no_http_are_refused() -> None:
    with up(Says(lambda *_: "x"), HASTY) as address:
        for sent in (head(1, "X: " + "x" * 5000)[:-4], b"\x16\x03\x01\x00 hello\r\n\r\n"):
            with connected(address) as connection:
                connection.sendall(sent)
                assert refused(connection) == (400, "invalid_http")


def test_a_client_that_goes_away_frees_its_slot_streamed_or_not() -> None:
    for stream in (True, False):
        sampler = Says(lambda *_: "word")
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
            steps = Steps(sampler)
            sampler.step = steps  # type: ignore[method-assign]
            sampler.released.set()
            assert steps.empty.wait(20), "the client is gone and its completion still runs"


class Steps:
    """Steps of an endless answer, until nothing is under way."""

    def __init__(self, sampler: Says):
        self.sampler = sampler
        self.inner = sampler.step
        self.empty = threading.Event()
        leave = sampler.leave

        def left(row) -> None:
            leave(row)
            if not sampler.rows:
                self.empty.set()

        sampler.leave = left  # type: ignore[method-assign]

    def __call__(self):
        for row in self.sampler.rows:
            del row.tokens[row.context :]
        return self.inner()


class Deaf:
    """The transport of a client that reads nothing."""

    def __init__(self) -> None:
        self.aborted = asyncio.Event()

    def abort(self) -> None:
        self.aborted.set()

    def get_extra_info(self, name: str) -> None:
        return None

    def close(self) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def resume_reading(self) -> None:
        pass


@pytest.mark.parametrize("reads_again", [False, True])
def test_a_client_that_does_not_read_is_cut_off(reads_again: bool) -> None:
    async def stalled() -> bool:
        config = uvicorn.Config(lambda *_: None, log_level="error", ws="none")
        limits = replace(LIMITS, stall_seconds=0.05)
        protocol = guarded(limits)(config=config, server_state=ServerState(), app_state={})
        transport = Deaf()
        protocol.connection_made(transport)  # type: ignore[arg-type]
        protocol.pause_writing()
        if reads_again:
            protocol.resume_writing()
            protocol.pause_writing()
            protocol.resume_writing()
        waited = asyncio.ensure_future(transport.aborted.wait())
        await asyncio.wait({waited}, timeout=0.3 if reads_again else 20)
        protocol.connection_lost(None)
        waited.cancel()
        return transport.aborted.is_set()

    assert asyncio.run(stalled()) is not reads_again


class Waits(Renderer):
    """Renders a huge prompt only when it is told that something else is over."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.begun, self.other_over = threading.Event(), threading.Event()
        self.in_time: bool | None = None

    def prompt(self, messages, tools=()):
        if len(messages[0].content) > 1000:
            self.begun.set()
            self.in_time = self.other_over.wait(20)
        return super().prompt(messages, tools)


def test_a_prompt_of_1_mb_stalls_neither_a_stream_nor_the_start_of_one() -> None:
    sampler = Says(lambda *_: "Hello there")
    renderer = Waits(sampler.tokenizer, "hermes")
    with up(sampler, renderer=renderer) as address:
        huge = [{"role": "user", "content": "word " * 200_000}]
        answers = []
        asking = threading.Thread(target=lambda: answers.append(ask(address, messages=huge)))
        asking.start()
        assert renderer.begun.wait(20)
        streamed = ask(address, stream=True)
        assert streamed.text.endswith("data: [DONE]\n\n") and not answers
        renderer.other_over.set()
        asking.join()
    assert renderer.in_time, "the stream waited for the huge prompt"
    assert answers[0].json()["error"]["code"] == "context_length_exceeded"
