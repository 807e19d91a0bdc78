"""A model behind an OpenAI-compatible endpoint: messages and tools in, text out.

Nothing but text comes back, neither tokens nor log-probabilities, so such a model can be measured
and not trained. A request that fails in a way that may pass is repeated with growing pauses, within
one deadline; what has no answer then is `Unanswered`, never an empty answer. The key comes from the
environment and is in no message, record or representation.

A rendering says how the model is asked: "auto" and "template" send messages and tools to the chat
endpoint, whose server writes them its way; "hermes" sends messages with the tools written into
them; any other is a text for the completions endpoint. In such a text control tokens that stand in
a message reach the server as they are.
"""

import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from assay.data.conversation import dump_message
from assay.data.episode import Ended
from assay.data.jsonl import load_json
from assay.data.rendering import RENDERINGS, UnknownRenderingError
from assay.data.renderings import hermes
from assay.data.row import Message
from assay.errors import InputError, nearest
from assay.rollout.endpoint_text import (
    Garbled,
    Portable,
    call_arguments_as_text,
    chat_text,
    completion_text,
    portable,
)
from assay.rollout.sampling import Sampling

PREFIX = "openai:"
URL, KEY = "OPENAI_BASE_URL", "OPENAI_API_KEY"
ATTEMPTS = 6
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 20.0
DEADLINE_SECONDS = 300.0
"""For one answer, its repetitions included."""
MOST_BYTES = 16 << 20
"""The largest answer that is read."""
WRONG_ASKER = (401, 403, 404)
"""Refusals that every further request would meet as well."""
PASSING = (408, 409, 425, 429)
"""Refusals that may pass; so may every 5xx."""


class EndpointError(InputError):
    """The endpoint cannot be asked at all."""


class Unanswered(Exception):
    """One request has no answer. `reason` is short, the same for failures of one kind."""

    def __init__(self, reason: str, detail: str = ""):
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Said:
    """One answer. Token counts are the server's; None where it gave none."""

    text: str
    ended: Ended
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


@dataclass(frozen=True)
class Endpoint:
    """Where a model is asked; safe to use from several threads."""

    url: str
    model: str
    key: str | None = field(default=None, repr=False)
    deadline: float = DEADLINE_SECONDS
    pause: Callable[[float], None] = field(default=time.sleep, repr=False)
    client: httpx.Client = field(
        default_factory=lambda: httpx.Client(follow_redirects=False), repr=False
    )

    def say(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        sampling: Sampling,
        rendering: str = "auto",
        seed: int | None = None,
    ) -> Said:
        """What the model says next.

        Raises Unanswered, EndpointError where no request can ever succeed, and
        UnknownRenderingError.
        """
        settings = _settings(sampling, seed)
        if rendering in ("auto", "template", "hermes"):
            names = portable(() if rendering == "hermes" else tools)
            plain = hermes.flatten(messages, tools) if rendering == "hermes" else messages
            body = {"model": self.model, **_chat(plain, names), **settings}
            return self._ask("chat/completions", body, lambda answer: _chat_said(answer, names))
        body = {"model": self.model, "prompt": _text(rendering, messages, tools), **settings}
        return self._ask("completions", body, _completion_said)

    def check(self) -> None:
        """Raise EndpointError if nothing answers there, or not with this key."""
        try:
            status, _ = self._send("GET", "models", None, self.deadline)
        except httpx.HTTPError as error:
            problem = f"{self.url} does not answer: {type(error).__name__}"
            raise EndpointError(problem, field="endpoint", fix=f"check the URL ({URL})") from error
        if status in (401, 403):
            raise self._refused(status)

    def _ask(self, path: str, body: Mapping[str, Any], read: Callable[[Any], Said]) -> Said:
        """Ask until there is an answer, the deadline has come, or asking again is of no use."""
        end = time.monotonic() + self.deadline
        failure = Unanswered("deadline")
        for attempt in range(ATTEMPTS):
            wait = 0.0
            try:
                status, answer = self._send("POST", path, body, end - time.monotonic())
                if status == 200:
                    return read(load_json(answer.decode("utf-8")))
                if status in WRONG_ASKER:
                    raise self._refused(status, answer)
                failure = Unanswered(f"HTTP {status}", self._shown(answer))
                if status < 500 and status not in PASSING:
                    raise failure
            except httpx.TimeoutException:
                failure = Unanswered("deadline")
            except httpx.HTTPError as error:
                failure = Unanswered(f"connection: {type(error).__name__}")
            except (Garbled, ValueError) as error:
                failure = Unanswered("garbled answer", self._shown(str(error).encode()))
            wait = min(LONGEST_PAUSE, FIRST_PAUSE * 2**attempt) * random.uniform(0.75, 1.25)
            if attempt + 1 == ATTEMPTS or time.monotonic() + wait > end:
                raise failure
            self.pause(wait)
        raise failure

    def _send(self, method: str, path: str, body: Any, seconds: float) -> tuple[int, bytes]:
        """Status and body of one request, the whole of it within `seconds`."""
        end = time.monotonic() + max(seconds, 0.001)
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        request = {"headers": headers, "timeout": max(seconds, 0.001)}
        if body is not None:
            request["json"] = body
        received = bytearray()
        with self.client.stream(method, f"{self.url.rstrip('/')}/{path}", **request) as response:
            # The timeout is for each piece: a server that drips would never meet it.
            for piece in response.iter_bytes():
                received += piece
                if time.monotonic() > end:
                    raise httpx.ReadTimeout("the answer drips")
                if len(received) > MOST_BYTES:
                    raise Garbled(f"more than {MOST_BYTES} bytes")
        return response.status_code, bytes(received)

    def _refused(self, status: int, answer: bytes = b"") -> EndpointError:
        fix = f"check the model's name {self.model!r} and the URL"
        if status != 404:
            fix = f"set {KEY}" if self.key is None else f"check {KEY}"
        said = self._shown(answer)
        problem = f"{self.url} refuses with HTTP {status}" + (f": {said}" if said else "")
        return EndpointError(problem, field="endpoint", fix=fix)

    def _shown(self, answer: bytes) -> str:
        """The beginning of what a server said, without the key that it may repeat."""
        text = " ".join(answer[:2000].decode("utf-8", "replace").split())
        return (text.replace(self.key, "[key]") if self.key else text)[:200]


