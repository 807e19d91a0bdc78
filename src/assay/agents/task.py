"""A task whose episodes are an agent's: the agent asks, and says what the episode earned.

An agent is a function of the user's file or any program. What one says at its end becomes its
episode's reward in the gateway; one that raises, hangs or dies is an abstention that says why. The
gateway and the agent's processes start with the first episode, and end with the interpreter or
when the agent is closed.

What its program sends is what the policy reads next. Messages are rendered and what was sampled is
decoded as in any dialogue (`RenderedDialogue`); the policy's own earlier answers keep their tokens
wherever they stand in what is sent, in any branch, where the rendering reads the same. A call is
named by its content, not by when it came, so that its random numbers, and the order of an
episode's turns, are the same in every run.
"""

import copy
import json
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

from assay.agents.gateway import Agent, AgentCall, OpenEpisode, openai_logprobs
from assay.agents.protocol import Json, finished_completion, refusal
from assay.data.conversation import dump_messages
from assay.data.episode import AGENT, Completion, Ended, Reward, Turn, common, tokens_of
from assay.data.files import canonical_json, sha256_text
from assay.data.renderings.rendering import Renderer
from assay.data.renderings.template import RenderingError
from assay.data.row import Message, Row
from assay.errors import InputError
from assay.rl.policy import SampleKey, Sampling, Stop
from assay.tasks.helper_model import HelperModel
from assay.tasks.rendered_dialogue import Decode, with_own_tokens
from assay.tasks.task import Asked, BaseTask, call_syntax
from assay.tasks.user_code import SCHEME, function_in, place_of


