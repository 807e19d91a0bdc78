"""Rewards about the form of a text, for any skill: think tags, repetition, length, alphabets.

All but `cosine_scaled`, which reshapes another reward, are pure and need no gold answer. What is
right or wrong is a skill's own matter; the soft punishment of overlong completions is a setting of
the training stage (`overlong`). Every experiment can name `TEXT_REWARDS`, such as `text.truncated`.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from assay.data.episode import CUT, Completion, Reward
from assay.data.row import Row
from assay.sandbox.limits import CallOutcome
from assay.tasks.running import WorkerReward
from assay.tasks.task import RewardFunction

OPEN, CLOSE = "<think>", "</think>"
LATIN = re.compile(r"[A-Za-z\u00c0-\u024f]")
EAST_ASIAN = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]")
NO_TOKENS = "the completion has no tokens to count"


def think_format(row: Row, completion: Completion) -> Reward:
    """1 when the text starts with the only `<think>` and closes it, else 0 (TRL format_rewards).

    Where the chat template writes the opening tag itself, the completion has none and earns 0.
    """
    rest = completion.text.removeprefix(OPEN)
    opened = completion.text.startswith(OPEN)
    return Reward(float(opened and OPEN not in rest and CLOSE in rest))


def repetition_penalty(size: int = 3, penalty: float = -1.0) -> RewardFunction:
    """`penalty * (1 - distinct / all n-grams)` over the completion's tokens, n = `size`.

    0 for fewer than `size` tokens; abstains when a text comes without its tokens. Source:
    Demystifying Long Chain-of-Thought Reasoning (arXiv 2502.03373), C.2, as in TRL other_rewards.
    """

    def reward(row: Row, completion: Completion) -> Reward:
        if completion.text and not completion.tokens:
            return Reward(None, why=NO_TOKENS)
        grams = list(zip(*(completion.tokens[i:] for i in range(size)), strict=False))
        if not grams:
            return Reward(0.0)
        return Reward(penalty * (1 - len(set(grams)) / len(grams)))

    reward.lowest = penalty  # pyright: ignore[reportFunctionMemberAccess]
    reward.maker = repetition_penalty  # pyright: ignore[reportFunctionMemberAccess]
    return reward


def always(row: Row, completion: Completion) -> Reward:
    """1, for a part of a table that its conditions alone decide."""
    return Reward(1.0)


def truncated(row: Row, completion: Completion) -> Reward:
    """1 for a completion that was cut at the token limit or where its context was full, else 0."""
    return Reward(float(completion.ended in CUT))


def length_bonus(
    row: Row, completion: Completion, start: int = 600, scale: float = 600.0, rate: float = 1.0
) -> Reward:
    """`1 - exp(-rate * (tokens - start) / scale)`, 0 up to `start` tokens; nears 1.

    Source: cs2916-2025 (happyZYM), quality rewards; round 1 has start 620 and rate 2.3.
    """
    if completion.text and not completion.tokens:
        return Reward(None, why=NO_TOKENS)
    over = max(len(completion.tokens) - start, 0)
    return Reward(1 - math.exp(-rate * over / scale))


def one_script(row: Row, completion: Completion) -> Reward:
    """1 unless the text has both Latin letters and Chinese, Japanese or Korean ones, else 0."""
    scripts = (LATIN.search(completion.text), EAST_ASIAN.search(completion.text))
    return Reward(float(not all(scripts)))


def repeats(row: Row, completion: Completion, chunk: int = 5, times: int = 5) -> Reward:
    """1 where at least `chunk` characters stand `times` times one after the other, else 0.

    Source: cs2916-2025 (happyZYM), whose expression asks for five characters and four more times.
    """
    codes = np.frombuffer(completion.text.encode("utf-32-le", "surrogatepass"), np.uint32)
    for period in range(chunk, len(codes) // times + 1):
        same = codes[period:] == codes[:-period]
        needed = period * (times - 1)
        if int(same.sum()) >= needed and _longest_run(same) >= needed:
            return Reward(1.0)
    return Reward(0.0)


def _longest_run(flags: "np.ndarray") -> int:
    """How many true flags stand together at most."""
    breaks = np.flatnonzero(~flags)
    ends = np.concatenate(([-1], breaks, [len(flags)]))
    return int(np.diff(ends).max()) - 1


def cosine_length(
    correct: bool,
    length: int,
    max_length: int,
    wrong: tuple[float, float] = (-1.0, -0.5),
    right: tuple[float, float] = (0.5, 1.0),
) -> float:
    """A value between two bounds by length in tokens, on half a cosine up to `max_length`.

    A right completion earns `right[1]` when short and `right[0]` at full length; a wrong one
    `wrong[0]` when short and `wrong[1]` at full length. Source: arXiv 2502.03373, C.1, as in TRL
    accuracy_rewards.
    """
    long, short = right if correct else (wrong[1], wrong[0])
    # Clamped, because the cosine would rise again beyond the full length.
    progress = min(length / max_length, 1.0)
    return long + (short - long) * (1 + math.cos(progress * math.pi)) / 2


def cosine_scaled(accuracy: WorkerReward, max_length: int = 1024) -> WorkerReward:
    """`accuracy` (0 or 1; its abstentions stay) reshaped by `cosine_length`; full reward 1.0."""

    def shape(reward: Reward, completion: Completion) -> Reward:
        if reward.value is None:
            return reward
        if completion.text and not completion.tokens:
            return Reward(None, reward.parts, NO_TOKENS)
        value = cosine_length(reward.value == 1.0, len(completion.tokens), max_length)
        parts = {**reward.parts, "accuracy": reward.value}
        return Reward(value, parts, reward.why, reward.outcome, reward.facts)

    def ask(row: Row, completion: Completion) -> Reward | Mapping[str, Any]:
        call = accuracy.ask(row, completion)
        return shape(call, completion) if isinstance(call, Reward) else call

    def read(row: Row, completion: Completion, value: Any) -> Reward:
        return shape(accuracy.read(row, completion, value), completion)

    def failed(row: Row, completion: Completion, failure: CallOutcome) -> Reward:
        return shape(accuracy.failed(row, completion, failure), completion)

    maker = partial(cosine_scaled, accuracy)
    return replace(accuracy, ask=ask, read=read, failed=failed, maker=maker)


TEXT = "text."
"""Begins the names of the rewards that every task has."""
TEXT_REWARDS: Mapping[str, RewardFunction] = {
    "always": always,
    "truncated": truncated,
    "think_format": think_format,
    "repetition": repetition_penalty(),
    "repeats": repeats,
    "length_bonus": length_bonus,
    "one_script": one_script,
}
TEXT_MAXIMUM: Mapping[str, float] = {"repetition": 0.0}
