"""Metrics of a step that follow from its rewards: those of every task, and a task's own.

A task declares metrics as `metrics`, names with functions of the step's rewards, and as
`group_metrics`, names with functions of the same rewards in their groups. What a stage computes
without its rewards is in `train.metric_names`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from assay.data.episode import Reward
from assay.tasks.task import Task

RewardMetric = Callable[[Sequence[Reward]], float | None]
"""A number from all rewards of a step, abstentions among them; None where they do not decide."""
GroupMetric = Callable[[Sequence[Sequence[Reward]]], float | None]
"""The same from the rewards of a step in their groups: those of one visit to a prompt."""


def marked(reward: Reward, name: str) -> bool | None:
    """Whether every part and fact of this name is above 0, or a text that is not empty; None where
    there is none. Of a sum of rewards, "REWARD/NAME" is of this name."""
    values = [*reward.parts.items(), *reward.facts.items()]
    marks = [value for key, value in values if key.rpartition("/")[2] == name]
    if not marks:
        return None
    return all(bool(value) if isinstance(value, str) else value > 0 for value in marks)


def share_of(name: str) -> RewardMetric:
    """The share of the rewards with parts or facts of this name whose mark is set."""

    def share(rewards: Sequence[Reward]) -> float | None:
        marks = [mark for reward in rewards if (mark := marked(reward, name)) is not None]
        return sum(marks) / len(marks) if marks else None

    return share


def total_of(name: str) -> RewardMetric:
    """The sum of the facts of this name; None where a reward has none, since what is not known,
    such as a cost without a price, is not 0."""

    def total(rewards: Sequence[Reward]) -> float | None:
        amounts = [numbers_of(reward, name) for reward in rewards]
        return math.fsum(chain.from_iterable(amounts)) if amounts and all(amounts) else None

    return total


def numbers_of(reward: Reward, name: str) -> list[float]:
    """Its facts of this name that are numbers; of a sum of rewards, "REWARD/NAME" is of it."""
    values = [value for key, value in reward.facts.items() if key.rpartition("/")[2] == name]
    return [value for value in values if not isinstance(value, str)]


STANDARD: Mapping[str, RewardMetric] = {
    "format_share": share_of("format"),
    "fallback_share": share_of("fallback"),
    "api_error_share": share_of("api_error"),
    "cost": total_of("cost"),
}
"""By name; the health rules look at the first three."""


def metrics_of(task: Task) -> Mapping[str, RewardMetric]:
    """All metrics of a task's rewards without their groups."""
    return {**STANDARD, **task.metrics}


@dataclass(frozen=True, slots=True)
class FactReading:
    """How the facts of a task are read."""

    families: tuple[str, ...]
    """Families of errors, in the order in which reports show them."""
    family_of: Callable[[str], str]
    """The family of a fact `error` that is not empty."""
    malformed: frozenset[str]
    """Families of answers that have not the right form."""


def plain_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts by their names alone; of a sum of rewards, the first "REWARD/NAME" is NAME."""
    plain: dict[str, Any] = {}
    for key, value in facts.items():
        plain.setdefault(key.rpartition("/")[2], value)
    return plain
