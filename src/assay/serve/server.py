"""Serves a checkpoint over HTTP until it is stopped, on the loopback address unless another is
given: routes, bearer token, size limits, and errors as JSON in OpenAI's format.

The list of models needs no token, because programs that wait for a server to be ready (BFCL's among
them) request it without one. Every route that runs the model does. Requests become sampling jobs,
whose text is read while it grows; jobs of a client that has gone are cancelled. An interrupt ends
open requests, and the sockets are closed before `serve` returns.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from assay.agents.http import HOST, application, model_list, read_body, streamed, up
from assay.agents.protocol import (
    ChatRequest,
    CompletionRequest,
    Envelope,
    FinishedCompletion,
    Json,
    RequestParameters,
    finished_completion,
    read_chat,
    read_request,
    refusal,
)
from assay.data.files import with_scheme
from assay.data.renderings.rendering import Renderer
from assay.data.renderings.template import RenderingError
from assay.data.row import Message
from assay.lab.models.language_learner import language_model, make_renderer, model_folder
from assay.lab.monitor.observer import Silent
from assay.lab.session.session import Session
from assay.models.load import load_model
from assay.models.precision import choose_precision
from assay.models.source import EXAMPLES
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.batcher import Batcher, Sampler, SamplingJob
from assay.rollout.engines.register import sampler_here
from assay.runs.run_directory import stored_status
from assay.runs.run_names import experiment_of, find_named
from assay.serve import connections
from assay.tasks.task import CallSyntax, call_syntax

UNBOUNDED = 1 << 17
"""Tokens of context that are served of a model that states no limit, such as a recurrent one."""


@dataclass(frozen=True)
class Served:
    """A model under the name that clients ask for."""

    name: str
    renderer: Renderer
    end_tokens: frozenset[int]
    context_tokens: int
    """The most tokens that a prompt and its completion may have together."""
    sampler: Sampler
    folder: Path
    """The folder of config and tokenizer, for clients that render themselves."""

    @property
    def tokenizer(self) -> Any:
        """The model's tokenizer."""
        return self.renderer.tokenizer

    @cached_property
    def longest_token(self) -> int:
        """Characters of the longest token."""
        return max(map(len, self.tokenizer.get_vocab()))


@contextmanager
def opened(root: Path, target: str, rendering: str, name: str | None = None) -> Iterator[Served]:
    """The model of `NAME@CHECKPOINT` or a model source, ready to answer as long as this is open.

    Raises InputError for what does not exist.
    """
    precision = choose_precision()
    target = with_scheme(target, root)
    kind, _, rest = target.partition(":")
    if kind in EXAMPLES and kind != "run":
        folder = model_folder(target, root)
        loaded = load_model(folder, precision)
        model, tokenizer, ends = loaded.model, loaded.tokenizer, loaded.end_tokens
    else:
        run, reference = find_named(root, rest if kind == "run" else target)
        session = Session(experiment_of(run), run, stored_status(run.path).seed, Silent())
        learner = language_model(session.learner, "serving")
        model, folder = learner.shelf(run).trained(reference), learner.folder
        tokenizer, ends = learner.base.tokenizer, learner.base.end_tokens
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None) or UNBOUNDED
    renderer = make_renderer(tokenizer, rendering)
    sampler: Any = sampler_here(model, ends, precision.compute)
    yield Served(name or target, renderer, ends, limit, sampler, folder)


UNFINISHED = "\ufffd"
"""The decoded form of a character with missing bytes."""


def overlap(text: str, word: str) -> int:
    """The number of characters at the end of `text` that begin `word`, at most all but one."""
    most = min(len(text), len(word) - 1)
    return next((n for n in range(most, 0, -1) if text.endswith(word[:n])), 0)


