"""Asks a model behind an OpenAI-compatible endpoint: messages and tools in, text out.

An answer has no tokens or log-probabilities, so such a model can be measured and not trained.
Requests run side by side on one event loop in a thread of its own, as many as `turns` lets through.
Temporary failures are retried after pauses, within one deadline; a request without an answer then
is `Unanswered`, never an empty answer, and an answer that was paid for and cannot be kept is not
asked for again. The key comes from the environment and is removed from messages, records,
representations and answers.

Messages go to the chat endpoint, whose server renders them; the rendering "hermes" writes the tools
into the messages.
"""

import asyncio
import json
import os
import random
import ssl
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache
from http.cookiejar import DefaultCookiePolicy
from typing import Any, NamedTuple, Protocol, TypeVar

import httpx

from assay.data.conversation import dump_message, in_call_order
from assay.data.files import whole_text
from assay.data.message_parts import refuse_images, sent_parts
from assay.data.renderings import hermes
from assay.data.renderings.template import RenderingError
from assay.data.row import Message
from assay.errors import InputError
from assay.rl.policy import Sampling
from assay.rollout.engines.endpoint.openai_text import (
    EndpointAnswer,
    Portable,
    Unanswered,
    asked_words,
    chat_text,
    portable,
    provider_error,
    read_answer,
    redact,
    token_counts,
    told_words,
    unusable,
)

Result = TypeVar("Result")

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 20.0
LONGEST_ASKED = 120.0
"""The longest wait that a server can ask for, in seconds."""


def pause_before(attempt: int, retry_after: str | None = None) -> float:
    """Seconds before the repetition after `attempt`, which counts from 0.

    A server's `Retry-After` (RFC 9110, section 10.2.3) is kept to up to LONGEST_ASKED; the jitter
    comes on top of it, so that what was refused together is not repeated together.
    """
    growing = min(LONGEST_PAUSE, FIRST_PAUSE * 2**attempt)
    seconds = asked_seconds(retry_after) if retry_after is not None else None
    if seconds is None:
        return growing * random.uniform(0.75, 1.25)
    return max(seconds, growing) + FIRST_PAUSE * random.uniform(0.0, 1.0)


def asked_seconds(retry_after: str) -> float | None:
    """What a `Retry-After` asks for, from 0 to LONGEST_ASKED; None where it is no number of
    seconds, such as a date."""
    text = retry_after.strip().lstrip("0") or "0"
    if not text.isascii() or not text.isdigit():
        return None
    # int() refuses thousands of digits.
    return LONGEST_ASKED if len(text) > 9 else min(float(text), LONGEST_ASKED)


MOST_BYTES = 16 << 20
"""The largest answer that is read."""
KEPT_SECONDS = 3.0
"""An idle connection is kept so long: less than servers do, which usually close after 5."""
SENT_HEADERS = {"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": "assay"}
PREFIX = "openai:"
URL, KEY = "OPENAI_BASE_URL", "OPENAI_API_KEY"
ATTEMPTS = 6
DEADLINE_SECONDS = 300.0
"""For one answer, its repetitions and their pauses included."""
SHOWN_CHARACTERS = 200
"""Characters of a server's text that a message shows."""
WRONG_ASKER = (401, 403, 404)
"""Refusals that every further request would meet as well."""
PASSING = (408, 409, 425, 429)
"""Refusals that may pass, as in OpenAI's own client; so may every 5xx."""
GATEWAY = (502, 504)
"""Refusals by what stands before a model, which may have answered, and charged, all the same."""
TOO_LONG = ("context_length_exceeded", "maximum context length", "exceed_context_size")
"""By what OpenAI, vLLM and llama.cpp refuse a request that the model cannot read whole."""


class Charge(Protocol):
    """Keeps account of the attempts at one answer; called on the event loop."""

    async def attempt(self) -> None:
        """Before each attempt is sent, which waits for it. What it raises keeps the attempt from
        being sent."""
        ...

    def lost(self) -> None:
        """After an attempt that has no answer and may have been charged."""
        ...


@dataclass(frozen=True, slots=True)
class _Question:
    """One request, and how its answer is read."""

    path: str
    body: Callable[[], Mapping[str, Any]]
    """Made anew for each attempt: a thousand that wait would not fit in memory with images."""
    read: Callable[[Any], EndpointAnswer]


