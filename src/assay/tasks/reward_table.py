"""A reward made of named parts, each with a worth and conditions on the values of others.

Nothing is scored here: `tasks.running` scores the parts in their order and has them combined.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import TopologicalSorter
from itertools import product
from typing import Any

from assay.data.episode import Completion, Reward
from assay.data.row import Row
from assay.errors import InputError
from assay.tasks.judge_reward import JudgeReward
from assay.tasks.task import RewardFunction, is_unsafe, lowest

NEAR = 1e-9
"""Values as close as this are equal."""
RIGHT = "right"
"""The outcome of an answer that earns the full value of its kind."""
MET = "met"
"""The part of a part that is 1 where its conditions were met, else 0."""


@dataclass(frozen=True, slots=True)
class Condition:
    """What a part must have given: a value near `equal`, or between bounds that it does not reach,
    and one of some outcomes."""

    part: str
    equal: float | None = None
    above: float = -math.inf
    below: float = math.inf
    outcomes: tuple[str, ...] = ()
    """Of `Reward.outcome`; none: any."""

    def met(self, value: float, outcome: str = "") -> bool:
        """Whether a value with its outcome meets the condition."""
        return self._bounds(value) and (not self.outcomes or outcome in self.outcomes)

    def may_be_met(self, value: float, full: float) -> bool:
        """Whether a value meets the condition with some outcome: only a `full` one is right."""
        if value >= full - NEAR:
            possible = not self.outcomes or RIGHT in self.outcomes
        else:
            possible = self.outcomes != (RIGHT,)
        return possible and self._bounds(value)

    def _bounds(self, value: float) -> bool:
        if self.equal is not None:
            return abs(value - self.equal) <= NEAR
        return self.above < value < self.below

    @property
    def thresholds(self) -> list[float]:
        """Values at which meeting it may change."""
        if self.equal is not None:
            return [self.equal]
        inside = [math.nextafter(self.above, math.inf), math.nextafter(self.below, -math.inf)]
        return [x for bound in inside for x in (bound,) if abs(x) < 1e300]


@dataclass(frozen=True, slots=True)
class TablePart:
    """One part: its reward, and what the reward's value is multiplied by."""

    reward: RewardFunction
    scale: float = 1.0
    when: tuple[Condition, ...] = ()
    maximum: float = 1.0
    """The full reward of `reward`."""
    same: str = ""
    """Kind and options: parts alike in them are scored once."""


