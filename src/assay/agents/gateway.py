"""The policy behind OpenAI's interface on loopback, for agents: one API key is one episode.

A request waits here as a `Call` until whoever samples has taken it, and is answered then. What is
sampled, and how, is not this file's: a request may stop an answer earlier, nothing else. Settings
that it asks for otherwise (temperature, top_p, another model) are noted once by name. Helper models
stand behind the same address by their names; what they are asked is no turn. A name that is neither
is the policy's, which is noted; in an episode that has asked for the policy by its name it is no
model's, so that no judge is answered by what it judges.
"""

import asyncio
import secrets
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from assay.agents.http import HOST, answering, event, read_body, unknown_route, up
from assay.agents.protocol import (
    REFUSED,
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
from assay.data.conversation import dump_messages
from assay.data.episode import Reward
from assay.data.files import canonical_json, sha256_text
from assay.data.row import Message, Row
from assay.rl.policy import SampleKey
from assay.rollout.episodes import TURN
from assay.tasks.helper_model import HelperModel, Question

POLICY = "policy"
"""The name under which the policy answers."""
MOST_CHOICES = 64
"""The largest `n` of a request."""
RULED = ("temperature", "top_p", "top_k", "seed", "stop_token_ids", "skip_special_tokens")
"""What the stage or the evaluation sets, whatever a request asks for."""
TAKEN = ("n", "logprobs", "tool_choice")
"""What `serve` refuses and is done here, or noted."""
GATEWAY_REFUSED = {name: values for name, values in REFUSED.items() if name not in TAKEN}
RETRY = "x-stainless-retry-count"
"""OpenAI's clients say here how often they have sent a request before."""


class AgentChat(ChatRequest):
    """A chat of an agent."""

    n: int | None = None
    logprobs: bool | None = None
    tool_choice: Any = None


class AgentCompletion(CompletionRequest):
    """A bare completion of an agent."""

    n: int | None = None
    logprobs: int | None = None


@dataclass(eq=False)
class AgentCall:
    """One request of an agent, until all its choices are sampled."""

    messages: tuple[Message, ...]
    tools: tuple[Any, ...]
    prompt: str | tuple[int, ...] | None
    """Of a completion without messages."""
    stops: tuple[str, ...]
    max_tokens: int | None
    logprobs: bool
    count: int
    name: str
    """A fingerprint of what is asked, and which of the equal calls of its episode it is."""
    choices: list[FinishedCompletion] = field(default_factory=list)
    tokens: list[int] = field(default_factory=lambda: [0, 0])
    """Tokens read, and tokens sampled."""
    done: "Future[None]" = field(default_factory=Future)

    def usage(self) -> Json | None:
        """Token counts as OpenAI writes them; None where they are not known."""
        read, drawn = self.tokens
        if not read + drawn:
            return None
        return {"prompt_tokens": read, "completion_tokens": drawn, "total_tokens": read + drawn}


@dataclass(eq=False)
class OpenEpisode:
    """What the gateway knows of an episode until it is closed."""

    row: Row
    key: SampleKey
    api_key: str = field(default_factory=lambda: f"assay-{secrets.token_urlsafe(24)}")
    waiting: deque[AgentCall] = field(default_factory=deque)
    made: Counter[str] = field(default_factory=Counter)
    """How many calls asked the same, of helpers too, by fingerprint."""
    calls: list[AgentCall] = field(default_factory=list)
    """Of the policy, as they came."""
    outcome: Reward | None = None
    """Set when the agent has ended."""
    late: int = 0
    """Calls after the end."""
    by_name: bool = False
    """Whether it has asked for the policy by its name."""

    def named(self, fingerprint: str) -> str:
        """The name of one more call that asks this."""
        self.made[fingerprint] += 1
        return f"{fingerprint}.{self.made[fingerprint] - 1}"


@dataclass(eq=False)
class Gateway:
    """The open episodes of one stage or evaluation, and the models behind its address."""

    helpers: Mapping[str, HelperModel] = field(default_factory=dict)
    note: Callable[[str], None] = lambda line: None
    """Is told once of each setting that a request asks for and does not get."""
    url: str = ""
    episodes: dict[str, OpenEpisode] = field(default_factory=dict)
    news: threading.Condition = field(default_factory=threading.Condition)
    _noted: set[str] = field(default_factory=set)

    @contextmanager
    def up(self) -> Iterator["Gateway"]:
        """Behind a free port of loopback as long as this is open."""
        chat = partial(self.reply, kind=AgentChat)
        completion = partial(self.reply, kind=AgentCompletion)
        routes = [
            Route("/v1/models", answering(self.models), methods=["GET"]),
            Route("/v1/chat/completions", answering(chat), methods=["POST"]),
            Route("/v1/completions", answering(completion), methods=["POST"]),
        ]
        app = Starlette(routes=routes, exception_handlers={HTTPException: unknown_route})
        with up(app, 0) as port:
            self.url = f"http://{HOST}:{port}/v1"
            try:
                yield self
            finally:
                for episode in list(self.episodes.values()):
                    self.close(episode)

    def open(self, row: Row, key: SampleKey) -> OpenEpisode:
        """A new episode with an API key of its own."""
        episode = OpenEpisode(row, key)
        with self.news:
            self.episodes[episode.api_key] = episode
        return episode

    def finish(self, api_key: str, outcome: Reward) -> None:
        """The agent has ended; the first outcome stands."""
        with self.news:
            episode = self.episodes.get(api_key)
            if episode is not None and episode.outcome is None:
                left = [call for call in episode.calls if not call.done.done()]
                if left and outcome.value is not None:
                    why = f"ended while {len(left)} of its calls waited for their answers"
                    outcome = Reward(None, why=why)
                episode.outcome = outcome
                self._drop(episode)
            self.news.notify_all()

    def close(self, episode: OpenEpisode) -> None:
        """Refuse what still comes with its key."""
        with self.news:
            self._drop(episode)
            self.episodes.pop(episode.api_key, None)

    def _drop(self, episode: OpenEpisode) -> None:
        episode.waiting.clear()
        for call in episode.calls:
            if not call.done.done():
                call.done.set_exception(refusal("the episode is over", code="over", status=410))

    async def models(self, request: Request) -> Response:
        """`GET /v1/models`."""
        listed = [
            {"id": name, "object": "model", "created": 0, "owned_by": "assay"}
            for name in (POLICY, *self.helpers)
        ]
        return JSONResponse({"object": "list", "data": listed})

    def episode_of(self, request: Request) -> OpenEpisode:
        """The episode of a request's key. Raises a refusal: 401 without one, 410 after its end."""
        _, _, value = request.headers.get("authorization", "").partition(" ")
        with self.news:
            episode = self.episodes.get(value.strip())
            if episode is None:
                problem = "the API key is of no open episode"
                raise refusal(problem, code="invalid_api_key", status=401)
            if episode.outcome is not None:
                episode.late += 1
                raise refusal("the episode is over", code="over", status=410)
        return episode

    async def reply(self, request: Request, kind: Any) -> Response:
        """Wait for the policy, or ask a helper; answer whole or in pieces. Raises a refusal."""
        episode = self.episode_of(request)
        body = read_request(kind, await read_body(request), GATEWAY_REFUSED)
        if body.model in self.helpers:
            call = await asyncio.to_thread(self.ask_helper, episode, body)
        else:
            call = self.submit(episode, body, request.headers.get(RETRY, "0") != "0")
            await asyncio.shield(asyncio.wrap_future(call.done))
        envelope = Envelope(isinstance(body, AgentChat), body.model)
        if not body.stream:
            return JSONResponse(envelope.whole(call.choices, call.usage()))
        lines = [event(each) for each in pieces(envelope, call, body)]
        return StreamingResponse(iter([*lines, "data: [DONE]\n\n"]), media_type="text/event-stream")

    def submit(self, episode: OpenEpisode, body: Any, again: bool) -> AgentCall:
        """A call that waits for the policy; of one that a client sends again, the first."""
        call = made_call(body)
        with self.news:
            episode.by_name |= body.model == POLICY
            if body.model != POLICY and episode.by_name:
                problem = f"no model {body.model!r}: there are {', '.join((POLICY, *self.helpers))}"
                raise refusal(problem, "model", code="model_not_found", status=404)
            self.note_settings(body)
            alike = [each for each in episode.calls if each.name.split(".")[0] == call.name]
            if again and alike:
                return alike[-1]
            call.name = episode.named(call.name)
            episode.calls.append(call)
            episode.waiting.append(call)
            self.news.notify_all()
        return call

    def note_settings(self, body: RequestParameters) -> None:
        """Tell of what a request asks for and does not get."""
        values = {name: getattr(body, name) for name in RULED}
        told = [f"{k} = {v}" for k, v in values.items() if v is not None and v is not False]
        choice = getattr(body, "tool_choice", None)
        told += [f"tool_choice = {choice!r}"] if choice not in (None, "auto", "none") else []
        told += [f"model = {body.model!r}"] if body.model not in (POLICY, *self.helpers) else []
        for setting in told:
            name = setting if setting.startswith("model ") else setting.partition(" ")[0]
            if name not in self._noted:
                self._noted.add(name)
                self.note(f"the agent asks for {setting}; the experiment's settings rule")

    def ask_helper(self, episode: OpenEpisode, body: Any) -> AgentCall:
        """The answer of a helper model, drawn by the episode's key. Raises a refusal (502)."""
        model, call = self.helpers[body.model], made_call(body)
        if call.prompt is not None or call.tools or call.logprobs or call.count > 1:
            problem = f"{body.model} gives one answer to a chat, without tools and logprobs"
            raise refusal(problem, "model")
        with self.news:
            self.note_settings(body)
            call.name = episode.named(call.name)
        key = replace(episode.key, row=f"{episode.key.row}{TURN}{call.name}")
        most = min(model.sampling.max_tokens, call.max_tokens or 1 << 30)
        sampling = replace(model.sampling, max_tokens=most)
        (answer,) = model.answer([Question(call.messages, sampling, key)])
        if answer.failure:
            raise refusal(answer.failure, code="helper_failed", status=502)
        ended = answer.ended == "stop"
        call.choices.append(finished_completion(answer.text, call.stops, ended, None))
        call.tokens[:] = [answer.prompt_tokens or 0, answer.completion_tokens or 0]
        return call


def made_call(body: AgentChat | AgentCompletion) -> AgentCall:
    """A request as a call named by what it asks. Raises a refusal."""
    count = body.n or 1
    if not 1 <= count <= MOST_CHOICES:
        raise refusal(f"n: must be 1 to {MOST_CHOICES}", "n")
    if body.stream and count > 1:
        raise refusal("n: a stream has one choice", "n")
    if body.logprobs is not True and (body.logprobs or 0) > 1:
        raise refusal("logprobs: those of the drawn tokens alone are known", "logprobs")
    if isinstance(body, AgentChat):
        messages, tools = read_chat(body)
        prompt, most = None, body.max_completion_tokens or body.max_tokens
        content: Any = [dump_messages(messages), list(tools)]
    else:
        messages, tools, most = (), (), body.max_tokens
        prompt = body.prompt if isinstance(body.prompt, str) else tuple(body.prompt)
        content = body.prompt
    name = sha256_text(canonical_json([content, most, list(body.stops)]))[:16]
    logprobs = body.logprobs is not None and body.logprobs is not False
    return AgentCall(messages, tools, prompt, body.stops, most, logprobs, count, name)


def pieces(envelope: Envelope, call: AgentCall, body: RequestParameters) -> Iterator[Json]:
    """The objects of a streamed answer."""
    if envelope.chat:
        yield envelope.opening()
    yield envelope.last(call.choices[0], "")
    if body.stream_options is not None and body.stream_options.include_usage:
        yield envelope.counts(call.usage())


def openai_logprobs(texts: Sequence[str], logps: Sequence[float], chat: bool) -> Json:
    """Log-probabilities of drawn tokens as OpenAI writes them."""
    if not chat:
        return {"tokens": list(texts), "token_logprobs": list(logps), "top_logprobs": None}
    content = [
        {"token": text, "logprob": logp, "bytes": list(text.encode()), "top_logprobs": []}
        for text, logp in zip(texts, logps, strict=True)
    ]
    return {"content": content}
