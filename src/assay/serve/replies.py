"""Builds answers in OpenAI's format: complete ones, chunks of a stream, errors.

The chunks of a stream add up to the complete answer. Knows no HTTP.
"""

import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from assay.data.episode import Turn
from assay.data.row import ToolCall
from assay.rollout.engines.cpu.batcher import Job
from assay.serve.requests import THOUGHT, Asking, Constraint
from assay.tasks.task import CallSyntax

UNFINISHED = "\ufffd"
"""The decoded form of a character with missing bytes."""


@dataclass(frozen=True)
class Speech:
    """Decodes the tokens of one request."""

    tokenizer: Any
    end_tokens: frozenset[int]
    stops: tuple[str, ...] = ()
    skip_special: bool = False

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without those that end an answer."""
        kept = [token for token in tokens if token not in self.end_tokens]
        return self.tokenizer.decode(kept, skip_special_tokens=self.skip_special)

    def text(self, tokens: Sequence[int]) -> tuple[str, bool]:
        """The text of a finished answer, and whether a stop text ended it."""
        whole = self.decode(tokens)
        found = self.stop_in(whole, 0)
        return (whole, False) if found is None else (whole[:found], True)

    def stop_in(self, text: str, start: int) -> int | None:
        """The start of the first stop text that ends behind `start`."""
        longest = max(map(len, self.stops), default=0)
        found = [text.find(stop, max(0, start - longest + 1)) for stop in self.stops]
        return min((place for place in found if place >= 0), default=None)


class Growing:
    """The text of one answer while its tokens come."""

    def __init__(self, speech: Speech):
        self.speech = speech
        self.text = ""
        """Everything that is certain, up to a stop text."""
        self.stopped = False
        self._tokens: list[int] = []
        self._before = 0
        self._read = 0

    def add(self, token: int) -> None:
        """Take the next token."""
        self._tokens.append(token)
        # A window is decoded, not the token alone: some tokenizers write a word's space by what
        # comes before it.
        old = self.speech.decode(self._tokens[self._before : self._read])
        new = self.speech.decode(self._tokens[self._before :])
        if len(new) <= len(old) or new.endswith(UNFINISHED):
            return
        self._before, self._read = self._read, len(self._tokens)
        start = len(self.text)
        self.text += new[len(old) :]
        if (found := self.speech.stop_in(self.text, start)) is not None:
            self.text, self.stopped = self.text[:found], True

    def certain(self) -> str:
        """The text without an end that a stop text may begin with."""
        if self.stopped:
            return self.text
        held = max((overlap(self.text, stop) for stop in self.speech.stops), default=0)
        return self.text[: len(self.text) - held]


def overlap(text: str, word: str) -> int:
    """The number of characters at the end of `text` that begin `word`, at most all but one."""
    most = min(len(text), len(word) - 1)
    return next((n for n in range(most, 0, -1) if text.endswith(word[:n])), 0)


def content_and_calls(text: str, syntax: CallSyntax) -> tuple[str, tuple[ToolCall, ...]]:
    """The content and the calls of an answer.

    If the parser fails there are no calls and the text stays complete, so that the client sees what
    the model wrote.
    """
    calls = syntax.parse(text)
    if not calls or not all(sendable(call.name) for call in calls):
        return text, ()
    outside, position = [], 0
    thought = text.rfind(THOUGHT)  # in which nothing is called
    while (start := text.find(syntax.opening, max(position, thought))) >= 0:
        outside.append(text[position:start])
        position = text.index(syntax.closing, start) + len(syntax.closing)
    outside.append(text[position:])
    return outside[0].rstrip() + "".join(outside[1:]).rstrip(), calls


def sendable(text: str) -> bool:
    """Whether a text can be sent: JSON that a model wrote may hold half a surrogate pair."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def before_calls(text: str, syntax: CallSyntax) -> str:
    """The beginning of a growing text that no call and no space before one can take back."""
    start = text.find(syntax.opening)
    kept = text[:start] if start >= 0 else text[: len(text) - overlap(text, syntax.opening)]
    return kept.rstrip()


Json = dict[str, Any]


@dataclass(eq=False)
class Choice:
    """One completion under way."""

    index: int
    job: Job
    growing: Growing
    prompt: int = 0
    """The number of the prompt in the request."""
    tell: Callable[["Choice"], None] | None = None
    """Is called by the sampling thread whenever the text may have grown."""


