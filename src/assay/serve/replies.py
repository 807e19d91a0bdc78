"""Reads what was sampled as text and calls, and builds answers in OpenAI's format.

The chunks of a stream add up to the complete answer. Knows no HTTP.
"""

import json
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.data.episode import Turn
from assay.data.row import ToolCall
from assay.rollout.engines.cpu.batcher import Job
from assay.tasks.task import CallSyntax

THOUGHT = "</think>"
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
        # Assigned once, because another thread reads it.
        text = self.text + new[len(old) :]
        stop = self.speech.stop_in(text, len(self.text))
        self.text = text[:stop]
        self.stopped = stop is not None

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
    tell: Callable[[], None] | None = None
    """Is called by the sampling thread whenever the text may have grown."""


def hears(choice: Choice, stop_tokens: frozenset[int], token: int) -> bool:
    """Take a token of a choice as it is drawn; True where a stop text or token ends it."""
    if token in stop_tokens:
        return True
    choice.growing.add(token)
    if choice.tell is not None:
        choice.tell()
    return choice.growing.stopped


def certain(choice: Choice, calls: CallSyntax | None) -> str:
    """The part of a growing answer that can be streamed because it is final."""
    text = choice.growing.certain()
    return before_calls(text, calls) if calls else text


@dataclass(frozen=True)
class Answered:
    """One finished completion as text."""

    choice: Choice
    turn: Turn
    content: str
    calls: tuple[ToolCall, ...]
    finish: str


def answered(speech: Speech, syntax: CallSyntax | None, choice: Choice) -> Answered:
    """Read what was sampled: text up to a stop text, and calls where tools were given.

    Raises what sampling raised.
    """
    turn = choice.job.done.result()
    text, stopped = speech.text(turn.actions)
    content, calls = content_and_calls(text, syntax) if syntax else (text, ())
    ended = stopped or (turn.actions and turn.actions[-1] in speech.end_tokens)
    finish = "tool_calls" if calls else "stop" if ended else "length"
    return Answered(choice, turn, content, calls, finish)


def usage(prompt: int, turns: Sequence[Turn]) -> Json:
    """Token counts; an end token counts as a token of the completion."""
    drawn = sum(len(turn.actions) for turn in turns)
    return {"prompt_tokens": prompt, "completion_tokens": drawn, "total_tokens": prompt + drawn}


@dataclass(frozen=True)
class Envelope:
    """Writes the objects of one answer, of a chat or of a completion."""

    chat: bool
    model: str
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, answers: Sequence[Answered], tokens: Json) -> Json:
        """The answer of a request that is not streamed."""
        choices = []
        for one in answers:
            body: Json = {"text": one.content}
            if self.chat:
                content = one.content or (None if one.calls else "")
                body = {"message": {"role": "assistant", "content": content}}
                if one.calls:
                    body["message"]["tool_calls"] = [_call(call) for call in one.calls]
            body |= {"index": one.choice.index, "logprobs": None, "finish_reason": one.finish}
            choices.append(body)
        return {**self._around(choices, whole=True), "usage": tokens}

    def opening(self, index: int) -> Json:
        """The first piece of a streamed chat."""
        return self._piece(index, {"delta": {"role": "assistant", "content": ""}})

    def piece(self, index: int, text: str) -> Json:
        """One piece of streamed text."""
        return self._piece(index, {"delta": {"content": text}} if self.chat else {"text": text})

    def last(self, one: Answered, sent: str) -> Json:
        """The last piece of a choice, after the text that was sent."""
        text = one.content[len(sent) :]
        delta: Json = {"content": text} if text else {}
        if one.calls:
            delta["tool_calls"] = [{"index": i, **_call(call)} for i, call in enumerate(one.calls)]
        body = {"delta": delta} if self.chat else {"text": text}
        return self._piece(one.choice.index, body, one.finish)

    def counts(self, tokens: Json) -> Json:
        """The last piece of a stream that was asked to end with its token counts."""
        return {**self._around([]), "usage": tokens}

    def _piece(self, index: int, body: Json, finish: str | None = None) -> Json:
        return self._around([{"index": index, **body, "finish_reason": finish}])

    def _around(self, choices: list[Json], whole: bool = False) -> Json:
        chat = "chat.completion" if whole else "chat.completion.chunk"
        return {
            "id": f"{'chatcmpl' if self.chat else 'cmpl'}-{self.id}",
            "object": chat if self.chat else "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }


def _call(call: ToolCall) -> Json:
    made = {"name": call.name, "arguments": json_text(dict(call.arguments))}
    return {"id": f"call_{secrets.token_hex(12)}", "type": "function", "function": made}


def json_text(value: Any) -> str:
    """A value as JSON that can be sent: half a surrogate pair stays the escape that it was."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return text if sendable(text) else json.dumps(value, allow_nan=False)
