"""Turns sampled tokens into the text of an answer, complete at the end or piece by piece.

A stop text ends an answer and is no part of it. A possible beginning of a character, stop text or
tool call is held back, so that the pieces of a stream add up to the complete answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from assay.data.row import ToolCall
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