@dataclass(frozen=True)
class Asked:
    """A request made ready."""

    request: Asking
    choices: tuple[Choice, ...]
    speech: Speech
    calls: CallSyntax | None = None
    """Parser of calls in the answer; None if calls are left as text."""
    constraint: Constraint = Constraint()
    """The constraint on the answers."""
    ignored: tuple[str, ...] = ()
    """Parameters without effect."""

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts, each once."""
        return sum({choice.prompt: len(choice.job.context) for choice in self.choices}.values())


@dataclass(frozen=True)
class Answered:
    """One finished completion as text."""

    choice: Choice
    turn: Turn
    text: str
    content: str
    calls: tuple[ToolCall, ...]
    finish: str


def answered(asked: Asked, choice: Choice, turn: Turn) -> Answered:
    """Read what was sampled: text up to a stop text, and calls where tools were given."""
    text, stopped = asked.speech.text(turn.actions)
    content, calls = content_and_calls(text, asked.calls) if asked.calls else (text, ())
    ended = stopped or (turn.actions and turn.actions[-1] in asked.speech.end_tokens)
    finish = "tool_calls" if calls else "stop" if ended else "length"
    return Answered(choice, turn, text, content, calls, finish)


def usage(asked: Asked, turns: Sequence[Turn]) -> Json:
    """Token counts; an end token counts as a token of the completion."""
    prompt, drawn = asked.prompt_tokens, sum(len(turn.actions) for turn in turns)
    return {"prompt_tokens": prompt, "completion_tokens": drawn, "total_tokens": prompt + drawn}


@dataclass(frozen=True)
class Shape:
    """The response format of one of the two endpoints."""

    prefix: str
    whole: str
    piece: str
    choice: Callable[[Asked, Answered], Json]
    """The body of a finished choice."""
    delta: Callable[[str], Json]
    """The body of a streamed piece of text."""
    last: Callable[[Answered, str], Json]
    """The body of a choice's last piece, after the text that was streamed."""


@dataclass(frozen=True)
class Envelope:
    """The common fields of every object of one answer."""

    shape: Shape
    model: str
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, asked: Asked, answers: Sequence[Answered]) -> Json:
        """The answer of a request that is not streamed."""
        choices = [
            {
                "index": one.choice.index,
                **self.shape.choice(asked, one),
                "finish_reason": one.finish,
            }
            for one in answers
        ]
        return {
            **self._around(self.shape.whole, choices),
            "usage": usage(asked, [a.turn for a in answers]),
        }

    def piece(self, index: int, body: Mapping[str, Any], finish: str | None = None) -> Json:
        """One piece of a stream."""
        return self._around(self.shape.piece, [{"index": index, **body, "finish_reason": finish}])

    def counts(self, asked: Asked, turns: Sequence[Turn]) -> Json:
        """The last piece of a stream that was asked to end with its token counts."""
        return {**self._around(self.shape.piece, []), "usage": usage(asked, turns)}

    def _around(self, kind: str, choices: list[Json]) -> Json:
        return {
            "id": f"{self.shape.prefix}-{self.id}",
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }


def _chat_choice(asked: Asked, one: Answered) -> Json:
    message: Json = {"role": "assistant", "content": one.content or (None if one.calls else "")}
    if one.calls:
        message["tool_calls"] = [_call(call) for call in one.calls]
    logprobs = {"content": _chat_logprobs(asked, one)} if _wanted(asked) else None
    return {"message": message, "logprobs": logprobs}


def _chat_last(one: Answered, sent: str) -> Json:
    delta: Json = {"content": one.content[len(sent) :]} if len(one.content) > len(sent) else {}
    if one.calls:
        delta["tool_calls"] = [{"index": i, **_call(call)} for i, call in enumerate(one.calls)]
    return {"delta": delta}


def _call(call: ToolCall) -> Json:
    made = {"name": call.name, "arguments": json_text(dict(call.arguments))}
    return {"id": f"call_{secrets.token_hex(12)}", "type": "function", "function": made}


def json_text(value: Any) -> str:
    """A value as JSON that can be sent: half a surrogate pair stays the escape that it was."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return text if sendable(text) else json.dumps(value, allow_nan=False)


def _completion_choice(asked: Asked, one: Answered) -> Json:
    return {"text": one.text, "logprobs": _token_logprobs(asked, one) if _wanted(asked) else None}


def _wanted(asked: Asked) -> bool:
    value = getattr(asked.request, "logprobs", None)
    return value is not None and value is not False


def _spoken(asked: Asked, one: Answered) -> list[tuple[str, float]]:
    """The tokens of the text with the log-probability of each draw."""
    drawn = zip(one.turn.actions, one.turn.behaviour_logps or (), strict=True)
    ends = asked.speech.end_tokens
    return [(asked.speech.decode([token]), logp) for token, logp in drawn if token not in ends]


def _chat_logprobs(asked: Asked, one: Answered) -> list[Json]:
    return [
        {"token": text, "logprob": logp, "bytes": list(text.encode()), "top_logprobs": []}
        for text, logp in _spoken(asked, one)
    ]


def _token_logprobs(asked: Asked, one: Answered) -> Json:
    spoken = _spoken(asked, one)
    texts = [text for text, _ in spoken]
    offsets = list(accumulate(map(len, texts), initial=0))[:-1]
    logps = [logp for _, logp in spoken]
    return {"tokens": texts, "token_logprobs": logps, "top_logprobs": None, "text_offset": offsets}


CHAT = Shape(
    "chatcmpl",
    "chat.completion",
    "chat.completion.chunk",
    _chat_choice,
    lambda text: {"delta": {"content": text}},
    _chat_last,
)
COMPLETION = Shape(
    "cmpl",
    "text_completion",
    "text_completion",
    _completion_choice,
    lambda text: {"text": text},
    lambda one, sent: {"text": one.text[len(sent) :]},
)


def certain(asked: Asked, choice: Choice) -> str:
    """The part of a growing answer that can be streamed because it is final."""
    text = choice.growing.certain()
    return before_calls(text, asked.calls) if asked.calls else text
