"""Frozen data of what a policy did and earned: turns, episodes and rewards; and rows, completions
and rewards as JSON values, for workers and journals.

The context of a language model is its token ids; another policy has a context of its own kind.
What is read from JSON equals what was written, images by their bytes included; data files have
formats of their own (`data.formats`). Nothing here samples, scores or trains.
"""

import base64
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from assay.data.row import ImagePart, Message, Part, Row, TextPart, ToolCall

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


AGENT = "agent"
"""The name of the reward that is what an agent said."""
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
    earned: Reward | None = None
    """What the agent that asked for it said that it earned; None where none did."""
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
    completion: Completion | None = None
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


Values = Mapping[str, Any]


def row_values(row: Row) -> dict[str, Any]:
    """A row as JSON values."""
    values = {
        "id": row.id,
        "messages": [message_values(message) for message in row.messages],
        "tools": [dict(tool) for tool in row.tools],
        "gold": row.gold,
        "conversation": row.conversation,
        "origin": row.origin,
        "extra": dict(row.extra),
    }
    more = {"template_options": dict(row.template_options), "columns": dict(row.columns)}
    return values | {name: value for name, value in more.items() if value}


def row_of(values: Values) -> Row:
    """The row that `row_values` wrote."""
    messages = tuple(message_of(each) for each in values["messages"])
    return Row(**{**values, "messages": messages, "tools": tuple(values["tools"])})


def completion_values(completion: Completion) -> dict[str, Any]:
    """A completion as JSON values."""
    values = {
        "text": completion.text,
        "tokens": list(completion.tokens),
        "ended": completion.ended,
        "messages": [message_values(message) for message in completion.messages],
        "id": completion.id,
    }
    earned = {} if completion.earned is None else {"earned": reward_values(completion.earned)}
    return values | earned


def completion_of(values: Values) -> Completion:
    """The completion that `completion_values` wrote."""
    messages = tuple(message_of(each) for each in values["messages"])
    earned = {"earned": reward_of(values["earned"])} if "earned" in values else {}
    tokens = tuple(values["tokens"])
    return Completion(**{**values, "tokens": tokens, "messages": messages, **earned})


def reward_values(reward: Reward) -> dict[str, Any]:
    """A reward as JSON values."""
    return {**asdict(reward), "parts": dict(reward.parts), "facts": dict(reward.facts)}


def reward_of(values: Values) -> Reward:
    """The reward that `reward_values` wrote. Raises TypeError for other keys."""
    return Reward(**values)


def message_values(message: Message) -> dict[str, Any]:
    """A message as JSON values."""
    values = {each.name: getattr(message, each.name) for each in fields(message)} | {
        "tool_calls": [asdict(call) for call in message.tool_calls],
        "parts": [_part_values(part) for part in message.parts],
    }
    return values if message.name else {k: v for k, v in values.items() if k != "name"}


def message_of(values: Values) -> Message:
    """The message that `message_values` wrote."""
    calls = tuple(ToolCall(**call) for call in values["tool_calls"])
    parts = tuple(_part_of(part) for part in values["parts"])
    return Message(**{**values, "tool_calls": calls, "parts": parts})


def _part_values(part: Part) -> dict[str, Any]:
    values = asdict(part)
    if isinstance(part, ImagePart):
        data = part.data if part.data is None else base64.b64encode(part.data).decode("ascii")
        file = part.file if part.file is None else str(part.file)
        values |= {"data": data, "file": file, "origin": list(part.origin)}
    return values


def _part_of(values: Values) -> Part:
    if "text" in values:
        return TextPart(values["text"])
    made = ImagePart(**{**values, "origin": tuple(values["origin"])})
    data = None if values["data"] is None else base64.b64decode(values["data"])
    return replace(made, data=data, file=None if made.file is None else Path(made.file))
