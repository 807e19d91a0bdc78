"""Chooses which sampled groups a step trains on, and which only count in its averages.

Uses rewards and masks alone, before any forward pass. `grpo` computes the weights of the groups.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.data.episode import Episode, Reward
from assay.rl.signal import groups_with_signal
from assay.train.sampled_groups import value_of

Group = Sequence[Episode]

OVERLONG = "overlong"
"""The part of a reward that holds its length punishment."""


def overlong_punishment(length: int, max_length: int, buffer: int, factor: float = 1.0) -> float:
    """DAPO's soft overlong punishment, to be added to the reward; between -factor and 0.

    0 up to `max_length - buffer` tokens, then falling linearly to -factor at `max_length`
    (arXiv 2503.14476, eq. 13; verl's `overlong_buffer`, TRL's `get_soft_overlong_punishment`).
    """
    excess = length - (max_length - buffer)
    return -factor * min(max(excess / buffer, 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class Choice:
    """Indices of groups, ascending."""

    trained: tuple[int, ...]
    """Scored and trained on."""
    counted: tuple[int, ...] = ()
    """Not trained on, because they have no gradient, but part of every average as if they were."""

    @property
    def step(self) -> tuple[int, ...]:
        """All groups that the step's averages are over, ascending."""
        return tuple(sorted((*self.trained, *self.counted)))


def choose(judged: Sequence[Group], wanted: int, *, drop: bool, count: bool) -> Choice:
    """The `wanted` groups of a step: those with signal first, then others in their order.

    With `drop`, groups without a gradient are left out; with `count` they still count in the
    averages, so that leaving them out changes nothing. Groups beyond `wanted`, replaced or
    surplus, are not part of the step. The caller has removed abstained episodes.
    """
    teaching = groups_that_teach(judged)
    heard = (g for g, group in enumerate(judged) if group)
    chosen = sorted(sorted(heard, key=lambda g: g not in teaching)[:wanted])
    if not drop:
        return Choice(tuple(chosen))
    moving = trained_among(judged, with_signal(judged))
    counted = tuple(g for g in chosen if g not in moving) if count else ()
    return Choice(tuple(g for g in chosen if g in moving), counted)


def groups_that_teach(judged: Sequence[Group]) -> set[int]:
    """Groups whose rewards differ, and not by a punishment for length alone: what dynamic sampling
    looks for, as DAPO filters by accuracy (arXiv 2503.14476; verl's `filter_groups.metric = acc`).
    """
    earned_too = flat([[earned(e) for e in group] for group in judged])
    both = with_signal(judged) & set(groups_with_signal(*earned_too).tolist())
    return trained_among(judged, both)


def trained_among(judged: Sequence[Group], chosen: set[int]) -> set[int]:
    """Those of the chosen groups in which a token is trained."""
    return {g for g in chosen if any(any(t.loss_mask) for e in judged[g] for t in e.turns)}


def earned(episode: Episode) -> float:
    """The reward of a judged episode without its punishment for length."""
    reward = episode.reward or Reward(None)
    assert reward.value is not None
    return reward.value - reward.parts.get(OVERLONG, 0.0)


def with_signal(judged: Sequence[Group]) -> set[int]:
    """Indices of the groups whose rewards are not all equal."""
    return set(groups_with_signal(*rewards_of(judged)).tolist())


def rewards_of(judged: Sequence[Group]) -> tuple[Tensor, Tensor]:
    """Rewards (E, float64) of judged episodes and the index (E) of their group."""
    return flat([[v for e in group if (v := value_of(e)) is not None] for group in judged])


def flat(values: Sequence[Sequence[float]]) -> tuple[Tensor, Tensor]:
    """Values (E, float64) laid end to end and the index (E) of their group."""
    group_E = [g for g, group in enumerate(values) for _ in group]
    laid = [v for group in values for v in group]
    return torch.tensor(laid, dtype=torch.float64), torch.tensor(group_E, dtype=torch.long)
