"""HTTP servers on this machine: addresses, limits, and errors as JSON in OpenAI's format.

Uvicorn runs in a thread, so that the process keeps its signals.
"""

import asyncio
import errno
import json
import socket
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from assay.agents.protocol import refusal
from assay.errors import InputError, RunFailure

HOST = "127.0.0.1"
STOP_SECONDS = 5
"""Seconds that open connections may take to end."""
CONNECTIONS = 256
"""Open at once; others are refused (503)."""
HEADER_BYTES = 16 << 10
"""Bytes of a request's line and headers while they are incomplete."""
MOST_BYTES = 8 << 20
"""The largest body that is read."""
BODY_SECONDS = 60
"""For a body to come."""

Handler = Callable[[Request], Awaitable[Response]]


def resolved(host: str, port: int) -> tuple[socket.AddressFamily, tuple[Any, ...]]:
    """The first address of a host's name. Raises InputError."""
    try:
        addresses = socket.getaddrinfo(host or " ", port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        fix = f"for example {HOST}, or 0.0.0.0 for all networks"
        raise InputError(f"{host!r} is no address", field="--host", fix=fix) from error
    family, _, _, _, address = addresses[0]
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
        fix = "choose another, or 0 for a free one"
        raise InputError(problem, field="--port", fix=fix) from error
    return listening


@contextmanager
def up(app: Any, port: int, host: str = HOST) -> Iterator[int]:
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
        http="h11",
        ws="none",
        limit_concurrency=CONNECTIONS,
        h11_max_incomplete_event_size=HEADER_BYTES,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(
        target=server.run, args=([listening],), name="assay-http", daemon=True
    )
    thread.start()
    try:
        yield listening.getsockname()[1]
        if not thread.is_alive():
            raise RunFailure("the server ended by itself")
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


def answering(handler: Handler) -> Handler:
    """`handler` with its refusals, and whatever else goes wrong, as JSON."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except ClientDisconnect:
            return failure(gone())
        except Exception as error:
            return failure(told(error))

    return answer


def gone() -> HTTPException:
    """What is said to nobody."""
    return refusal("the client went away", code="cancelled", status=499)


def told(error: BaseException) -> HTTPException:
    """What a client is told of an error; what nobody foresaw goes to standard error."""
    if isinstance(error, HTTPException):
        return error
    if isinstance(error, CancelledError):
        return refusal("the server is stopping", code="server_stopping", status=503)
    traceback.print_exception(error, file=sys.stderr)
    problem = "an error that nobody foresaw; the server's log says more"
    return refusal(problem, code="internal_error", status=500)


def event(value: Any) -> str:
    """One server-sent event."""
    return f"data: {json.dumps(value, ensure_ascii=False, allow_nan=False)}\n\n"


async def read_body(request: Request) -> bytes:
    """The whole body. Raises a refusal: 413 once it is larger than MOST_BYTES, 408 if it is
    late."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MOST_BYTES:
                    problem = f"the body is larger than {MOST_BYTES} bytes"
                    raise refusal(problem, code="request_too_large", status=413)
    except TimeoutError as error:
        problem = f"the request's body did not come within {BODY_SECONDS} seconds"
        raise refusal(problem, code="request_timeout", status=408) from error
    return bytes(body)


def failure(error: HTTPException) -> Response:
    """A refusal as an HTTP answer."""
    headers = {"WWW-Authenticate": "Bearer"} if error.status_code == 401 else None
    return JSONResponse(error.detail, error.status_code, headers)


async def unknown_route(request: Request, error: Exception) -> Response:
    """Refuse a request without a route: another path (404) or method (405)."""
    known = error if isinstance(error, HTTPException) else HTTPException(500)
    problem = f"{request.method} {request.url.path}: {known.detail}"
    return failure(refusal(problem, code="unknown_url", status=known.status_code))
