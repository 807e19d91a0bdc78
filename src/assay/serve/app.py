"""The HTTP application: routes, bearer token, size limits, and errors as JSON in OpenAI's format.

The list of models needs no token, because programs that wait for a server to be ready (BFCL's among
them) request it without one. Every route that runs the model does.
"""

import asyncio
import re
import secrets
import sys
import traceback
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from assay.data.episode import Turn
from assay.lab.evaluate.opened_model import Served
from assay.rollout.engines.cpu.batcher import Batcher
from assay.serve.replies import (
    CHAT,
    COMPLETION,
    Answered,
    Asked,
    Envelope,
    Shape,
    usage,
)
from assay.serve.requests import (
    Asking,
    ChatRequest,
    CompletionRequest,
    Refusal,
    error_body,
    read_request,
)
from assay.serve.streams import (
    Schemas,
    Stream,
    ask_chat,
    ask_completion,
    fitting,
    sample_all,
    stream,
    streamed,
)

MOST_BYTES = 8 << 20
"""The largest body that is read."""
MOST_OPEN = 1024
"""Completions that may wait or be sampled at once."""

LARGE_BYTES = 64 << 10
"""Bytes of a body above which its preparation may be slow."""

IGNORED = "x-assay-ignored"
"""The header that names parameters without effect."""
SAMPLES = "x-assay-samples"
"""The header with the number of samples drawn for a constrained answer."""
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
    small: ThreadPoolExecutor = field(default_factory=lambda: preparing("small"))
    large: ThreadPoolExecutor = field(default_factory=lambda: preparing("large"))
    """One thread each makes requests ready."""
    schemas: Schemas = field(default_factory=Schemas)

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
            except Refusal as refusal:
                self.counts.refused += 1
                return failure(refusal)
            except ClientDisconnect:
                return failure(Refusal(499, "the client went away", code="cancelled"))
            except Exception as error:
                self.report(error)
                problem = "an error that nobody foresaw; the server's log says more"
                return failure(Refusal(500, problem, code="internal_error"))

        return answer

    def report(self, error: BaseException) -> None:
        """Count a failure and write its traceback to standard error."""
        self.counts.failed += 1
        traceback.print_exception(error, file=sys.stderr)

    def count(self, asked: Asked, turns: Sequence[Turn]) -> None:
        """Add the tokens of a request that was answered."""
        tokens = usage(asked, turns)
        self.counts.prompt_tokens += tokens["prompt_tokens"]
        self.counts.completion_tokens += tokens["completion_tokens"]

    async def models(self, request: Request) -> Response:
        """`GET /v1/models`."""
        if "authorization" in request.headers:
            self.check_token(request)
        model = {"id": self.served.name, "object": "model", "created": 0, "owned_by": "assay"}
        model["max_model_len"] = self.served.context_tokens
        return JSONResponse({"object": "list", "data": [model]})

    async def chat(self, request: Request) -> Response:
        """`POST /v1/chat/completions`."""
        asked = await self.ask(request, ChatRequest, ask_chat)
        return await self.reply(request, asked, CHAT)

    async def completion(self, request: Request) -> Response:
        """`POST /v1/completions`."""
        asked = await self.ask(request, CompletionRequest, ask_completion)
        return await self.reply(request, asked, COMPLETION)

    async def ask(self, request: Request, kind: type[Any], make: Callable[..., Asked]) -> Asked:
        """A request made ready, off the event loop. Raises Refusal.

        Large bodies queue for a thread of their own: parsing, rendering and tokenising them stalls
        neither the streams of other requests nor the beginning of small ones.
        """
        self.check_token(request)
        body = await read_body(request)
        preparing = self.large if len(body) > LARGE_BYTES else self.small

        def prepare() -> Asked:
            asking, ignored = read_request(kind, body)
            return replace(make(self.served, self.checked(asking)), ignored=ignored)

        return await asyncio.get_running_loop().run_in_executor(preparing, prepare)

    def checked(self, asking: Asking) -> Asking:
        """Return `asking` if it can be served. Raises Refusal for another model, and for what is
        not streamed."""
        if asking.model != self.served.name:
            problem = f"there is no model {asking.model!r} here, only {self.served.name!r}"
            raise Refusal(404, problem, code="model_not_found", parameter="model")
        if asking.stream and getattr(asking, "logprobs", None) not in (None, False):
            problem = "logprobs are not streamed"
            raise Refusal(400, problem, code="unsupported_value", parameter="logprobs")
        return asking

    async def reply(self, request: Request, asked: Asked, shape: Shape) -> Response:
        """Sample, and answer whole or in pieces. Raises Refusal."""
        if self.batcher.open_jobs + len(asked.choices) > MOST_OPEN:
            raise Refusal(429, "too many requests wait already", code="rate_limit_exceeded")
        envelope, headers = Envelope(shape, self.served.name), noted(asked.ignored)

        async def sample(some: Asked) -> list[Answered]:
            return await sample_all(self.batcher, some, request.is_disconnected, self)

        if asked.request.stream and not asked.constraint.binds:
            return Stream(stream(self.batcher, asked, envelope, self), asked, headers)
        if asked.constraint.binds:
            answers, drawn = await fitting(asked, sample, self.schemas)
            headers[SAMPLES] = str(drawn)
        else:
            answers = await sample(asked)
        if asked.request.stream:
            return Stream(streamed(asked, envelope, answers), asked, headers)
        return await asyncio.to_thread(
            lambda: JSONResponse(envelope.whole(asked, answers), headers=headers)
        )

    def close(self) -> None:
        """End the threads and the process that work for requests."""
        self.small.shutdown()
        self.large.shutdown()
        self.schemas.close()

    def check_token(self, request: Request) -> None:
        """Raise Refusal (401) unless the request carries the token."""
        given = token_of(request.headers.get("authorization", ""))
        if given is None:
            problem = "a token is missing: send the header 'Authorization: Bearer TOKEN'"
            raise Refusal(401, problem, code="missing_token")
        if not secrets.compare_digest(given.encode(), self.token.encode()):
            raise Refusal(401, "the token is wrong", code="invalid_api_key")


def preparing(name: str) -> ThreadPoolExecutor:
    """A thread that makes requests ready."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"assay-{name}-requests")


def noted(ignored: Sequence[str]) -> dict[str, str]:
    """The headers of an answer: parameters without effect by name, as far as a header can carry."""
    if not ignored:
        return {}
    names = [re.sub(r"[^\w.-]", "?", name[:MOST_NAME], flags=re.ASCII) for name in ignored]
    more = [f"and {len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
    return {IGNORED: ", ".join([*names[:MOST_NAMED], *more])}


def token_of(header: str) -> str | None:
    """The bearer token of an Authorization header."""
    kind, _, value = header.partition(" ")
    return value.strip() if kind.lower() == "bearer" and value.strip() else None


async def read_body(request: Request) -> bytes:
    """The whole body. Raises Refusal (413) once it is larger than MOST_BYTES."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BYTES:
            problem = f"the body is larger than {MOST_BYTES} bytes"
            raise Refusal(413, problem, code="request_too_large")
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
