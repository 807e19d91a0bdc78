"""The policy behind OpenAI's interface on loopback, for agents: one API key is one episode.

A request waits here as a `Call` until whoever samples has taken it, and is answered then. What is
sampled, and how, is not this file's: a request may stop an answer earlier, nothing else. Settings
that it asks for otherwise (temperature, top_p, another model) are noted once by name. Helper models
stand behind the same address by their names; what they are asked is no turn. A name that is neither
is the policy's, which is noted; in an episode that has asked for the policy by its name it is no
model's, so that no judge is answered by what it judges.
"""

import asyncio
import json
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from subprocess import PIPE, Popen
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from assay.agents.http import HOST, application, model_list, read_body, streamed, up
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
from assay.data.episode import Reward, row_values
from assay.data.files import canonical_json, sha256_text
from assay.data.row import Message, Row
from assay.errors import InputError
from assay.rl.policy import SampleKey
from assay.rollout.episodes import TURN
from assay.tasks.helper_model import HelperModel, Question
from assay.tasks.user_code import as_value

ENDED = "the process that runs agents ended"
POLICY = "policy"
"""The name under which the policy answers."""
RULED = ("temperature", "top_p", "top_k", "seed", "stop_token_ids", "skip_special_tokens")
RULED += ("tool_choice", "model")
"""What the stage or the evaluation sets, whatever a request asks for."""
TAKEN = ("n", "logprobs", "tool_choice")
"""What `serve` refuses and is done here, or noted."""
GATEWAY_REFUSED = {name: values for name, values in REFUSED.items() if name not in TAKEN}
RETRY = "x-stainless-retry-count"
"""OpenAI's clients say here how often they have sent a request before."""


@dataclass(eq=False)
class AgentCall:
    """One request of an agent, until all its choices are sampled."""

    request: ChatRequest | CompletionRequest
    messages: tuple[Message, ...]
    tools: tuple[Any, ...]
    name: str
    """A fingerprint of what is asked, and which of the equal calls of its episode it is."""
    choices: list[FinishedCompletion] = field(default_factory=list)
    read: int = 0
    """Tokens, as `drawn`."""
    drawn: int = 0
    done: "Future[None]" = field(default_factory=Future)

    @property
    def logprobs(self) -> bool:
        """Whether its answer tells log-probabilities; 0 asks for those of the drawn tokens."""
        return self.request.logprobs is not None and self.request.logprobs is not False

    def end(self, error: Exception | None = None) -> None:
        """Answer it with its choices or with an error; the first answer stands."""
        if not self.done.done():
            self.done.set_exception(error) if error else self.done.set_result(None)


@dataclass(eq=False)
class OpenEpisode:
    """What the gateway knows of an episode until it is closed."""

    row: Row
    key: SampleKey = SampleKey(0, "", 0)
    """For the random numbers of helper models."""
    api_key: str = ""
    """"" before it is begun."""
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

    def pending(self) -> list[AgentCall]:
        """Its calls that are not answered yet."""
        return [call for call in self.calls if not call.done.done()]

    def named(self, fingerprint: str) -> str:
        """The name of one more call that asks this."""
        self.made[fingerprint] += 1
        return f"{fingerprint}.{self.made[fingerprint] - 1}"


