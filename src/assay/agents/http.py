"""HTTP servers on this machine: limits, and errors as JSON in OpenAI's format.

Uvicorn runs in a thread, so that the process keeps its signals.
"""

import asyncio
import json
import socket
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from assay.agents.protocol import ChatRequest, CompletionRequest, Json, refusal
from assay.errors import RunFailure

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


@contextmanager
def up(app: Any, listening: socket.socket | None = None) -> Iterator[int]:
    """An application behind a socket, or a free port of loopback, up as long as this is open; gives
    the port."""
    import uvicorn

    listening = listening or socket.create_server((HOST, 0))
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


def application(models: Callable[..., Any], reply: Callable[..., Any]) -> Starlette:
    """OpenAI's routes: the list of models, and `reply(request, kind)` to a chat or a completion.
    What they raise is answered in JSON."""

    async def answer(request: Request, kind: Any) -> Response:
        try:
            return await reply(request, kind)
        except Exception as error:  # Starlette would raise it once more and close the connection
            return await failure(request, error)

    routes = [
        Route("/v1/models", models, methods=["GET"]),
        Route("/v1/chat/completions", partial(answer, kind=ChatRequest), methods=["POST"]),
        Route("/v1/completions", partial(answer, kind=CompletionRequest), methods=["POST"]),
    ]
    return Starlette(routes=routes, exception_handlers={HTTPException: failure})


def model_list(*names: str, **more: Any) -> Response:
    """The answer to a request for the list of models."""
    known = {"object": "model", "created": 0, "owned_by": "assay", **more}
    return JSONResponse({"object": "list", "data": [{"id": name, **known} for name in names]})


def told(error: BaseException) -> HTTPException:
    """What a client is told of an error; what nobody foresaw goes to standard error."""
    if isinstance(error, HTTPException):
        return error
    if isinstance(error, ClientDisconnect):  # said to nobody
        return refusal("the client went away", code="cancelled", status=499)
    if isinstance(error, CancelledError):
        return refusal("the server is stopping", code="server_stopping", status=503)
    traceback.print_exception(error, file=sys.stderr)
    problem = "an error that nobody foresaw; the server's log says more"
    return refusal(problem, code="internal_error", status=500)


async def failure(request: Request, error: Exception) -> Response:
    """An error as an HTTP answer."""
    known = told(error)
    if isinstance(known.detail, str):  # without a route: another path (404) or method (405)
        problem = f"{request.method} {request.url.path}: {known.detail}"
        known = refusal(problem, code="unknown_url", status=known.status_code)
    headers = {"WWW-Authenticate": "Bearer"} if known.status_code == 401 else None
    return JSONResponse(known.detail, known.status_code, headers)


def streamed(pieces: AsyncIterator[Json]) -> Response:
    """Server-sent events; the last is [DONE], or an error where a piece could not be had."""

    async def events() -> AsyncIterator[str]:
        try:
            async for value in pieces:
                yield f"data: {json.dumps(value, ensure_ascii=False, allow_nan=False)}\n\n"
            yield "data: [DONE]\n\n"
        except Exception as error:
            yield f"data: {json.dumps(told(error).detail)}\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


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
