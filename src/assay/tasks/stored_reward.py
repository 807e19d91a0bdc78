"""Judges stored candidates by what they hold, without asking a model or running a program.

A candidate is a JSON object with `text`, `reward` and, where its maker noted them, `parts` of that
reward and `facts`.
"""

from collections.abc import Mapping
from typing import Any

from assay.data.episode import Completion, Reward
from assay.data.row import Row
from assay.errors import InputError
from assay.tasks.judge_reward import JudgeReward
from assay.tasks.reward_table import RewardTable
from assay.tasks.task import RewardFunction, is_unsafe

CORRECT = "correct"
"""The part of a reward that is above 0 where the answer is right."""


class NotInFacts(InputError):
    """A reward that stored candidates cannot be judged by."""


def stored_reward(
    reward: RewardFunction | RewardTable | None, row: Row, candidate: Mapping[str, Any]
) -> Reward:
    """The reward of a stored candidate; that which it carries where no other is named.

    Raises NotInFacts for a reward that needs more than the candidate holds.
    """
    if reward is None:
        return Reward(float(candidate["reward"]), candidate.get("parts") or {})
    if isinstance(reward, RewardTable):
        return _of_table(reward, row, candidate)
    if isinstance(reward, JudgeReward) and reward.of_stored is not None:
        return reward.of_stored(candidate)
    if why := not_in_facts(reward):
        raise NotInFacts(why, field="reward", fix="name another, or leave it out")
    return reward(row, Completion(candidate["text"]))


def not_in_facts(reward: RewardFunction) -> str:
    """Why a reward cannot judge stored candidates; "" if it can."""
    if isinstance(reward, JudgeReward):
        asks = "a reward that asks models, and it computes nothing from stored facts"
        return "" if reward.of_stored is not None else asks
    return "a reward that runs in a worker, and candidates are stored" if is_unsafe(reward) else ""


def is_right(reward: Reward) -> bool:
    """Whether a judged candidate is right: by the parts named `correct`, else by its value."""
    said = [value for name, value in reward.parts.items() if name.split("/")[-1] == CORRECT]
    return max(said) > 0 if said else (reward.value or 0.0) > 0


def _of_table(table: RewardTable, row: Row, candidate: Mapping[str, Any]) -> Reward:
    found: dict[str, Reward | None] = {}
    for name in table.order:
        wanted = table.wanted(name, found)
        part = table.parts[name].reward
        found[name] = stored_reward(part, row, candidate) if wanted else None
    return table.combine({name: found[name] for name in table.parts})
