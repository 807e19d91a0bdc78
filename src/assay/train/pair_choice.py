"""Chooses pairs of a better and a worse completion from judged groups.

Every pair of a group whose scores differ, once; or pairs drawn with the weight (better - worse)^p,
as ScoreFlow draws them (arXiv 2502.04306; `evaluate.py` of Gen-Verse/ScoreFlow 24925638, p = 3,
with replacement over the pairs of all groups). A draw depends on the seed and its own number alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import torch
from torch import Tensor

from assay.data.episode import Episode, Reward
from assay.experiment.training_settings import Pairs
from assay.rl.advantages import EQUAL, groups_with_signal
from assay.rl.policy import SampleKey
from assay.rollout.token_choice import key_states, uniforms
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
class GroupChoice:
    """Indices of groups, ascending."""

    trained: tuple[int, ...]
    """Scored and trained on."""
    counted: tuple[int, ...] = ()
    """Not trained on, because they have no gradient, but part of every average as if they were."""

    @property
    def step(self) -> tuple[int, ...]:
        """All groups that the step's averages are over, ascending."""
        return tuple(sorted((*self.trained, *self.counted)))


def choose(judged: Sequence[Group], wanted: int, *, drop: bool, count: bool) -> GroupChoice:
    """The `wanted` groups of a step: those with signal first, then others in their order.

    With `drop`, groups without a gradient are left out; with `count` they still count in the
    averages, so that leaving them out changes nothing. Groups beyond `wanted`, replaced or
    surplus, are not part of the step. The caller has removed abstained episodes.
    """
    teaching = groups_that_teach(judged)
    heard = (g for g, group in enumerate(judged) if group)
    chosen = sorted(sorted(heard, key=lambda g: g not in teaching)[:wanted])
    if not drop:
        return GroupChoice(tuple(chosen))
    moving = trained_among(judged, with_signal(judged))
    counted = tuple(g for g in chosen if g not in moving) if count else ()
    return GroupChoice(tuple(g for g in chosen if g in moving), counted)


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
    rewards_E, group_E = rewards_of(judged)
    return set(groups_with_signal(rewards_E, group_E).tolist())


def rewards_of(judged: Sequence[Group]) -> tuple[Tensor, Tensor]:
    """Rewards (E, float64) of judged episodes and the index (E) of their group."""
    return flat([[v for e in group if (v := value_of(e)) is not None] for group in judged])


def flat(values: Sequence[Sequence[float]]) -> tuple[Tensor, Tensor]:
    """Values (E, float64) laid end to end and the index (E) of their group."""
    group_E = [g for g, group in enumerate(values) for _ in group]
    laid = [v for group in values for v in group]
    return torch.tensor(laid, dtype=torch.float64), torch.tensor(group_E, dtype=torch.long)


STREAM = "pairs"
"""Keeps the draws of pairs apart from those of tokens."""


POWER = 3.0
"""p of the weight (better - worse)^p of a pair that is drawn, unless the table says another."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two completions of one prompt with their scores."""

    chosen: Episode
    rejected: Episode
    scores: tuple[float, float]
    """Of the chosen and of the rejected one."""

    @property
    def gap(self) -> float:
        """How much better the chosen one is."""
        return self.scores[0] - self.scores[1]


Places = tuple[int, int, int]
"""A group, and the places of the better and the worse completion in it."""
Values = Sequence[Sequence[float | None]]
"""The scores of each group's completions; None for an abstention, which is in no pair."""


def choose_pairs(groups: Sequence[Sequence[Episode]], rule: Pairs, seed: int) -> tuple[Pair, ...]:
    """The pairs of judged groups, group by group."""
    names = [group[0].group if group else "" for group in groups]
    values = [[value_of(episode) for episode in group] for group in groups]
    return tuple(
        Pair(groups[g][a], groups[g][b], (values[g][a] or 0.0, values[g][b] or 0.0))
        for g, a, b in chosen_places(values, names, rule, seed)
    )


def chosen_places(values: Values, names: Sequence[str], rule: Pairs, seed: int) -> list[Places]:
    """The places of the pairs that a rule chooses; `names` tell the groups apart in draws."""
    pairs = [group_places(values, g, rule) for g in range(len(values))]
    if rule.total is not None:
        every = [places for own in pairs for places in own]
        return sorted(drawn(values, every, rule, seed, STREAM, rule.total))
    if rule.per_group is not None:
        count = rule.per_group
        stream = [f"{STREAM}\x1f{name}" for name in names]
        return [
            p
            for g, own in enumerate(pairs)
            for p in drawn(values, own, rule, seed, stream[g], count)
        ]
    return [places for own in pairs for places in own]


def group_places(values: Values, group: int, rule: Pairs) -> list[Places]:
    """All pairs of one group, in the order of its completions."""
    least = max(rule.least_gap or 0.0, EQUAL)
    judged = [(n, value) for n, value in enumerate(values[group]) if value is not None]
    return [
        (group, chosen, rejected)
        for (chosen, better), (rejected, worse) in permutations(judged, 2)
        # A gap of exactly the least one may come out a rounding below it.
        if better - worse > EQUAL and better - worse >= least - EQUAL
    ]


def drawn(
    values: Values, places: Sequence[Places], rule: Pairs, seed: int, stream: str, count: int
) -> list[Places]:
    """`count` of the pairs with replacement, by weight; none of none."""
    if not places:
        return []
    gaps = np.array([(values[g][a] or 0.0) - (values[g][b] or 0.0) for g, a, b in places])
    # The largest gap is 1, so that no power of a large reward overflows.
    upto = np.cumsum((gaps / gaps.max()) ** (POWER if rule.power is None else rule.power))
    keys = key_states([SampleKey(seed, stream, draw) for draw in range(count)])
    targets = uniforms(keys, np.zeros(count)) * upto[-1]
    at = np.minimum(np.searchsorted(upto, targets, side="right"), len(places) - 1)
    return [places[n] for n in at.tolist()]


def pair_count(values: Values, rule: Pairs) -> int:
    """How many pairs a rule chooses, which no seed changes."""
    counts = [len(group_places(values, g, rule)) for g in range(len(values))]
    if rule.total is not None:
        return rule.total if any(counts) else 0
    if rule.per_group is not None:
        return rule.per_group * sum(count > 0 for count in counts)
    return sum(counts)


def groups_with_pairs(values: Values, rule: Pairs) -> int:
    """How many groups give a pair; those of equal scores do not."""
    return sum(bool(group_places(values, g, rule)) for g in range(len(values)))
