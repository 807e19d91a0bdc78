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
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from threading import Condition
from typing import Any

from assay.agents.gateway import AgentCall, Gateway, OpenEpisode, openai_logprobs
from assay.agents.protocol import FinishedCompletion, finished_completion, refusal
from assay.data.conversation import dump_messages
from assay.data.episode import AGENT, Completion, Ended, Reward, Turn, common, row_values, tokens_of
from assay.data.files import canonical_json, sha256_text
from assay.data.renderings.rendering import Renderer
from assay.data.renderings.template import RenderingError
from assay.data.row import Message, Row
from assay.errors import InputError
from assay.rl.policy import SampleKey, Sampling, Stop
from assay.tasks.helper_model import HelperModel
from assay.tasks.rendered_dialogue import Decode, with_own_tokens
from assay.tasks.task import Asked, BaseTask, call_syntax
from assay.tasks.user_code import SCHEME, as_value, function_in, place_of

ENDED = "the process that runs agents ended"


@dataclass(eq=False)
class Programs:
    """The host of an agent's processes, started with the first episode and anew if it dies."""

    gateway: Gateway
    settings: Mapping[str, Any]
    """See `agents.host`, without the address."""
    _host: "subprocess.Popen[bytes] | None" = None
    _lock: Any = field(default_factory=threading.Lock)
    """Evaluations of an endpoint start episodes from several threads."""

    @contextmanager
    def running(self) -> Iterator["Programs"]:
        """Until this closes, which ends all of them."""
        try:
            yield self
        finally:
            if self._host is not None and self._host.stdin is not None:
                self._host.stdin.close()
                self._host.wait()

    def start(self, episode: OpenEpisode) -> None:
        """Begin an episode."""
        row, key = episode.row, episode.api_key
        line = {"key": key, "row": row_values(row), "shown": shown_row(row)}
        with self._lock:
            host = self.host()
            assert host.stdin is not None
            try:
                host.stdin.write(json.dumps(line).encode() + b"\n")
                host.stdin.flush()
            except BrokenPipeError:
                self.gateway.finish(key, Reward(None, why=ENDED))

    def host(self) -> "subprocess.Popen[bytes]":
        """The host's process."""
        if self._host is None or self._host.poll() is not None:
            settings = json.dumps({**self.settings, "url": self.gateway.url})
            self._host = subprocess.Popen(
                [sys.executable, "-m", "assay.agents.host", settings],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            threading.Thread(target=self.listen, args=(self._host,), daemon=True).start()
        return self._host

    def listen(self, host: "subprocess.Popen[bytes]") -> None:
        """Pass on what the host says until it ends."""
        assert host.stdout is not None
        for line in host.stdout:
            ending = json.loads(line)
            self.gateway.finish(ending["key"], reward_in(ending))
        for episode in list(self.gateway.episodes.values()):
            self.gateway.finish(episode.api_key, Reward(None, why=ENDED))


def shown_row(row: Row) -> dict[str, Any]:
    """A row as programs of any language read it: OpenAI's messages and tools, and its columns."""
    return {
        **row.columns,
        **row.extra,
        "id": row.id,
        "messages": dump_messages(row.messages),
        "tools": [dict(tool) for tool in row.tools],
        "gold": row.gold,
    }


def reward_in(ending: Mapping[str, Any]) -> Reward:
    """The reward that an agent's last line tells; an abstention where there is none."""
    if ending.get("why"):
        return Reward(None, why=ending["why"])
    line = ending.get("line", "")
    try:
        told = json.loads(line)
        rest = {k: told[k] for k in ("parts", "why", "outcome", "facts") if k in told}
        value = told["reward"]
        if value is None:
            return Reward(None, **{"why": "the agent abstained", **rest})
        return as_value(Reward(float(value), **rest), reward_in)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        problem = f"its last line of output is no reward: {line[:80]!r} ({error})"
        return Reward(None, why=f"the agent ended, and {problem}")


@dataclass(eq=False)
class AgentDialogue:
    """One episode of an agent as a `tasks.task.Dialogue`; its reward is the agent's own."""

    row: Row
    programs: Callable[[], Programs]
    """What runs the agent, started when it is first asked for."""
    together: int = 16
    """Episodes at once."""
    key: SampleKey | None = None
    """For the random numbers of helper models."""
    log: list[Message] = field(default_factory=list)
    """Everything that was sent and answered, in order, each message once."""
    overflows: int = 0
    _call: AgentCall | None = None

    @cached_property
    def episode(self) -> OpenEpisode:
        """The episode in the gateway; asking for it starts the agent."""
        episode = self.gateway.open(self.row, self.key or SampleKey(0, self.row.id, 0))
        self.programs().start(episode)
        return episode

    @property
    def gateway(self) -> Gateway:
        """Where its calls come in."""
        return self.programs().gateway

    def begin(self, key: SampleKey) -> None:
        """Start the agent."""
        self.key = key
        _ = self.episode

    def waits(self) -> bool:
        """Whether the agent is neither at its end nor waits for an answer."""
        return self._call is None and not self.episode.waiting and self.episode.outcome is None

    def call(self) -> AgentCall | None:
        """The call that is to be answered next, for which this waits; None at the end."""
        episode = self.episode
        with self.gateway.news:
            while self._call is None:
                if episode.waiting:
                    self._call = min(episode.waiting, key=lambda call: call.name)
                    episode.waiting.remove(self._call)
                elif episode.outcome is not None:
                    return None
                else:
                    self.gateway.news.wait(1.0)  # so that Ctrl-C is heard
            if self._call.done.done():  # dropped at the agent's end
                self._call = None
                return None
        return self._call

    def asks(self) -> Asked | None:
        """See `Dialogue.asks`. What a model that reads messages cannot do is refused."""
        while (call := self.call()) is not None:
            if call.prompt is None and not call.logprobs:
                return Asked(call.messages, call.tools)
            wrong = "logprobs" if call.prompt is None else "prompt"
            self.refuse(refusal(f"{wrong}: this model answers chats, and tells texts", wrong))
        return None

    def hears(self, text: str, ended: Ended) -> None:
        """Answer the call with what was written; of several choices, one of them."""
        call = self._call
        assert call is not None, "an answer without a call"
        self.answer(call, self.choice(call, text, ended))

    def choice(self, call: AgentCall, text: str, ended: Ended) -> FinishedCompletion:
        """A text as a choice; its calls have ids that follow from the request."""
        syntax = call_syntax() if call.tools else None
        one = finished_completion(text, call.stops, ended == "stop", syntax)
        at = len(call.choices)
        named = (
            replace(each, id=f"call_{sha256_text(f'{call.name} {at} {number}')[:24]}")
            for number, each in enumerate(one.calls)
        )
        return replace(one, calls=tuple(named))

    def answer(self, call: AgentCall, choice: FinishedCompletion) -> None:
        """Add a choice to a call, which is answered when it has all."""
        if not call.choices:
            self.log += fresh(self.log, call.messages)
        call.choices.append(choice)
        self.log.append(Message("assistant", choice.content, choice.calls))
        if len(call.choices) == call.count:
            self._call = None
            if not call.done.done():
                call.done.set_result(None)

    def refuse(self, error: Exception) -> None:
        """Answer the call with an error; the agent goes on as it likes."""
        call, self._call = self._call, None
        if call is not None and not call.done.done():
            call.done.set_exception(error)

    def skips(self) -> bool:
        """Tell the agent that its context is too long; it goes on without this answer."""
        self.overflows += 1
        problem = "the messages are longer than the model's context"
        self.refuse(refusal(problem, "messages", code="context_length_exceeded"))
        return True

    @cached_property
    def reward(self) -> Reward:
        """What the agent said that the episode earned; an abstention where it went wrong. Asking
        for it closes the episode."""
        episode = self.episode
        self.gateway.close(episode)
        if episode.late:
            return Reward(None, why=f"the agent called {episode.late} times after its end")
        return episode.outcome or Reward(None, why="the agent ended without a reward")

    @property
    def messages(self) -> tuple[Message, ...]:
        """See `Dialogue.messages`: the log without the row's prompt."""
        prompt = self.row.prompt
        start = len(prompt) if tuple(self.log[: len(prompt)]) == prompt else 0
        return tuple(self.log[start:])


def fresh(log: Sequence[Message], messages: Sequence[Message]) -> list[Message]:
    """The messages of a call that are not yet in the log, where it goes on from its end; all that
    follow the longest common beginning otherwise."""
    known = [canonical_json(dump_messages((each,))) for each in log]
    sent = [canonical_json(dump_messages((each,))) for each in messages]
    return list(messages[common(known, sent) :])


@dataclass
class AgentEnvironment:
    """An agent's episode in tokens, a `rollout.episodes.Environment`."""

    dialogue: AgentDialogue
    renderer: Renderer
    decode: Decode
    turns: list[tuple[str, Turn]] = field(default_factory=list)
    """The name and the turn of each call, as they were answered."""
    _next: tuple[int, ...] | None = None

    def begin(self, key: SampleKey) -> None:
        """Start the agent."""
        self.dialogue.begin(key)

    @property
    def together(self) -> int:
        """Episodes at once."""
        return self.dialogue.together

    @property
    def news(self) -> Condition:
        """Is notified when an agent may have stopped waiting."""
        return self.dialogue.gateway.news

    @property
    def requests(self) -> int:
        """How many the agent has sent."""
        return self.dialogue.episode.made.total()

    def waits(self) -> bool:
        """Whether `context` would have to wait."""
        return self._next is None and self.dialogue.waits()

    def context(self) -> tuple[int, ...] | None:
        """The tokens of the agent's next request; None when it has ended. What cannot be rendered
        is refused, which the agent hears."""
        while self._next is None:
            call = self.dialogue.call()
            if call is None:
                return None
            try:
                self._next = self.tokens_of(call)
            except (RenderingError, InputError) as error:
                self.dialogue.refuse(refusal(str(error), "messages"))
        return self._next

    @property
    def name(self) -> str:
        """The name of the turn that is sampled next, for its random numbers."""
        call = self.dialogue.call()
        return "" if call is None else f"{call.name}/{len(call.choices)}"

    def sampling(self, sampling: Sampling) -> Sampling:
        """The settings of the next turn: a request may end it earlier."""
        call = self.dialogue.call()
        if call is None:
            return sampling
        most = min(sampling.max_tokens, call.max_tokens or sampling.max_tokens)
        stop = sampling.stop
        if call.stops:
            strings = (*(stop.strings if stop else ()), *call.stops)
            stop = Stop(strings, self.decode)
        return replace(sampling, max_tokens=most, stop=stop)

    def act(self, turn: Turn) -> None:
        """Answer the request with the turn."""
        call = self.dialogue.call()
        self.turns.append((self.name, turn))
        context, self._next = self._next, None
        if call is None or context is None:
            return
        choice = self.dialogue.choice(call, self.decode(turn.actions), turn.ended)
        if call.logprobs and turn.behaviour_logps is not None:
            texts = [self.decode((token,)) for token in turn.actions]
            logprobs = openai_logprobs(texts, turn.behaviour_logps, call.prompt is None)
            choice = replace(choice, logprobs=logprobs)
        call.tokens[0] = len(context)
        call.tokens[1] += len(turn.actions)
        self.dialogue.answer(call, choice)

    def skips(self) -> bool:
        """Refuse a request that is too long."""
        self._next = None
        return self.dialogue.skips()

    @property
    def reward(self) -> Reward:
        """The agent's own."""
        return self.dialogue.reward

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
            "context" if self.dialogue.overflows else ended,
            self.dialogue.messages,
            self.dialogue.reward,
        )

    def tokens_of(self, call: AgentCall) -> tuple[int, ...]:
        """The rendered request, with the policy's own tokens where they read the same."""
        if call.prompt is not None:
            return self.bare_tokens(call.prompt)
        rendered = self.renderer.rendered_prompt(call.messages, call.tools)

        def turns(index: int, before: Sequence[int]) -> list[Turn]:
            """The turn that was sampled just there before any other that reads the same."""
            return sorted((t for _, t in self.turns), key=lambda t: t.context != tuple(before))

        return with_own_tokens(self.renderer.tokenizer, rendered, turns)

    def bare_tokens(self, prompt: str | tuple[int, ...]) -> tuple[int, ...]:
        """The tokens of a prompt without messages; one that goes on from an earlier turn keeps that
        turn's."""
        if not isinstance(prompt, str):
            return prompt
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