@dataclass(eq=False)
class Agent:
    """The agent of an experiment: the host of its processes, its open episodes, and the models
    behind the address that they ask. All of it starts with the first episode; a host that died
    starts anew."""

    settings: Mapping[str, Any]
    """See `agents.host`, without the address."""
    together: int = 16
    """Episodes at once."""
    record: Mapping[str, Any] = field(default_factory=dict)
    """What the manifest says of it: its table, and its files' fingerprints."""
    helpers: Callable[[], Mapping[str, HelperModel]] = dict
    """Models that answer under their names."""
    note: Callable[[str], None] = lambda line: None
    """Is told once of each setting that a request asks for and does not get."""
    episodes: dict[str, OpenEpisode] = field(default_factory=dict)
    """By API key."""
    news: threading.Condition = field(default_factory=threading.Condition)
    """Is notified when an agent may have stopped waiting."""
    _noted: set[str] = field(default_factory=set)
    _host: "Popen[bytes] | None" = None
    _open: ExitStack = field(default_factory=ExitStack)
    _starting: Any = field(default_factory=threading.Lock)
    """Evaluations of an endpoint start episodes from several threads."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of all models here."""
        return (POLICY, *self.helpers())

    @cached_property
    def url(self) -> str:
        """The address on loopback, which answers once this is asked for."""
        port = self._open.enter_context(up(application(self.models, self.reply)))
        return f"http://{HOST}:{port}/v1"

    def start(self, episode: OpenEpisode) -> None:
        """Begin an episode."""
        line = {"key": episode.api_key, "row": row_values(episode.row)}
        with self._starting:
            if self._host is None or self._host.poll() is not None:
                if self._host is not None and self._host.stdin is not None:
                    with suppress(BrokenPipeError):
                        self._host.stdin.close()
                self._host = self.host()
            self.episodes[episode.api_key] = episode
            assert self._host.stdin is not None
            try:
                self._host.stdin.write(json.dumps(line).encode() + b"\n")
                self._host.stdin.flush()
            except BrokenPipeError:
                self.finish(episode.api_key, Reward(None, why=ENDED))

    def host(self) -> "Popen[bytes]":
        """A process that starts agents until its input ends."""
        settings = json.dumps({**self.settings, "url": self.url})
        command = [sys.executable, "-m", "assay.agents.host", settings]
        host = Popen(command, stdin=PIPE, stdout=PIPE, start_new_session=True)
        assert host.stdin is not None
        self._open.callback(host.wait)
        self._open.callback(host.stdin.close)
        threading.Thread(target=self.listen, args=(host.stdout,), daemon=True).start()
        return host

    def listen(self, output: Any) -> None:
        """Pass on what a host says until it ends."""
        for line in output:
            told = json.loads(line)
            self.finish(told["key"], reward_in(told["line"]))
        for api_key in list(self.episodes):
            self.finish(api_key, Reward(None, why=ENDED))

    def close(self) -> None:
        """End the processes and what answers them."""
        for episode in list(self.episodes.values()):
            self.dismiss(episode)
        self._open.close()
        self.__dict__.pop("url", None)

    def finish(self, api_key: str, outcome: Reward) -> None:
        """The agent has ended; the first outcome stands."""
        with self.news:
            episode = self.episodes.get(api_key)
            if episode is not None and episode.outcome is None:
                left = self._drop(episode)
                if left and outcome.value is not None:
                    why = f"ended while {left} of its calls waited for their answers"
                    outcome = Reward(None, why=why)
                episode.outcome = outcome
            self.news.notify_all()

    def dismiss(self, episode: OpenEpisode) -> None:
        """Refuse what still comes with its key."""
        with self.news:
            self._drop(episode)
            self.episodes.pop(episode.api_key, None)

    def _drop(self, episode: OpenEpisode) -> int:
        left = episode.pending()
        for call in left:
            call.end(refusal("the episode is over", code="over", status=410))
        return len(left)

    async def models(self, request: Request) -> Response:
        """`GET /v1/models`."""
        return model_list(*self.names)

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
        if body.model in self.helpers():
            call = await asyncio.to_thread(self.ask_helper, episode, body)
        else:
            call = self.submit(episode, body, request.headers.get(RETRY, "0") != "0")
            await asyncio.shield(asyncio.wrap_future(call.done))
        envelope = Envelope(kind is ChatRequest, body.model)
        if body.stream:
            return streamed(pieces(envelope, call))
        return JSONResponse(envelope.whole(call.choices, call.read, call.drawn))

    def submit(self, episode: OpenEpisode, body: Any, again: bool) -> AgentCall:
        """A call that waits for the policy; of one that a client sends again, the first."""
        call = made_call(body)
        with self.news:
            episode.by_name |= body.model == POLICY
            if body.model != POLICY and episode.by_name:
                problem = f"no model {body.model!r}: there are {', '.join(self.names)}"
                raise refusal(problem, "model", code="model_not_found", status=404)
            self.note_settings(body)
            alike = [each for each in episode.calls if each.name.split(".")[0] == call.name]
            if again and alike:
                return alike[-1]
            call.name = episode.named(call.name)
            episode.calls.append(call)
            self.news.notify_all()
        return call

    def note_settings(self, body: RequestParameters) -> None:
        """Tell of what a request asks for and does not get."""
        granted = (None, "auto", "none", *self.names)
        for name in RULED:
            value = getattr(body, name, None)
            setting = f"{name} = {value!r}"
            once = setting if name == "model" else name
            if value not in granted and value is not False and once not in self._noted:
                self._noted.add(once)
                self.note(f"the agent asks for {setting}; the experiment's settings rule")

    def ask_helper(self, episode: OpenEpisode, body: Any) -> AgentCall:
        """The answer of a helper model, drawn by the episode's key. Raises a refusal (502)."""
        model, call = self.helpers()[body.model], made_call(body)
        if body.prompt is not None or call.tools or call.logprobs or (body.n or 1) > 1:
            problem = f"{body.model} gives one answer to a chat, without tools and logprobs"
            raise refusal(problem, "model")
        with self.news:
            self.note_settings(body)
            call.name = episode.named(call.name)
            self.news.notify_all()
        key = replace(episode.key, row=f"{episode.key.row}{TURN}{call.name}")
        most = min(model.sampling.max_tokens, body.limit or 1 << 30)
        sampling = replace(model.sampling, max_tokens=most)
        (answer,) = model.answer([Question(call.messages, sampling, key)])
        if answer.failure:
            raise refusal(answer.failure, code="helper_failed", status=502)
        ended = answer.ended == "stop"
        call.choices.append(finished_completion(answer.text, body.stops, ended, None))
        call.read, call.drawn = answer.prompt_tokens or 0, answer.completion_tokens or 0
        return call