@dataclass(eq=False)
class AgentEpisode(OpenEpisode):
    """One episode of an agent as a `tasks.task.Dialogue`; in tokens, once it has a renderer, a
    `rollout.episodes.SlowEnvironment`. Its reward is the agent's own."""

    agent: Agent = field(kw_only=True)
    log: list[Message] = field(default_factory=list)
    """Everything that was sent and answered, in order, each message once."""
    turns: list[tuple[str, Turn]] = field(default_factory=list)
    """The name and the turn of each call, as they were answered."""
    overflows: int = 0
    renderer: Renderer = field(init=False)
    decode: Decode = field(init=False)
    _call: AgentCall | None = None
    _next: tuple[int, ...] | None = None

    def in_tokens(self, renderer: Renderer, decode: Decode) -> Self:
        """The same episode for a policy that reads tokens."""
        self.renderer, self.decode = renderer, decode
        return self

    def begin(self, key: SampleKey) -> None:
        """Start the agent."""
        self.key, self.api_key = key, f"assay-{secrets.token_urlsafe(24)}"
        self.agent.start(self)

    def waits(self) -> bool:
        """Whether the agent is neither at its end nor waits for an answer."""
        return not self.pending() and self.outcome is None

    def call(self) -> AgentCall | None:
        """The call that is to be answered next, for which this waits; None at the end."""
        if not self.api_key:
            self.begin(SampleKey(0, self.row.id, 0))
        with self.agent.news:
            while self.waits():
                self.agent.news.wait(1.0)  # so that Ctrl-C is heard
            if self._call is None or self._call.done.done():
                self._call = min(self.pending(), key=lambda call: call.name, default=None)
        return self._call

    @property
    def asked(self) -> AgentCall:
        """The call that is answered now."""
        assert self._call is not None, "an answer without a call"
        return self._call

    def asks(self) -> Asked | None:
        """See `Dialogue.asks`. What a model that reads messages cannot do is refused."""
        while (call := self.call()) is not None:
            if call.request.prompt is None and not call.logprobs:
                return Asked(call.messages, call.tools)
            wrong = "logprobs" if call.request.prompt is None else "prompt"
            call.end(refusal(f"{wrong}: this model answers chats, and tells texts", wrong))
        return None

    def context(self) -> tuple[int, ...] | None:
        """The tokens of the agent's next request; None when it has ended. What cannot be rendered
        is refused, which the agent hears."""
        while self._next is None and (call := self.call()) is not None:
            try:
                self._next = self.tokens_of(call)
            except (RenderingError, InputError) as error:
                call.end(refusal(str(error), "messages"))
        return self._next

    @property
    def name(self) -> str:
        """The name of the turn that is sampled next, for its random numbers."""
        return f"{self.asked.name}/{len(self.asked.choices)}"

    def sampling(self, sampling: Sampling) -> Sampling:
        """The settings of the next turn: a request may end it earlier."""
        asked, stop = self.asked.request, sampling.stop
        if asked.stops:
            stop = Stop((*(stop.strings if stop else ()), *asked.stops), self.decode)
        most = min(sampling.max_tokens, asked.limit or sampling.max_tokens)
        return replace(sampling, max_tokens=most, stop=stop)

    def act(self, turn: Turn) -> None:
        """Answer the request with the turn."""
        self.turns.append((self.name, turn))
        call, self._next, logprobs = self.asked, None, None
        if call.logprobs and turn.behaviour_logps is not None:
            texts = [self.decode((token,)) for token in turn.actions]
            logprobs = openai_logprobs(texts, turn.behaviour_logps, call.request.prompt is None)
        call.read = len(tokens_of(turn.context))
        call.drawn += len(turn.actions)
        self.hears(self.decode(turn.actions), turn.ended, logprobs)

    def hears(self, text: str, ended: Ended, logprobs: Json | None = None) -> None:
        """Add a choice to the call, which is answered when it has all. The ids of a choice's calls
        follow from the request."""
        call, at = self.asked, len(self.asked.choices)
        syntax = call_syntax() if call.tools else None
        one = finished_completion(text, call.request.stops, ended == "stop", syntax)
        named = tuple(
            replace(each, id=f"call_{sha256_text(f'{call.name} {at} {number}')[:24]}")
            for number, each in enumerate(one.calls)
        )
        if not call.choices:
            self.log += fresh(self.log, call.messages)
        call.choices.append(replace(one, calls=named, logprobs=logprobs))
        self.log.append(Message("assistant", one.content, named))
        if len(call.choices) == (call.request.n or 1):
            call.end()

    def skips(self) -> bool:
        """Tell the agent that its context is too long; it goes on without this answer."""
        self.overflows += 1
        self._next = None
        problem = "the messages are longer than the model's context"
        self.asked.end(refusal(problem, "messages", code="context_length_exceeded"))
        return True

    @cached_property
    def reward(self) -> Reward:
        """What the agent said that the episode earned; an abstention where it went wrong. Asking
        for it closes the episode."""
        self.agent.dismiss(self)
        if self.late:
            return Reward(None, why=f"the agent called {self.late} times after its end")
        return self.outcome or Reward(None, why="the agent ended without a reward")

    @property
    def messages(self) -> tuple[Message, ...]:
        """See `Dialogue.messages`: the log without the row's prompt."""
        prompt = self.row.prompt
        start = len(prompt) if tuple(self.log[: len(prompt)]) == prompt else 0
        return tuple(self.log[start:])

    def ordered(self) -> tuple[Turn, ...]:
        """The turns, in an order that does not depend on when calls came."""
        named = sorted(self.turns, key=lambda each: (len(tokens_of(each[1].context)), each[0]))
        return tuple(turn for _, turn in named)

    def completion(self, ended: Ended) -> Completion:
        """The episode as records and pages see it."""
        turns = self.ordered()
        return Completion(
            "\n".join(self.decode(turn.actions) for turn in turns),
            tuple(token for turn in turns for token in turn.actions),
            "context" if self.overflows else ended,
            self.messages,
            self.reward,
        )

    def tokens_of(self, call: AgentCall) -> tuple[int, ...]:
        """The rendered request, with the policy's own tokens where they read the same."""
        if call.request.prompt is not None:
            return self.bare_tokens(call.request.prompt)
        rendered = self.renderer.rendered_prompt(call.messages, call.tools)

        def turns(index: int, before: Sequence[int]) -> list[Turn]:
            """The turn that was sampled just there before any other that reads the same."""
            return sorted((t for _, t in self.turns), key=lambda t: t.context != tuple(before))

        return with_own_tokens(self.renderer.tokenizer, rendered, turns)

    def bare_tokens(self, prompt: str | list[int]) -> tuple[int, ...]:
        """The tokens of a prompt without messages; one that goes on from an earlier turn keeps that
        turn's."""
        if not isinstance(prompt, str):
            return tuple(prompt)
        known: tuple[int, ...] = ()
        for _, turn in self.turns:
            both = (*tokens_of(turn.context), *turn.actions)
            if len(both) > len(known) and prompt.startswith(self.text(both)):
                known = both
        rest = prompt[len(self.text(known)) :]
        return (*known, *self.renderer.tokenizer.encode(rest, add_special_tokens=False))

    def text(self, tokens: Sequence[int]) -> str:
        """The tokens as text, control tokens included."""
        return self.renderer.tokenizer.decode(list(tokens), skip_special_tokens=False)