def agent_reward(row: Row, completion: Completion) -> Reward:
    """What the agent said that its episode earned."""
    return completion.earned or Reward(None, why="no agent ran this episode")


@dataclass(eq=False)
class Agent:
    """The agent of an experiment."""

    settings: Mapping[str, Any]
    """See `agents.host`, without the address."""
    about: Mapping[str, Any]
    """Its table."""
    concurrency: int
    helpers: Callable[[], Mapping[str, HelperModel]] = dict
    note: Callable[[str], None] = lambda line: None
    _open: ExitStack = field(default_factory=ExitStack)

    @cached_property
    def _programs(self) -> Programs:
        gateway = self._open.enter_context(Gateway(self.helpers(), self.note).up())
        return self._open.enter_context(Programs(gateway, self.settings).running())

    @property
    def record(self) -> dict[str, Any]:
        """What the manifest says of it: its command or function, and its files' fingerprints."""
        return {**self.about, "files": agent_fingerprint(self.settings)}

    def dialogue(self, row: Row) -> AgentDialogue:
        """The episode of a row, not yet begun."""
        return AgentDialogue(row, lambda: self._programs, self.concurrency)

    def close(self) -> None:
        """End the processes and the gateway."""
        self._open.close()
        self.__dict__.pop("_programs", None)


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
    own.agent = Agent(
        agent_settings(agent, root, task),
        agent.model_dump(mode="json", exclude_none=True),
        agent.concurrency,
        helpers,
        note,
    )
    own.dialogue = own.agent.dialogue
    own.rewards = {**task.rewards, AGENT: agent_reward}
    return own