def endpoint_of(model: str, url: str | None) -> Endpoint:
    """The endpoint of `openai:NAME` at `url`, else at OPENAI_BASE_URL. Raises EndpointError.

    The key, where the server wants one, is OPENAI_API_KEY.
    """
    base = url or os.environ.get(URL)
    if not base:
        fix = f"set {URL}, or write endpoint = 'http://127.0.0.1:8000/v1'"
        raise EndpointError(f"no endpoint for {model!r}", field="endpoint", fix=fix)
    return Endpoint(checked_url(base), model.removeprefix(PREFIX), os.environ.get(KEY) or None)


def checked_url(url: str) -> str:
    """The URL itself. Raises EndpointError unless it is http or https and holds no password."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise EndpointError(f"is no URL: {error}", field="endpoint") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise EndpointError("is no http or https URL", field="endpoint", fix="write all of it")
    if parsed.userinfo or parsed.query:
        fix = f"keys come from {KEY}, since the URL is recorded"
        raise EndpointError(
            "the URL holds a user, a password or a query", field="endpoint", fix=fix
        )
    return url


def _settings(sampling: Sampling, seed: int | None) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "temperature": sampling.temperature,
        "max_tokens": sampling.max_tokens,
        "top_p": sampling.top_p,
    }
    if sampling.top_k:
        settings["top_k"] = sampling.top_k
    return settings if seed is None else {**settings, "seed": seed}


def _chat(messages: Sequence[Message], names: Portable) -> dict[str, Any]:
    """Messages and tools as OpenAI has them: arguments are text, every call has an id."""
    sent = call_arguments_as_text([dump_message(message) for message in messages], names)
    return {"messages": sent, "tools": list(names.tools)} if names.tools else {"messages": sent}


def _text(rendering: str, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> str:
    if rendering not in RENDERINGS:
        fix = nearest(rendering, ["auto", *RENDERINGS])
        raise UnknownRenderingError(f"unknown rendering {rendering!r}", field="rendering", fix=fix)
    # Renderings that are written out here ask nothing of a tokenizer.
    return RENDERINGS[rendering].text(None, messages, tools, True)


def _chat_said(answer: Any, names: Portable) -> Said:
    text, finish = chat_text(answer, names)
    return Said(text, "length" if finish == "length" else "stop", *_usage(answer))


def _completion_said(answer: Any) -> Said:
    text, finish = completion_text(answer)
    return Said(text, "length" if finish == "length" else "stop", *_usage(answer))


def _usage(answer: Any) -> tuple[int | None, int | None]:
    usage = answer.get("usage") or {}
    counts = (usage.get("prompt_tokens"), usage.get("completion_tokens"))
    prompt, completion = (count if type(count) is int else None for count in counts)
    return prompt, completion