def fresh(log: Sequence[Message], messages: Sequence[Message]) -> list[Message]:
    """The messages of a call that are not yet in the log, where it goes on from its end; all that
    follow the longest common beginning otherwise."""
    known = [canonical_json(dump_messages((each,))) for each in log]
    sent = [canonical_json(dump_messages((each,))) for each in messages]
    return list(messages[common(known, sent) :])


def agent_reward(row: Row, completion: Completion) -> Reward:
    """What the agent said that its episode earned."""
    return completion.earned or Reward(None, why="no agent ran this episode")


def agent_settings(agent: Any, root: Path, task: BaseTask) -> dict[str, Any]:
    """The settings of the host of an `[agent]` table of a task. Raises InputError for a function
    that is not there or takes other arguments, and for a program that is not there."""
    made = {"deadline": agent.deadline, "kept": agent.kept, "folder": str(root.resolve())}
    if agent.command is not None:
        name = agent.command[0]
        if (program := task.programs.get(name)) is not None:
            return made | {"command": [*program(), *agent.command[1:]]}
        if shutil.which(name) is None and not (root / name).is_file():
            problem = f"there is no program {name!r}"
            raise InputError(problem, field="agent.command", fix="install it, or write its path")
        return made | {"command": list(agent.command)}
    if not agent.function.startswith(SCHEME):
        fix = f"write {SCHEME}FILE.py:FUNCTION"
        raise InputError(f"{agent.function!r} names no file", field="agent.function", fix=fix)
    function, loaded = function_in(agent.function, root)
    code = getattr(function, "__code__", None)
    if code is None or code.co_argcount != 2:
        problem = f"{agent.function!r} does not take (row, client)"
        raise InputError(problem, file=loaded.path, fix="async def solve(row, client) -> float")
    return made | {"function": place_of(function)}


def agent_fingerprint(settings: Mapping[str, Any]) -> dict[str, str]:
    """The sha256 of an agent's source by file: what a function's file imports beside it, or the
    arguments of a command that are files."""
    if "function" in settings:
        return json.loads(settings["function"])[2]
    folder = Path(settings["folder"])
    files = [folder / each for each in settings["command"] if (folder / each).is_file()]
    return {each.name: sha256_text(each.read_text("utf-8", "replace")) for each in files}


def with_agent(
    task: BaseTask,
    agent: Any,
    root: Path,
    helpers: Callable[[], Mapping[str, HelperModel]] = dict,
    note: Callable[[str], None] = lambda line: None,
) -> BaseTask:
    """The task with the episodes and the reward of an `[agent]` table; itself where there is none.

    Raises InputError.
    """
    if agent is None:
        return task
    own: Any = copy.copy(task)
    settings = agent_settings(agent, root, task)
    table = agent.model_dump(mode="json", exclude_none=True)
    record = {**table, "files": agent_fingerprint(settings)}
    own.agent = Agent(settings, agent.concurrency, record, helpers, note)
    own.dialogue = partial(AgentEpisode, agent=own.agent)
    own.rewards = {**task.rewards, AGENT: agent_reward}
    return own