def reward_in(line: str) -> Reward:
    """The reward that an agent's last line tells; an abstention where there is none."""
    try:
        told = json.loads(line)
        value = None if told["reward"] is None else float(told["reward"])
        rest: Any = {k: told[k] for k in ("parts", "why", "outcome", "facts") if k in told}
        why = "the agent abstained" if value is None else ""
        return as_value(Reward(value, **{"why": why, **rest}), reward_in)
    except (InputError, ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        problem = f"its last line of output is no reward: {line[:80]!r} ({error})"
        return Reward(None, why=f"the agent ended, and {problem}")


def made_call(request: ChatRequest | CompletionRequest) -> AgentCall:
    """A request as a call named by what it asks. Raises a refusal."""
    if request.stream and (request.n or 1) > 1:
        raise refusal("n: a stream has one choice", "n")
    if request.logprobs is not True and (request.logprobs or 0) > 1:
        raise refusal("logprobs: those of the drawn tokens alone are known", "logprobs")
    if isinstance(request, ChatRequest):
        messages, tools = read_chat(request)
        content: Any = [dump_messages(messages), list(tools)]
    else:
        messages, tools, content = (), (), request.prompt
    name = sha256_text(canonical_json([content, request.limit, list(request.stops)]))[:16]
    return AgentCall(request, messages, tools, name)


async def pieces(envelope: Envelope, call: AgentCall) -> AsyncIterator[Json]:
    """The objects of a streamed answer."""
    if envelope.chat:
        yield envelope.piece("", role="assistant")
    yield envelope.last(call.choices[0], "")
    if call.request.counted:
        yield envelope.counts(call.read, call.drawn)


def openai_logprobs(texts: Sequence[str], logps: Sequence[float], chat: bool) -> Json:
    """Log-probabilities of drawn tokens as OpenAI writes them."""
    if not chat:
        return {"tokens": list(texts), "token_logprobs": list(logps), "top_logprobs": None}
    content = [
        {"token": text, "logprob": logp, "bytes": list(text.encode()), "top_logprobs": []}
        for text, logp in zip(texts, logps, strict=True)
    ]
    return {"content": content}
