"""A server on a free loopback port that sends the bytes that a test writes, at its own pace."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from assay.rollout.engines.endpoint.client import Endpoint
from assay.rollout.engines.endpoint.openai_text import EndpointAnswer

Script = Callable[[socket.socket, threading.Event], None]
"""What is done with a connection once its request is read, until the event says that it is over."""


@dataclass
class Raw:
    """Where the server is and what it was sent."""

    address: str
    requests: list[bytes] = field(default_factory=list)
    """Head and body of each."""


def say(endpoint: Endpoint, *about: Any, **more: Any) -> EndpointAnswer:
    """What the model says next; waits for it."""
    return endpoint.connections.wait(endpoint.answer(*about, **more))


def answer(body: bytes, status: str = "200 OK", headers: str = "") -> Script:
    """A whole answer."""

    def send(connection: socket.socket, _: threading.Event) -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}"
        connection.sendall(f"{head}Connection: close\r\n\r\n".encode() + body)

    return send


def chat(content: Any, usage: Any = None) -> bytes:
    """The body of a chat answer."""
    choice = {"message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    return json.dumps({"choices": [choice], "usage": usage}).encode()


def repeating(piece: bytes, seconds: float = 0.05, first: bytes = b"") -> Script:
    """The same bytes again and again."""

    def send(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(first)
        while not over.wait(seconds):
            connection.sendall(piece)

    return send


@contextmanager
def raw_server(*scripts: Script) -> Iterator[Raw]:
    """Follows one script a connection, the last again and again."""
    over = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))
    raw = Raw(f"http://127.0.0.1:{listener.getsockname()[1]}")
    threads: list[threading.Thread] = []
    connections: list[socket.socket] = []

    def serve(connection: socket.socket, script: Script) -> None:
        with contextlib.suppress(OSError), connection:
            raw.requests.append(request(connection))
            script(connection, over)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                script = scripts[min(len(connections), len(scripts) - 1)]
                connections.append(connection)
                threads.append(threading.Thread(target=serve, args=(connection, script)))
                threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield raw
    finally:
        over.set()
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join()
        for thread in threads:
            thread.join(5)


def request(connection: socket.socket) -> bytes:
    """The bytes of one request."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65536)
    head, _, body = received.partition(b"\r\n\r\n")
    lengths = [x for x in head.lower().split(b"\r\n") if x.startswith(b"content-length:")]
    length = int(lengths[0].partition(b":")[2]) if lengths else 0
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body