class Reply(NamedTuple):
    """A server's answer."""

    status: int
    body: bytes
    retry_after: str | None = None


class Connections:
    """The connections to one server; safe to use from several threads, which block, and from the
    event loop itself, which does not. Where the environment names a proxy, it is asked."""

    def __init__(self) -> None:
        """Nothing is started before the first request."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._free: list[httpx.AsyncClient] = []

    def wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of `work`, which runs on the event loop; raises what it raises. Interrupted,
        it is cancelled."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                name = "assay-endpoint-loop"
                threading.Thread(target=_run, args=(self._loop,), name=name, daemon=True).start()
                weakref.finalize(self, _stop, self._loop, self._free)
        done = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return done.result()
        finally:
            done.cancel()

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: Any) -> Reply:
        """The answer to one request; on the event loop.

        Raises Unanswered for an answer that is too long, or compressed although that was not asked
        for, and httpx.HTTPError.
        """
        # A client for each request under way: a pool of many connections costs much more CPU.
        client = self._free.pop() if self._free else _client()
        received = bytearray()
        try:
            stream = client.stream(method, url, headers=dict(headers), content=body)
            async with stream as response:
                if response.headers.get("content-encoding", "identity").lower() != "identity":
                    raise unusable("a compressed answer")
                async for piece in response.aiter_raw():
                    received += piece
                    if len(received) > MOST_BYTES:
                        raise unusable(f"more than {MOST_BYTES} bytes")
        finally:
            self._free.append(client)
        return Reply(response.status_code, bytes(received), response.headers.get("retry-after"))


def _client() -> httpx.AsyncClient:
    limits = httpx.Limits(keepalive_expiry=KEPT_SECONDS)
    client = httpx.AsyncClient(timeout=None, limits=limits, verify=certificates())
    # A server's cookies would tie requests to those before them.
    client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    return client


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


def _stop(loop: asyncio.AbstractEventLoop, clients: list[httpx.AsyncClient]) -> None:
    """Close the connections and end the thread."""

    async def close() -> None:
        for client in clients:
            await client.aclose()
        # The transports close on the loop's next round.
        loop.call_soon(loop.stop)

    if loop.is_running():
        asyncio.run_coroutine_threadsafe(close(), loop)


@cache
def certificates() -> ssl.SSLContext:
    """Reading the certificates takes longer than a request."""
    return httpx.create_ssl_context()


@dataclass(frozen=True)
class Endpoint:
    """Where a model is asked; safe to use from several threads."""

    url: str
    model: str
    key: str | None = field(default=None, repr=False)
    deadline: float = DEADLINE_SECONDS
    pause: Callable[[float], Awaitable[None] | None] = field(default=asyncio.sleep, repr=False)
    """Waits so many seconds, on the event loop. What it takes longer than that does not count
    against a deadline, nor does waiting for a turn."""
    variable: str = KEY
    """The environment variable that the key is read from, for messages."""
    timeout: float | None = None
    """Seconds for one attempt; None leaves it all of the deadline."""
    turns: asyncio.Semaphore | None = field(default=None, repr=False, compare=False)
    """Bounds the requests at once."""
    connections: Connections = field(default_factory=Connections, repr=False, compare=False)

    async def answer(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        sampling: Sampling,
        rendering: str = "auto",
        seed: int | None = None,
        charge: Charge | None = None,
    ) -> EndpointAnswer:
        """What the model says next; on the event loop of `connections`.

        Images go to the chat endpoint as data URLs. Raises Unanswered, InputError where no
        request can ever succeed, RenderingError, DataError for an image that a rendering
        cannot carry or whose file has changed, and what `charge` raises.
        """
        check_rendering(rendering)
        settings = {"model": self.model, **_settings(sampling, seed)}
        as_text = rendering == "hermes"
        if as_text:
            refuse_images(messages, f"rendering {rendering!r}", "ask with rendering = 'auto'")
            messages = in_call_order(messages)
        names = portable(() if as_text else tools)

        def body() -> Mapping[str, Any]:
            plain = hermes.flatten(messages, tools) if as_text else messages
            return {**settings, **_chat(plain, names)}

        def read(answer: Any) -> EndpointAnswer:
            return self._said(*chat_text(answer, names), answer)

        question = _Question("chat/completions", body, read)
        return await self._ask(question, charge)

    async def likely_words(
        self, tokens: tuple[int, ...], begin: int, count: int, charge: Charge | None = None
    ) -> EndpointAnswer:
        """The likeliest words at the tokens from `begin`, as a text for `read_words`; on the event
        loop of `connections`. Raises as `answer` does."""
        body = {"model": self.model, **asked_words(tokens, count)}

        def read(answer: Any) -> EndpointAnswer:
            return EndpointAnswer(
                told_words(answer, begin, len(tokens), count), "stop", *token_counts(answer)
            )

        question = _Question("completions", lambda: body, read)
        return await self._ask(question, charge)

    def check(self) -> None:
        """Raise InputError if nothing answers there, or not with this key."""
        try:
            status = self.connections.wait(self._send("GET", "models", None, self.deadline)).status
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, Unanswered) as error:
            problem = f"{self.url} does not answer: {type(error).__name__}"
            raise InputError(problem, field="endpoint", fix=f"check the URL ({URL})") from error
        if status in (401, 403):
            raise self._refused(status)

    async def _ask(self, question: _Question, charge: Charge | None) -> EndpointAnswer:
        """Ask until there is an answer, the deadline has come, or asking again is of no use."""
        left = self.deadline
        for attempt in range(ATTEMPTS):
            async with self.turns or nullcontext():
                if charge is not None:
                    await charge.attempt()
                begun = time.monotonic()
                answer = await self._attempt(question, min(left, self.timeout or left))
                left -= time.monotonic() - begun
            if isinstance(answer, EndpointAnswer):
                return answer
            if answer.charged and charge is not None:
                charge.lost()
            wait = pause_before(attempt, answer.retry_after)
            if not answer.passing or attempt + 1 == ATTEMPTS or wait > left:
                raise answer
            paused = self.pause(wait)
            if paused is not None:
                await paused
            left -= wait
        raise AssertionError("the last attempt returns or raises")

    async def _attempt(self, question: _Question, seconds: float) -> EndpointAnswer | Unanswered:
        """An answer, or why there is none. Raises InputError."""
        try:
            reply = await self._send("POST", question.path, question.body(), seconds)
            if reply.status == 200:
                answer = read_answer(reply.body)
                error = provider_error(answer)
                if error is None:
                    return question.read(answer)
                text = error[1].encode("utf-8", "replace")
                reply = Reply(error[0] or 200, text, reply.retry_after)
        except TimeoutError:
            return Unanswered("deadline", passing=True, charged=True)
        except httpx.HTTPError as error:
            refused = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            reason = f"connection: {type(error).__name__}"
            return Unanswered(reason, passing=True, charged=not refused)
        except Unanswered as error:
            return unusable(self._shown(error.detail))
        except ValueError as error:
            shown = self._shown(str(error))
            return Unanswered("garbled answer", shown, passing=True, charged=True)
        return self._not_answered(reply)

    def _said(self, text: str, finish: str, answer: Any) -> EndpointAnswer:
        """An answer as it is kept. Raises Unanswered."""
        ended = "length" if finish == "length" else "stop"
        return EndpointAnswer(redact(text, self.key, answer=True), ended, *token_counts(answer))

    def _not_answered(self, reply: Reply) -> Unanswered:
        """The failure that a status stands for. Raises InputError."""
        text = reply.body.decode("utf-8", "replace")
        detail = self._shown(text)
        if reply.status in WRONG_ASKER:
            raise self._refused(reply.status, detail)
        return Unanswered(
            f"HTTP {reply.status}",
            detail,
            # HTTP 200: an error without a code.
            passing=reply.status >= 500 or reply.status in (200, *PASSING),
            charged=reply.status in (200, *GATEWAY),
            retry_after=reply.retry_after,
            too_long=reply.status == 413
            or (reply.status in (400, 422) and any(mark in text for mark in TOO_LONG)),
        )

    async def _send(self, method: str, path: str, body: Any, seconds: float) -> Reply:
        """One request and its answer. Raises TimeoutError unless it is whole within `seconds`."""
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        headers |= SENT_HEADERS
        content = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            content = sendable(body)
        url = f"{self.url.rstrip('/')}/{path}"
        async with asyncio.timeout(max(seconds, 0.001)):
            return await self.connections.send(method, url, headers, content)

    def _refused(self, status: int, detail: str = "") -> InputError:
        fix = f"check the model's name {self.model!r} and the URL"
        if status != 404:
            fix = f"{'set' if self.key is None else 'check'} {self.variable}"
        problem = f"{self.url} refuses with HTTP {status}" + (f": {detail}" if detail else "")
        return InputError(problem, field="endpoint", fix=fix)

    def _shown(self, text: str) -> str:
        """The beginning of a server's text as one line, without the key that it may repeat."""
        # Redacted before it is cut: half of a key is no longer found.
        return " ".join(redact(text, self.key).split())[:SHOWN_CHARACTERS]


