"""Text to token ids, where control tokens come from chat templates and never from messages.

A special token that stands in a message is broken up before rendering by BREAK after its first
character; `encode` cuts the text there and tokenises the pieces apart, so to the model it is
ordinary text. Added tokens that are not special, such as Qwen's `<think>` and `<tool_call>`, are
words of the model and stay whole. BREAK itself, a noncharacter that Unicode keeps for such uses,
is lost where it stands in a message.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import chain, product
from typing import Any

from assay.data.row import Message, ToolCall

BREAK = "\ufdd0"
SIDES = ("a", " ", "\n", " a ")
"""What may stand beside a special token."""


@dataclass(frozen=True)
class Codec:
    """A tokenizer that separates a template's control tokens from a message's characters."""

    tokenizer: Any
    kept: tuple[str, ...] = ()
    """Special tokens that stay whole where an assistant says them."""

    def break_message(self, message: Message) -> Message:
        """The message with every special token in it broken up, but those that an assistant may
        say."""
        broken = self.break_answer if message.role == "assistant" else self.break_up
        calls = tuple(
            ToolCall(self.break_up(c.name), self.break_up(dict(c.arguments)), self.break_up(c.id))
            for c in message.tool_calls
        )
        return replace(
            message,
            content=broken(message.content),
            reasoning=broken(message.reasoning),
            name=self.break_up(message.name),
            tool_call_id=self.break_up(message.tool_call_id),
            tool_calls=calls,
        )

    def break_up(self, value: Any) -> Any:
        """A JSON value with every special token in its strings, keys too, broken up."""
        if isinstance(value, str):
            return self._special.sub(_broken, value)
        if isinstance(value, Mapping):
            return {self.break_up(key): self.break_up(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.break_up(item) for item in value]
        return value

    def break_answer(self, text: str) -> str:
        """What an assistant says with every special token broken up that is not kept."""
        return self._special.sub(
            lambda match: match[0] if match[0] in self.kept else _broken(match), text
        )

    def encode(self, text: str, first: bool) -> list[int]:
        """Token ids of rendered text; `first` if nothing comes before it in the conversation."""
        pieces = [piece for piece in text.split(BREAK) if piece]
        return [
            token
            for index, piece in enumerate(pieces)
            for token in self._encode_piece(piece, first and index == 0)
        ]

    def encoder(self) -> Callable[[str, bool], list[int]]:
        """`encode` for texts that repeat each other: what stands between two special tokens is
        tokenised once, where this tokenizer cuts its texts there."""
        known = cache(self.encode)

        def encode(text: str, first: bool) -> list[int]:
            parts = self._around.split(text)
            if not all(map(self._cuts, parts[1::2])):
                return known(text, first)
            tokens = (known(part, first and n == 0) for n, part in enumerate(filter(None, parts)))
            return [*chain.from_iterable(tokens)]

        return encode

    def specials(self, text: str) -> list[tuple[str, int]]:
        """The special tokens that stand whole in `text`, and where each ends."""
        return [(match[0], match.end()) for match in self._special.finditer(text)]

    @cached_property
    def _special(self) -> re.Pattern[str]:
        added = self.tokenizer.added_tokens_decoder.values()
        special = {token.content for token in added if token.special and len(token.content) > 1}
        longest_first = sorted(special, key=lambda token: (-len(token), token))
        return re.compile("|".join(map(re.escape, longest_first)) or "(?!)")

    @cached_property
    def _around(self) -> re.Pattern[str]:
        return re.compile(f"({self._special.pattern})")

    @cached_property
    def _cutting(self) -> dict[str, bool]:
        return {}

    def _cuts(self, token: str) -> bool:
        """Whether a special token parts a text as if its sides had been tokenised alone."""
        if token not in self._cutting:
            self._cutting[token] = all(
                self.encode(left + token + right, True)
                == [
                    *self.encode(left, True),
                    *self.encode(token, False),
                    *self.encode(right, False),
                ]
                for left, right in product(SIDES, SIDES)
            )
        return self._cutting[token]

    @cached_property
    def _adds_space(self) -> bool:
        """Whether this tokenizer puts a space before the text it is given."""
        return self._plain("\na") != self._plain("\n") + self._plain("a")

    def _encode_piece(self, piece: str, first: bool) -> list[int]:
        if first or not self._adds_space:
            return self._plain(piece)
        # SentencePiece's space goes before a guard, whose tokens are then taken off; the guard must
        # not merge with what follows.
        for guard in ("\n", "0"):
            tokens, before = self._plain(guard + piece), self._plain(guard)
            if tokens[: len(before)] == before:
                return tokens[len(before) :]
        return self._plain(piece)

    @cached_property
    def _fast(self) -> bool:
        """Whether the tokenizer gives its text as it stands to the library below."""
        from transformers import PreTrainedTokenizerFast

        own, base = type(self.tokenizer), PreTrainedTokenizerFast
        whole = issubclass(own, base) and own._encode_plus is base._encode_plus
        return whole and own.encode is base.encode and not self.tokenizer.split_special_tokens

    def _plain(self, text: str) -> list[int]:
        if not self._fast:
            return self.tokenizer.encode(text, add_special_tokens=False)
        backend = self.tokenizer.backend_tokenizer
        # As the tokenizer's own `encode` sets them; `encode_batch_fast` leaves out the places.
        backend.no_truncation()
        backend.no_padding()
        return backend.encode_batch_fast([text], add_special_tokens=False)[0].ids


def _broken(token: re.Match[str]) -> str:
    return token[0][0] + BREAK + token[0][1:]
