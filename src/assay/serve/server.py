"""Serves a checkpoint over HTTP until it is stopped, on the loopback address unless another is
given: routes, bearer token, size limits, and errors as JSON in OpenAI's format.

The list of models needs no token, because programs that wait for a server to be ready (BFCL's among
them) request it without one. Every route that runs the model does. Jobs of a client that has gone
are cancelled. An interrupt ends open requests, and the sockets are closed before `serve` returns.
"""

import asyncio
import json
import secrets
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from assay.lab.evaluate.opened_model import Served, opened
from assay.rollout.engines.batcher import Batcher
from assay.serve import connections
from assay.serve.requests import (
    Answered,
    Asked,
    ChatRequest,
    Choice,
    CompletionRequest,
    Envelope,
    Json,
    Refusal,
    answered,
    ask_chat,
    ask_completion,
    certain,
    read_request,
    usage,
)

MOST_BYTES = 8 << 20
"""The largest body that is read."""
BODY_SECONDS = 60
"""For a body to come."""
MOST_OPEN = 1024
"""Completions that may wait or be sampled at once."""
LOOK_SECONDS = 0.5
"""Seconds between checks that the client is still connected."""

Handler = Callable[[Request], Awaitable[Response]]


@dataclass
class Counts:
    """Counts of a server's work."""

    requests: int = 0
    refused: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True)
class Endpoint:
    """A served model, its queue, and who may use it."""

    served: Served
    batcher: Batcher
    token: str
    counts: Counts = field(default_factory=Counts)

    def app(self) -> Starlette:
        """The application."""
        routes = [
            Route("/v1/models", self.answering(self.models), methods=["GET"]),
        ]
        kinds: list[tuple[str, Any, Callable[..., Asked]]] = [
            ("/v1/chat/completions", ChatRequest, ask_chat),
            ("/v1/completions", CompletionRequest, ask_completion),
        ]
        for path, kind, make in kinds:
            handler = self.answering(partial(self.reply, kind=kind, make=make))
            routes.append(Route(path, handler, methods=["POST"]))
        return Starlette(routes=routes, exception_handlers={HTTPException: unknown_route})

    def answering(self, handler: Handler) -> Handler:
        """`handler` with its refusals, and whatever else goes wrong, as JSON."""

        async def answer(request: Request) -> Response:
            self.counts.requests += 1
            try:
                return await handler(request)
            except ClientDisconnect:
                return failure(Refusal("the client went away", code="cancelled", status=499))
            except Exception as error:
                return failure(self.refusal(error))

        return answer

    def refusal(self, error: BaseException) -> Refusal:
        """What a client is told of an error; what nobody foresaw goes to standard error."""
        if isinstance(error, Refusal):
            self.counts.refused += 1
            return error
        if isinstance(error, CancelledError):
            return Refusal("the server is stopping", code="server_stopping", status=503)
        self.counts.failed += 1
        traceback.print_exception(error, file=sys.stderr)
        problem = "an error that nobody foresaw; the server's log says more"
        return Refusal(problem, code="internal_error", status=500)

    async def models(self, request: Request) -> Response:
        """`GET /v1/models`."""
        if "authorization" in request.headers:
            self.check_token(request)
        model = {"id": self.served.name, "object": "model", "created": 0, "owned_by": "assay"}
        model["max_model_len"] = self.served.context_tokens
        return JSONResponse({"object": "list", "data": [model]})

    async def reply(self, request: Request, kind: Any, make: Callable[..., Asked]) -> Response:
        """Sample, and answer whole or in pieces. Raises Refusal.

        Requests are made ready off the event loop: a large one stalls no stream.
        """
        self.check_token(request)
        body = await read_body(request)
        asked = await asyncio.to_thread(self.read, kind, make, body)
        if self.batcher.open_jobs + len(asked.choices) > MOST_OPEN:
            problem = "too many requests wait already"
            raise Refusal(problem, code="rate_limit_exceeded", status=429)
        envelope = Envelope(kind is ChatRequest, self.served.name)
        if asked.request.stream:
            events = self.events(asked, envelope)
            return StreamingResponse(events, media_type="text/event-stream")
        answers = await self.whole(asked, request)
        return JSONResponse(envelope.whole(answers, self.count(asked)))

    def read(self, kind: Any, make: Callable[..., Asked], body: bytes) -> Asked:
        """A request made ready. Raises Refusal."""
        asking = read_request(kind, body)
        if asking.model != self.served.name:
            problem = f"there is no model {asking.model!r} here, only {self.served.name!r}"
            raise Refusal(problem, "model", code="model_not_found", status=404)
        return make(self.served, asking)

    async def whole(self, asked: Asked, request: Request) -> list[Answered]:
        """The finished completions. Raises what sampling raised, Refusal if the client left."""
        try:
            for choice in asked.choices:
                self.batcher.submit(choice.job)
            # Shielded: cancelling the wait does not cancel the job.
            jobs = [asyncio.wrap_future(choice.job.done) for choice in asked.choices]
            waiting = asyncio.gather(*map(asyncio.shield, jobs))
            while not (await asyncio.wait({waiting}, timeout=LOOK_SECONDS))[0]:
                if await request.is_disconnected():
                    raise Refusal("the client went away", code="cancelled", status=499)
            waiting.result()
            return [await finished(asked, choice) for choice in asked.choices]
        except asyncio.CancelledError as error:
            raise CancelledError from error
        finally:
            leave(asked)

    async def events(self, asked: Asked, envelope: Envelope) -> AsyncIterator[str]:
        """The events of a streamed answer; the last is [DONE], or an error if sampling failed."""
        try:
            async for value in self.pieces(asked, envelope):
                yield event(value)
            tokens = self.count(asked)
            if asked.request.with_usage:
                yield event(envelope.counts(tokens))
            yield "data: [DONE]\n\n"
        except Exception as error:
            yield event(self.refusal(error).body())
        finally:
            leave(asked)

    async def pieces(self, asked: Asked, envelope: Envelope) -> AsyncIterator[Json]:
        """The objects of a stream until every choice is over. Raises what sampling raised.

        Only the newest text of each choice is kept, so that a slow client costs no memory.
        """
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def wake(*_: object) -> None:
            loop.call_soon_threadsafe(news.set)

        for choice in asked.choices:
            choice.tell = wake
            choice.job.done.add_done_callback(wake)
            self.batcher.submit(choice.job)
            if envelope.chat:
                yield envelope.opening(choice.index)
        left, sent = list(asked.choices), dict.fromkeys(asked.choices, "")
        while left:
            await news.wait()
            news.clear()
            for choice in list(left):
                over, text = choice.job.done.done(), certain(choice, asked.calls)
                if len(text) > len(sent[choice]):
                    fresh, sent[choice] = text[len(sent[choice]) :], text
                    yield envelope.piece(choice.index, fresh)
                if over:
                    left.remove(choice)
                    yield envelope.last(await finished(asked, choice), sent[choice])

    def count(self, asked: Asked) -> Json:
        """The tokens of a request that was answered, added to the server's."""
        turns = [choice.job.done.result() for choice in asked.choices]
        tokens = usage(asked.prompt_tokens, turns)
        self.counts.prompt_tokens += tokens["prompt_tokens"]
        self.counts.completion_tokens += tokens["completion_tokens"]
        return tokens

    def check_token(self, request: Request) -> None:
        """Raise Refusal (401) unless the request carries the token."""
        kind, _, value = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not value.strip():
            problem = "a token is missing: send the header 'Authorization: Bearer TOKEN'"
            raise Refusal(problem, code="missing_token", status=401)
        if not secrets.compare_digest(value.strip().encode(), self.token.encode()):
            raise Refusal("the token is wrong", code="invalid_api_key", status=401)


