"""Frozen data of what a policy did and earned: turns, episodes and rewards.

The context of a language model is its token ids; another policy has a context of its own kind.
Nothing here samples, scores or trains.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from assay.data.row import Message

Context = Hashable
"""What a policy reads before it acts: token ids (`tuple[int, ...]`) for a language model, a frozen
dataclass of query and candidate features for a selector. Equal where the same is read."""

Ended = Literal["stop", "length", "stored", "context"]
"""How a turn ended: an end token or a stop string, the token limit, or it was not sampled at all.
"context" is how an episode ends that would go on, had its next context not outgrown the model's
positions."""
CUT: frozenset[Ended] = frozenset({"length", "context"})
"""How a turn or an episode ends that would have gone on."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One call of a policy. C is the number of actions (tokens or candidate ids)."""

    context: Context
    """What the policy saw; a later turn's context need not extend an earlier one's."""
    actions: tuple[int, ...]
    """The C actions, the end token included when there is one."""
    loss_mask: tuple[bool, ...]
    """C flags: which actions the policy is trained on."""
    behaviour_logps: tuple[float, ...] | None = None
    """C log-probabilities under the sampling policy at its temperature; None when unknown."""
    ended: Ended = "stored"
    policy_version: int = 0
    """Optimizer updates behind the weights that sampled this turn."""
    entropies: tuple[float, ...] | None = field(default=None, compare=False)
    """C entropies, in nats, of what the actions were drawn from; None when unknown."""
    variances: tuple[float, ...] | None = field(default=None, compare=False)
    """C variances of log-probs under what the actions were drawn from; None when unknown."""


FULL_SCORE = 1.0
"""What a right answer scores where neither reward nor benchmark tells right from wrong."""


@dataclass(frozen=True, slots=True)
class Reward:
    """What an episode earned. `value` None is an abstention, never a zero; `why` says why."""

    value: float | None
    parts: Mapping[str, float] = field(default_factory=dict)
    why: str = ""
    outcome: str = ""
    """The result of judging, such as "right", "unparsable" or "timed out"; "" where the reward
    gives none."""
    facts: Mapping[str, str | float] = field(default_factory=dict)
    """Named texts and numbers for records and pages, such as a program's output or a judge's
    reason; no value depends on them."""


@dataclass(frozen=True, slots=True)
class Completion:
    """A finished completion as rewards and checkers see it: the text without the end token."""

    text: str
    tokens: tuple[int, ...] = ()
    ended: Ended = "stop"
    messages: tuple[Message, ...] = ()
    """Of an episode of several turns: all messages after the row's prompt, the model's as it wrote
    them; `text` then holds the model's turns, one below the other."""
    id: str = field(default="", compare=False)
    """Its name in a stage (`STEP/ROW#SAMPLE`) or an evaluation (`ITEM#REPEAT`), for journals and
    for the random numbers of judges; "" where nothing names it."""


@dataclass(frozen=True, slots=True)
class Episode:
    """A tuple of turns with one reward. The episodes of one visit to a prompt are a group."""

    id: str
    group: str
    """The row whose prompt it answers."""
    turns: tuple[Turn, ...]
    reward: Reward | None = None
    said: Completion | None = None
    """What was judged, of an episode of several turns: its conversation and how it ended."""
    visit: int = 0
    """How often the stage had come by this row before: the same row twice in one step, where it
    has few rows or an epoch ends, is two groups."""


def tokens_of(context: Context) -> tuple[int, ...]:
    """The token ids that the context of a language model is. Raises TypeError for another one."""
    if not isinstance(context, tuple):
        raise TypeError(f"a context of tokens, not {type(context).__name__}")
    return context


def continues(context: Context, before: Context, actions: tuple[int, ...]) -> bool:
    """Whether a context of tokens begins with another, all its actions, and something more."""
    if not isinstance(context, tuple) or not isinstance(before, tuple):
        return False
    if len(context) <= len(before) + len(actions):
        return False
    return context[: len(before)] == before and context[len(before) :][: len(actions)] == actions


def common(one: Sequence[Any], other: Sequence[Any]) -> int:
    """How many items two sequences begin with alike."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