@dataclass(frozen=True)
class RewardTable:
    """A reward of several parts: the sum of each value times its scale.

    A part whose conditions are not met is worth 0 and is not scored. Where a part abstains, the
    whole does and names it. Parts: each part's own value by name, "NAME/PART" of its own parts, and
    "NAME/met" of parts with conditions. Facts are named "NAME/FACT".
    """

    parts: Mapping[str, TablePart]

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The parts, each after those that its conditions are on."""
        waits = {name: [c.part for c in part.when] for name, part in self.parts.items()}
        return tuple(TopologicalSorter(waits).static_order())

    def wanted(self, name: str, rewards: Mapping[str, Reward | None]) -> bool:
        """Whether a part is to be scored, given those before it; None is a part that was not."""
        return all(self._met(condition, rewards) for condition in self.parts[name].when)

    def _met(self, condition: Condition, rewards: Mapping[str, Reward | None]) -> bool:
        reward = rewards[condition.part]
        if reward is None:
            return condition.met(0.0)
        # Where the other abstains, the whole does, whatever this part is.
        return reward.value is not None and condition.met(reward.value, reward.outcome)

    def combine(self, rewards: Mapping[str, Reward | None]) -> Reward:
        """The reward from those of the parts, in the table's order; None is a part whose
        conditions were not met."""
        scored = {name: reward for name, reward in rewards.items() if reward is not None}
        silent = [f"{name}: {each.why}" for name, each in scored.items() if each.value is None]
        flat = {name: 0.0 if r is None else r.value for name, r in rewards.items()}
        parts = {name: value for name, value in flat.items() if value is not None}
        for name, reward in rewards.items():
            if self.parts[name].when:
                parts[f"{name}/{MET}"] = float(reward is not None)
            if reward is not None:
                parts |= {f"{name}/{inner}": value for inner, value in reward.parts.items()}
        facts = {f"{name}/{k}": v for name, each in scored.items() for k, v in each.facts.items()}
        if silent:
            return Reward(None, parts, "; ".join(silent), facts=facts)
        why = "; ".join(f"{name}: {each.why}" for name, each in scored.items() if each.why)
        outcome = next((each.outcome for each in scored.values() if each.outcome), "")
        value = sum(self.parts[name].scale * parts[name] for name in rewards)
        return Reward(value, parts, why, outcome, facts)

    @cached_property
    def maximum(self) -> float:
        """The most that the table can come to, over the full and lowest values of the parts and
        the thresholds of their conditions."""
        thresholds = {c.part: [] for part in self.parts.values() for c in part.when}
        for part in self.parts.values():
            for condition in part.when:
                thresholds[condition.part] += condition.thresholds
        choices = [self._candidates(name, extra) for name, extra in thresholds.items()]
        chosen = (dict(zip(thresholds, values, strict=True)) for values in product(*choices))
        return max(map(self._most, chosen))

    def _candidates(self, name: str, extra: Sequence[float]) -> list[float]:
        part = self.parts[name]
        low, high = sorted((lowest(part.reward), part.maximum))
        return [low, high, *(x for x in extra if low < x < high)]

    def _most(self, chosen: Mapping[str, float]) -> float:
        """The most that the table comes to where some parts have these values."""
        values: dict[str, float] = {}
        total = 0.0
        for name in self.order:
            part = self.parts[name]
            values[name] = 0.0
            if all(self._may_be_met(condition, values) for condition in part.when):
                ends = [part.maximum, lowest(part.reward)]
                ends = [chosen[name]] if name in chosen else ends
                # An outcome that is asked for may be another one.
                ends += [0.0] if any(condition.outcomes for condition in part.when) else []
                values[name] = max(ends, key=lambda value: part.scale * value)
            total += part.scale * values[name]
        return total

    def _may_be_met(self, condition: Condition, values: Mapping[str, float]) -> bool:
        return condition.may_be_met(values[condition.part], self.parts[condition.part].maximum)


def weighted(rewards: Mapping[str, RewardFunction], weights: Mapping[str, float]) -> RewardTable:
    """The weighted sum of rewards by name."""
    return RewardTable(
        {
            name: TablePart(rewards[name], scale=weight, same=name)
            for name, weight in weights.items()
        }
    )


CORRECT = "correct"
"""The part of a reward that is above 0 where the answer is right."""


def stored_reward(
    reward: RewardFunction | RewardTable | None, row: Row, candidate: Mapping[str, Any]
) -> Reward:
    """The reward of a stored candidate; that which it carries where no other is named.

    Raises InputError for a reward that needs more than the candidate holds.
    """
    if reward is None:
        return Reward(float(candidate["reward"]), candidate.get("parts") or {})
    if isinstance(reward, RewardTable):
        rewards: dict[str, Reward | None] = {}
        for name in reward.order:
            wanted = reward.wanted(name, rewards)
            part = reward.parts[name].reward
            rewards[name] = stored_reward(part, row, candidate) if wanted else None
        return reward.combine({name: rewards[name] for name in reward.parts})
    if isinstance(reward, JudgeReward) and reward.of_stored is not None:
        return reward.of_stored(candidate)
    if why := not_in_facts(reward):
        raise InputError(why, field="reward", fix="name another, or leave it out")
    return reward(row, Completion(candidate["text"]))


def not_in_facts(reward: RewardFunction) -> str:
    """Why a reward cannot judge stored candidates; "" if it can."""
    if isinstance(reward, JudgeReward):
        asks = "a reward that asks models, and it computes nothing from stored facts"
        return "" if reward.of_stored is not None else asks
    return "a reward that runs in a worker, and candidates are stored" if is_unsafe(reward) else ""


def is_right(reward: Reward) -> bool:
    """Whether a judged candidate is right: by the parts named `correct`, else by its value."""
    values = [value for name, value in reward.parts.items() if name.split("/")[-1] == CORRECT]
    return max(values) > 0 if values else (reward.value or 0.0) > 0