def endpoint_of(model: str, url: str | None, variable: str = KEY) -> Endpoint:
    """The endpoint of `openai:NAME` at `url`, else at OPENAI_BASE_URL. Raises InputError.

    The key, where the server wants one, is in the environment's `variable`.
    """
    base = url or os.environ.get(URL)
    if not base:
        fix = f"set {URL}, or write endpoint = 'http://127.0.0.1:8000/v1'"
        raise InputError(f"no endpoint for {model!r}", field="endpoint", fix=fix)
    key = os.environ.get(variable) or None
    text = f"{base} {model}"
    if redact(text, key, answer=True) != text:
        problem = f"the URL or the model's name holds the value of {variable}"
        raise InputError(problem, field="endpoint", fix="leave it out: both are recorded")
    if key is not None and not (key.isascii() and key.isprintable()):
        problem = f"{variable} holds characters that no HTTP header can carry"
        raise InputError(problem, field="endpoint", fix="copy it again, without line ends")
    return Endpoint(checked_url(base), model.removeprefix(PREFIX), key, variable=variable)


def sendable(body: Any) -> bytes:
    """The JSON of a request; half of a surrogate pair, which UTF-8 has not, becomes U+FFFD."""
    return whole_text(json.dumps(body, ensure_ascii=False)).encode("utf-8")