async def finished(asked: Asked, choice: Choice) -> Answered:
    """The answer of a job that is done, read off the event loop."""
    return await asyncio.to_thread(answered, asked.speech, asked.calls, choice)


def event(value: Json) -> str:
    """One server-sent event."""
    return f"data: {json.dumps(value, ensure_ascii=False, allow_nan=False)}\n\n"


def leave(asked: Asked) -> None:
    """Cancel the jobs that are not finished."""
    for choice in asked.choices:
        choice.job.cancelled = True


async def read_body(request: Request) -> bytes:
    """The whole body. Raises Refusal: 413 once it is larger than MOST_BYTES, 408 if it is late."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MOST_BYTES:
                    problem = f"the body is larger than {MOST_BYTES} bytes"
                    raise Refusal(problem, code="request_too_large", status=413)
    except TimeoutError as error:
        problem = f"the request's body did not come within {BODY_SECONDS} seconds"
        raise Refusal(problem, code="request_timeout", status=408) from error
    return bytes(body)


def failure(refusal: Refusal) -> Response:
    """A refusal as an HTTP answer."""
    headers = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "1"}}
    return JSONResponse(refusal.body(), refusal.status, headers.get(refusal.status))


async def unknown_route(request: Request, error: Exception) -> Response:
    """Refuse a request without a route: another path (404) or method (405)."""
    known = error if isinstance(error, HTTPException) else HTTPException(500)
    problem = f"{request.method} {request.url.path}: {known.detail}"
    return failure(Refusal(problem, code="unknown_url", status=known.status_code))


@dataclass(frozen=True)
class Address:
    """The address of a running server."""

    port: int
    counts: Counts
    host: str = connections.HOST

    @property
    def url(self) -> str:
        """The base URL that clients take."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/v1"


@contextmanager
def running(
    served: Served, token: str, port: int, host: str = connections.HOST
) -> Iterator[Address]:
    """The server, up as long as this is open. Raises InputError."""
    batcher = Batcher(served.sampler)
    endpoint = Endpoint(served, batcher, token)
    try:
        with connections.answering(endpoint.app(), port, host) as taken:
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
    token, made = connections.token_for_clients(host, token_file)
    with connections.until_stopped() as stop, opened(root, target, rendering, name) as served:
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
    if not connections.is_loopback(address.host):
        lines.append("other machines can reach it; what is sent is not encrypted")
    if token is not None:
        lines.append(f"token: {token} (made for this server; {connections.TOKEN} sets one)")
    return lines
