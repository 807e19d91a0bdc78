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
from assay.serve.asking import Asked, Choice
from assay.serve.requests import Refusal
from assay.serve.texts import before_calls, content_and_calls, sendable

KINDS = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
"""OpenAI's kinds of errors by HTTP status; others are errors of the request, or the server's."""

Json = dict[str, Any]


def error_body(refusal: Refusal) -> Json:
    """An error as OpenAI writes it."""
    server = "server_error" if refusal.status >= 500 else "invalid_request_error"
    return {
        "error": {
            "message": str(refusal),
            "type": KINDS.get(refusal.status, server),
            "param": refusal.parameter,
            "code": refusal.code,
        }
    }


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
