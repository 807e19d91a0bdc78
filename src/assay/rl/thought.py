"""Finds which tokens are chain of thought, in the text that they decode to.

Tags are searched as text, because `<think>` is one token to one tokenizer and several to another,
whose first or last may hold more than the tag, and because rewards read text too. A token that
holds any character of a thought, tags included, belongs to it. The caller uses the marks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile

import torch
from torch import Tensor

OPENING, CLOSING = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class Thinking:
    """How a tokenizer's text is read for chains of thought."""

    decode: Callable[[Sequence[int]], str]
    """Token ids to text."""
    control: frozenset[int] = frozenset()
    """Tokens that chat templates write between turns, and messages cannot hold."""


@dataclass(frozen=True)
class Thought:
    """Which action tokens are chain of thought."""

    mask_S: Tensor
    unclosed_N: Tensor
    """Turns whose chain of thought never ends; all the rest of such a turn counts as thought."""


def find_thought(
    actions_S: Tensor, offsets_N1: Tensor, opened_N: Tensor, thinking: Thinking
) -> Thought:
    """Marks each turn's tokens from the first opening tag to the next closing one, tags included.

    `opened_N`: the prompt already ends inside an open chain of thought (templates that prefill
    the opening tag), so thought starts with the turn's first token. A turn that never opens one
    has no marks.
    """
    mask_S = torch.zeros_like(actions_S, dtype=torch.bool)
    unclosed_N = torch.zeros_like(opened_N, dtype=torch.bool)
    for n, opened in enumerate(opened_N.tolist()):
        first, last = int(offsets_N1[n]), int(offsets_N1[n + 1])
        tokens = actions_S[first:last].tolist()
        span = (0, 0) if opened else find_tag(tokens, OPENING, thinking)
        if span is None:
            continue
        start = span[0]
        closing = find_tag(tokens[start:], CLOSING, thinking)
        unclosed_N[n] = closing is None
        end = len(tokens) if closing is None else start + closing[1]
        mask_S[first + start : first + end] = True
    return Thought(mask_S, unclosed_N)


def ends_open(context: Sequence[int], thinking: Thinking) -> bool:
    """Whether a prompt ends inside a chain of thought that its generation prompt opened.

    Only what follows the last control token counts: a question that speaks of `<think>` opens
    nothing.
    """
    tail = list(takewhile(lambda token: token not in thinking.control, reversed(context)))
    text = thinking.decode(tail[::-1])
    return text.rfind(OPENING) > text.rfind(CLOSING)


def find_tag(tokens: Sequence[int], tag: str, thinking: Thinking) -> tuple[int, int] | None:
    """The tokens, first to end, that hold the first occurrence of `tag`, which is ASCII.

    The end is found by bisection. Each token of a tag holds at least one of its characters, so a
    check that begins len(tag) tokens before the range sees the whole tag. All checks together
    decode a few times the text.
    """
    if tag not in thinking.decode(tokens):
        return None
    before, end = 0, len(tokens)
    while end - before > 1:
        middle = (before + end) // 2
        if tag in thinking.decode(tokens[max(0, before - len(tag)) : middle]):
            end = middle
        else:
            before = middle
    first = end - 1
    while tag not in thinking.decode(tokens[first:end]):
        first -= 1
    return first, end