@dataclass(eq=False)
class ReadyRequest:
    """A request made ready, and the text of its answer while its tokens come."""

    request: RequestParameters
    job: SamplingJob
    tokenizer: Any
    end_tokens: frozenset[int]
    calls: CallSyntax | None = None
    """Parser of calls in the answer; None if calls are left as text."""
    tell: Callable[[], None] | None = None
    """Is called by the sampling thread whenever the text may have grown."""
    text: str = ""
    """Everything that is certain, up to a stop text."""
    _tokens: list[int] = field(default_factory=list)
    _before: int = 0
    _read: int = 0

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without those that end an answer."""
        kept = [token for token in tokens if token not in self.end_tokens]
        skip = self.request.skip_special_tokens
        return self.tokenizer.decode(kept, skip_special_tokens=skip)

    def stop_in(self, text: str, start: int) -> int | None:
        """The start of the first stop text that ends behind `start`."""
        stops = self.request.stops
        longest = max(map(len, stops), default=0)
        places = [text.find(stop, max(0, start - longest + 1)) for stop in stops]
        return min((place for place in places if place >= 0), default=None)

    def hears(self, token: int) -> bool:
        """Take a token as it is drawn; True where a stop text or token ends the answer."""
        if token in (self.request.stop_token_ids or ()):
            return True
        self._tokens.append(token)
        # A window is decoded, not the token alone: some tokenizers write a word's space by what
        # comes before it.
        old = self.decode(self._tokens[self._before : self._read])
        new = self.decode(self._tokens[self._before :])
        if len(new) <= len(old) or new.endswith(UNFINISHED):
            return False
        self._before, self._read = self._read, len(self._tokens)
        # Assigned once, because another thread reads it.
        text = self.text + new[len(old) :]
        stop = self.stop_in(text, len(self.text))
        self.text = text[:stop]
        if self.tell is not None:
            self.tell()
        return stop is not None

    def certain(self) -> str:
        """The beginning of the growing text that no stop text, no call and no space before one can
        take back."""
        text = self.text
        held = max((overlap(text, stop) for stop in self.request.stops), default=0)
        text = text[: len(text) - held]
        if self.calls is None:
            return text
        opening = self.calls.opening
        start = text.find(opening)
        return text[: start if start >= 0 else len(text) - overlap(text, opening)].rstrip()

    def finished(self) -> FinishedCompletion:
        """Read what was sampled: text up to a stop text, and calls where tools were given.

        Raises what sampling raised.
        """
        turn = self.job.done.result()
        ended = bool(turn.actions) and turn.actions[-1] in self.end_tokens
        return finished_completion(self.decode(turn.actions), self.request.stops, ended, self.calls)

    def tokens(self) -> tuple[int, int]:
        """How many a finished answer read, and drew."""
        return len(self.job.context), len(self.job.done.result().actions)


TEMPERATURE = 1.0
"""OpenAI's, where a request names none."""
COMPLETION_TOKENS = 16
"""OpenAI's limit of a completion request that names none; chat may fill the context."""


def ask_chat(served: Served, request: ChatRequest) -> ReadyRequest:
    """A chat made ready. Raises a refusal (400)."""
    messages, tools = read_chat(request)
    refuse_endless(served, [message.content for message in messages], "messages")
    refuse_endless(served, [json.dumps(tool) for tool in tools], "tools")
    try:
        context = served.renderer.prompt(messages, tools)
    except RenderingError as error:
        raise refusal(str(error), "messages") from error
    return ready(served, request, context, None, call_syntax() if tools else None)


def ask_completion(served: Served, request: CompletionRequest) -> ReadyRequest:
    """A completion made ready. Raises a refusal (400)."""
    context = prompt_tokens(served, request.prompt)
    return ready(served, request, context, COMPLETION_TOKENS, None)


def prompt_tokens(served: Served, prompt: str | Sequence[int]) -> tuple[int, ...]:
    """The tokens of a prompt. Raises a refusal for an id that the model does not have.

    The text of a chat has a chat's tokens: no token is put around it, but BOS before a text without
    it, where the tokenizer does so and chats begin with it too.
    """
    if isinstance(prompt, str):
        refuse_endless(served, [prompt], "prompt")
        bare = tuple(served.tokenizer.encode(prompt, add_special_tokens=False))
        bos = served.tokenizer.bos_token_id
        added = served.tokenizer.encode(prompt)[:1] == [bos] != list(bare[:1])
        chat = served.renderer.prompt((Message("user", "a"),))
        return (bos, *bare) if added and chat[0] == bos else bare
    size = len(served.tokenizer)
    if not all(0 <= token < size for token in prompt):
        raise refusal(f"prompt: token ids are 0 to {size - 1}", "prompt")
    return tuple(prompt)


def refuse_endless(served: Served, texts: Sequence[str], parameter: str) -> None:
    """Raise a refusal for texts that have too many tokens even if each is the longest there is.

    Time and memory do not grow with what was sent.
    """
    if sum(map(len, texts)) > served.longest_token * served.context_tokens:
        problem = f"the model's context holds {served.context_tokens} tokens, and there are more"
        raise refusal(problem, parameter, code="context_length_exceeded")


