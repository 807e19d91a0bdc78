"""Serves a checkpoint over HTTP until it is stopped, on the loopback address unless another is
given: routes, bearer token, size limits, and errors as JSON in OpenAI's format.

The list of models needs no token, because programs that wait for a server to be ready (BFCL's among
them) request it without one. Every route that runs the model does. Jobs of a client that has gone
are cancelled. An interrupt ends open requests, and the sockets are closed before `serve` returns.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from assay.agents.http import HOST, answering, event, gone, read_body, told, unknown_route, up
from assay.agents.protocol import (
    ChatRequest,
    CompletionRequest,
    Envelope,
    FinishedCompletion,
    Json,
    read_request,
    refusal,
)
from assay.lab.evaluate.opened_model import Served, opened
from assay.rollout.engines.batcher import Batcher
from assay.serve import connections
from assay.serve.requests import ReadyRequest, ask_chat, ask_completion

LOOK_SECONDS = 0.5
"""Seconds between checks that the client is still connected."""


@dataclass(frozen=True)
class ServedEndpoint:
    """A served model, its queue, and who may use it."""

    served: Served
    batcher: Batcher
    token: str

    def app(self) -> Starlette:
        """The application."""
        chat = partial(self.reply, kind=ChatRequest, make=ask_chat)
        completion = partial(self.reply, kind=CompletionRequest, make=ask_completion)
        routes = [
            Route("/v1/models", answering(self.models), methods=["GET"]),
            Route("/v1/chat/completions", answering(chat), methods=["POST"]),
            Route("/v1/completions", answering(completion), methods=["POST"]),
        ]
        return Starlette(routes=routes, exception_handlers={HTTPException: unknown_route})

    async def models(self, request: Request) -> Response:
        """`GET /v1/models`."""
        if "authorization" in request.headers:
            self.check_token(request)
        model = {"id": self.served.name, "object": "model", "created": 0, "owned_by": "assay"}
        model["max_model_len"] = self.served.context_tokens
        return JSONResponse({"object": "list", "data": [model]})

    async def reply(
        self, request: Request, kind: Any, make: Callable[..., ReadyRequest]
    ) -> Response:
        """Sample, and answer whole or in pieces. Raises a refusal.

        Requests are made ready off the event loop: a large one stalls no stream.
        """
        self.check_token(request)
        body = await read_body(request)
        ready = await asyncio.to_thread(self.read, kind, make, body)
        envelope = Envelope(kind is ChatRequest, self.served.name)
        if ready.request.stream:
            events = self.events(ready, envelope)
            return StreamingResponse(events, media_type="text/event-stream")
        return JSONResponse(envelope.whole([await self.whole(ready, request)], ready.usage()))

    def read(self, kind: Any, make: Callable[..., ReadyRequest], body: bytes) -> ReadyRequest:
        """A request made ready. Raises a refusal."""
        asking = read_request(kind, body)
        if asking.model != self.served.name:
            problem = f"there is no model {asking.model!r} here, only {self.served.name!r}"
            raise refusal(problem, "model", code="model_not_found", status=404)
        return make(self.served, asking)

    async def whole(self, ready: ReadyRequest, request: Request) -> FinishedCompletion:
        """The finished completion. Raises what sampling raised, a refusal if the client left."""
        try:
            self.batcher.submit(ready.job)
            # Shielded: cancelling the wait does not cancel the job.
            waiting = asyncio.shield(asyncio.wrap_future(ready.job.done))
            while not (await asyncio.wait({waiting}, timeout=LOOK_SECONDS))[0]:
                if await request.is_disconnected():
                    raise gone()
            waiting.result()
            return await asyncio.to_thread(ready.finished)
        except asyncio.CancelledError as error:
            raise CancelledError from error
        finally:
            ready.job.cancelled = True

    async def events(self, ready: ReadyRequest, envelope: Envelope) -> AsyncIterator[str]:
        """The events of a streamed answer; the last is [DONE], or an error if sampling failed."""
        options = ready.request.stream_options
        try:
            async for value in self.pieces(ready, envelope):
                yield event(value)
            if options is not None and options.include_usage:
                yield event(envelope.counts(ready.usage()))
            yield "data: [DONE]\n\n"
        except Exception as error:
            yield event(told(error).detail)
        finally:
            ready.job.cancelled = True

    async def pieces(self, ready: ReadyRequest, envelope: Envelope) -> AsyncIterator[Json]:
        """The objects of a stream. Raises what sampling raised.

        Only the newest text is kept, so that a slow client costs no memory.
        """
        loop, news, sent, over = asyncio.get_running_loop(), asyncio.Event(), "", False

        def wake(*_: object) -> None:
            loop.call_soon_threadsafe(news.set)

        ready.tell = wake
        ready.job.done.add_done_callback(wake)
        self.batcher.submit(ready.job)
        if envelope.chat:
            yield envelope.opening()
        while not over:
            await news.wait()
            news.clear()
            over, text = ready.job.done.done(), ready.certain()
            if len(text) > len(sent):
                fresh, sent = text[len(sent) :], text
                yield envelope.piece(fresh)
        yield envelope.last(await asyncio.to_thread(ready.finished), sent)

    def check_token(self, request: Request) -> None:
        """Raise a refusal (401) unless the request carries the token."""
        kind, _, value = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not value.strip():
            problem = "a token is missing: send the header 'Authorization: Bearer TOKEN'"
            raise refusal(problem, code="missing_token", status=401)
        if not secrets.compare_digest(value.strip().encode(), self.token.encode()):
            raise refusal("the token is wrong", code="invalid_api_key", status=401)


@contextmanager
def running(served: Served, token: str, port: int, host: str = HOST) -> Iterator[str]:
    """The server at its base URL, up as long as this is open. Raises InputError."""
    batcher = Batcher(served.sampler)
    try:
        with up(ServedEndpoint(served, batcher, token).app(), port, host) as taken:
            try:
                yield f"http://{f'[{host}]' if ':' in host else host}:{taken}/v1"
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
) -> dict[str, str]:
    """Serve a checkpoint until SIGINT or SIGTERM; returns where it was.

    Raises InputError for what does not exist.
    """
    token, made = connections.token_for_clients(host, token_file)
    with connections.until_stopped() as stop, opened(root, target, rendering, name) as served:
        with running(served, token, port, host=host) as url:
            for line in greeting(served, url, host, token if made else None):
                note(line)
            stop.wait()
            note("stopping")
        return {"model": served.name, "url": url}


def greeting(served: Served, url: str, host: str, token: str | None) -> list[str]:
    """The lines that are printed when the server starts."""
    lines = [
        f"serving {served.name} at {url}, {served.context_tokens} tokens of context, "
        f"rendering {served.renderer.name}",
        f"tokenizer and config for clients that render themselves: {served.folder}",
    ]
    if not connections.is_loopback(host):
        lines.append("other machines can reach it; what is sent is not encrypted")
    if token is not None:
        lines.append(f"token: {token} (made for this server; {connections.TOKEN} sets one)")
    return lines