def checked_url(url: str) -> str:
    """The URL itself. Raises InputError unless it is http or https and holds no password."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise InputError(f"is no URL: {error}", field="endpoint") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InputError("is no http or https URL", field="endpoint", fix="write all of it")
    if parsed.userinfo or parsed.query:
        fix = f"keys come from {KEY}, since the URL is recorded"
        raise InputError("the URL holds a user, a password or a query", field="endpoint", fix=fix)
    return url


def _settings(sampling: Sampling, seed: int | None) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "temperature": sampling.temperature,
        "max_tokens": sampling.max_tokens,
        "top_p": sampling.top_p,
    }
    if sampling.top_k:
        settings["top_k"] = sampling.top_k
    if sampling.min_p:
        settings["min_p"] = sampling.min_p
    if sampling.stop is not None:
        settings["stop"] = list(sampling.stop.strings)
    return settings if seed is None else {**settings, "seed": seed}


def _chat(messages: Sequence[Message], names: Portable) -> dict[str, Any]:
    """Messages and tools as OpenAI has them: arguments are text, every call has an id."""
    plain = [
        {"role": message.role, "content": sent_parts(message)}
        if message.parts
        else dump_message(message)
        for message in messages
    ]
    # Arguments as JSON text, and ids that calls and results share.
    sent, waiting, number = [], [], 0
    for message in plain:
        message = dict(message)
        if message.get("tool_calls"):
            calls = []
            for call in message["tool_calls"]:
                number += 1
                made = dict(call["function"])
                made["name"] = names.there.get(made["name"], made["name"])
                made["arguments"] = json.dumps(made["arguments"], ensure_ascii=False)
                calls.append({**call, "id": call.get("id") or f"call_{number}", "function": made})
            message["tool_calls"], waiting = calls, [call["id"] for call in calls]
        if message["role"] == "tool" and not message.get("tool_call_id") and waiting:
            message["tool_call_id"] = waiting.pop(0)
        sent.append(message)
    return {"messages": sent, "tools": list(names.tools)} if names.tools else {"messages": sent}


CHATS = ("auto", "template", "hermes")
"""Renderings by which an endpoint can be asked: messages as they are, or in plain text."""


def check_rendering(rendering: str) -> None:
    """Raise RenderingError for a rendering by which no endpoint can be asked."""
    if rendering not in CHATS:
        problem = f"a server renders by its own chat template, not by {rendering!r}"
        fix = "serve a checkpoint that was trained so, and ask by 'template': its template is that"
        raise RenderingError(problem, field="rendering", fix=fix)