def ready(
    served: Served,
    request: RequestParameters,
    context: tuple[int, ...],
    default: int | None,
    calls: CallSyntax | None,
) -> ReadyRequest:
    """The job of a prompt. Raises a refusal where the context is too small."""
    seed = secrets.randbits(32) if request.seed is None else request.seed
    sampling = Sampling(
        TEMPERATURE if request.temperature is None else request.temperature,
        room(served, context, request.limit, default),
        request.top_p or 1.0,
        max(request.top_k or 0, 0),
    )
    job = SamplingJob(context, SampleKey(seed, "prompt 0", 0), sampling)
    ends = served.end_tokens | frozenset(request.stop_token_ids or ())
    made = ReadyRequest(request, job, served.tokenizer, ends, calls)
    if request.stream or request.stops or request.stop_token_ids:
        job.hears = made.hears
    return made


def room(served: Served, context: Sequence[int], limit: int | None, default: int | None) -> int:
    """The most tokens of the answer. Raises a refusal where prompt and answer do not fit."""
    left = served.context_tokens - len(context)
    wanted = limit or (left if default is None else min(default, left))
    if not context:
        raise refusal("the prompt is empty", "prompt")
    if left < 1 or wanted > left:
        problem = (
            f"the prompt has {len(context)} tokens and {max(wanted, 1)} are asked for, but the "
            f"model's context holds {served.context_tokens}"
        )
        raise refusal(problem, "messages", code="context_length_exceeded")
    return wanted


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
        return application(self.models, self.reply)

    async def models(self, request: Request) -> Response:
        """`GET /v1/models`."""
        if "authorization" in request.headers:
            self.check_token(request)
        return model_list(self.served.name, max_model_len=self.served.context_tokens)

    async def reply(self, request: Request, kind: type[RequestParameters]) -> Response:
        """Sample, and answer whole or in pieces. Raises a refusal.

        Requests are made ready off the event loop: a large one stalls no stream.
        """
        self.check_token(request)
        body = await read_body(request)
        ready = await asyncio.to_thread(self.read, kind, body)
        envelope = Envelope(kind is ChatRequest, self.served.name)
        if ready.request.stream:
            return streamed(self.pieces(ready, envelope))
        return JSONResponse(envelope.whole([await self.whole(ready, request)], *ready.tokens()))

    def read(self, kind: type[RequestParameters], body: bytes) -> ReadyRequest:
        """A request made ready. Raises a refusal."""
        asking = read_request(kind, body)
        if asking.model != self.served.name:
            problem = f"there is no model {asking.model!r} here, only {self.served.name!r}"
            raise refusal(problem, "model", code="model_not_found", status=404)
        ask: Any = ask_chat if kind is ChatRequest else ask_completion
        return ask(self.served, asking)

    async def whole(self, ready: ReadyRequest, request: Request) -> FinishedCompletion:
        """The finished completion. Raises what sampling raised, a refusal if the client left."""
        try:
            self.batcher.submit(ready.job)
            # Shielded: cancelling the wait does not cancel the job.
            waiting = asyncio.shield(asyncio.wrap_future(ready.job.done))
            while not (await asyncio.wait({waiting}, timeout=LOOK_SECONDS))[0]:
                if await request.is_disconnected():
                    raise ClientDisconnect
            waiting.result()
            return await asyncio.to_thread(ready.finished)
        except asyncio.CancelledError as error:
            raise CancelledError from error
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
        try:
            self.batcher.submit(ready.job)
            if envelope.chat:
                yield envelope.piece("", role="assistant")
            while not over:
                await news.wait()
                news.clear()
                over, text = ready.job.done.done(), ready.certain()
                if len(text) > len(sent):
                    fresh, sent = text[len(sent) :], text
                    yield envelope.piece(fresh)
            yield envelope.last(await asyncio.to_thread(ready.finished), sent)
            if ready.request.counted:
                yield envelope.counts(*ready.tokens())
        finally:
            ready.job.cancelled = True

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
    listening, batcher = connections.bound(port, host), Batcher(served.sampler)
    try:
        with up(ServedEndpoint(served, batcher, token).app(), listening) as taken:
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
