"""The HTTP application: routes, bearer token, size limits, and errors as JSON in OpenAI's format.

The list of models needs no token, because programs that wait for a server to be ready (BFCL's among
them) request it without one. Every route that runs the model does. Jobs of a client that has gone
are cancelled.
"""

import asyncio
import json
import re
import secrets
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from assay.lab.evaluate.opened_model import Served
from assay.rollout.engines.cpu.batcher import Batcher
from assay.serve.replies import Answered, Choice, Envelope, Json, answered, certain, usage
from assay.serve.requests import (
    Asked,
    ChatRequest,
    CompletionRequest,
    Refusal,
    ask_chat,
    ask_completion,
    error_body,
    read_request,
)

MOST_BYTES = 8 << 20
"""The largest body that is read."""
BODY_SECONDS = 60
"""For a body to come."""
MOST_OPEN = 1024
"""Completions that may wait or be sampled at once."""
LOOK_SECONDS = 0.5
"""Seconds between checks that the client is still connected."""

IGNORED = "x-assay-ignored"
"""The header that names parameters without effect."""
MOST_NAMED = 20
"""Parameters that the header names, of at most so many characters each."""
MOST_NAME = 40

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
            Route("/v1/chat/completions", self.answering(self.chat), methods=["POST"]),
            Route("/v1/completions", self.answering(self.completion), methods=["POST"]),
        ]
        return Starlette(routes=routes, exception_handlers={HTTPException: unknown_route})

    def answering(self, handler: Handler) -> Handler:
        """`handler` with its refusals, and whatever else goes wrong, as JSON."""

        async def answer(request: Request) -> Response:
            self.counts.requests += 1
            try:
                return await handler(request)
            except ClientDisconnect:
                return failure(Refusal(499, "the client went away", code="cancelled"))
            except Exception as error:
                return failure(self.refusal(error))

        return answer

    def refusal(self, error: BaseException) -> Refusal:
        """What a client is told of an error; what nobody foresaw goes to standard error."""
        if isinstance(error, Refusal):
            self.counts.refused += 1
            return error
        if isinstance(error, CancelledError):
            return Refusal(503, "the server is stopping", code="server_stopping")
        self.counts.failed += 1
        traceback.print_exception(error, file=sys.stderr)
        problem = "an error that nobody foresaw; the server's log says more"
        return Refusal(500, problem, code="internal_error")

    async def models(self, request: Request) -> Response:
        """`GET /v1/models`."""
        if "authorization" in request.headers:
            self.check_token(request)
        model = {"id": self.served.name, "object": "model", "created": 0, "owned_by": "assay"}
        model["max_model_len"] = self.served.context_tokens
        return JSONResponse({"object": "list", "data": [model]})

    async def chat(self, request: Request) -> Response:
        """`POST /v1/chat/completions`."""
        return await self.reply(request, ChatRequest, ask_chat)

    async def completion(self, request: Request) -> Response:
        """`POST /v1/completions`."""
        return await self.reply(request, CompletionRequest, ask_completion)

    async def reply(self, request: Request, kind: Any, make: Callable[..., Asked]) -> Response:
        """Sample, and answer whole or in pieces. Raises Refusal.

        Requests are made ready off the event loop: a large one stalls no stream.
        """
        self.check_token(request)
        body = await read_body(request)
        asked, ignored = await asyncio.to_thread(self.read, kind, make, body)
        if self.batcher.open_jobs + len(asked.choices) > MOST_OPEN:
            raise Refusal(429, "too many requests wait already", code="rate_limit_exceeded")
        envelope, headers = Envelope(kind is ChatRequest, self.served.name), noted(ignored)
        if asked.request.stream:
            events = self.events(asked, envelope)
            return StreamingResponse(events, headers=headers, media_type="text/event-stream")
        answers = await self.whole(asked, request)
        return JSONResponse(envelope.whole(answers, self.count(asked)), headers=headers)

    def read(
        self, kind: Any, make: Callable[..., Asked], body: bytes
    ) -> tuple[Asked, tuple[str, ...]]:
        """A request made ready, and its parameters without effect. Raises Refusal."""
        asking, ignored = read_request(kind, body)
        if asking.model != self.served.name:
            problem = f"there is no model {asking.model!r} here, only {self.served.name!r}"
            raise Refusal(404, problem, code="model_not_found", parameter="model")
        return make(self.served, asking), ignored

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
                    raise Refusal(499, "the client went away", code="cancelled")
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
            yield event(error_body(self.refusal(error)))
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
            raise Refusal(401, problem, code="missing_token")
        if not secrets.compare_digest(value.strip().encode(), self.token.encode()):
            raise Refusal(401, "the token is wrong", code="invalid_api_key")


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


def noted(ignored: Sequence[str]) -> dict[str, str]:
    """The headers of an answer: parameters without effect by name, as far as a header can carry."""
    if not ignored:
        return {}
    names = [re.sub(r"[^\w.-]", "?", name[:MOST_NAME], flags=re.ASCII) for name in ignored]
    more = [f"and {len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
    return {IGNORED: ", ".join([*names[:MOST_NAMED], *more])}


async def read_body(request: Request) -> bytes:
    """The whole body. Raises Refusal: 413 once it is larger than MOST_BYTES, 408 if it is late."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MOST_BYTES:
                    problem = f"the body is larger than {MOST_BYTES} bytes"
                    raise Refusal(413, problem, code="request_too_large")
    except TimeoutError as error:
        problem = f"the request's body did not come within {BODY_SECONDS} seconds"
        raise Refusal(408, problem, code="request_timeout") from error
    return bytes(body)


def failure(refusal: Refusal) -> Response:
    """A refusal as an HTTP answer."""
    headers = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "1"}}
    return JSONResponse(error_body(refusal), refusal.status, headers.get(refusal.status))


async def unknown_route(request: Request, error: Exception) -> Response:
    """Refuse a request without a route: another path (404) or method (405)."""
    known = error if isinstance(error, HTTPException) else HTTPException(500)
    problem = f"{request.method} {request.url.path}: {known.detail}"
    return failure(Refusal(known.status_code, problem, code="unknown_url"))
