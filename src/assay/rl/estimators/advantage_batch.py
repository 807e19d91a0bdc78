"""What every advantage estimator reads, and the steps they share.

Estimators answer one advantage per action token (S), float32, 0 where the token is not trained;
group statistics are worked out in float64. Episodes whose reward abstained were removed by the
caller.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from assay.rl.group_arithmetic import EQUAL, group_mean, group_size, in_equal_group


@dataclass(frozen=True)
class AdvantageInput:
    """E episodes and their S action tokens laid end to end."""

    rewards_E: Tensor
    """One finite reward per episode."""
    group_E: Tensor
    """Group number of each episode (long, any numbering)."""
    episode_S: Tensor
    """Row of `rewards_E` that each token belongs to (long)."""
    mask_S: Tensor
    """Bool: tokens that are trained."""
    token_rewards_S: Tensor | None = None
    """Rewards earned at single tokens (a KL penalty in the reward), 0 where not trained."""
    entropy_S: Tensor | None = None
    """Full-vocabulary entropy of the policy at each token, in nats."""
    cot_mask_S: Tensor | None = None
    """Bool: tokens of the chain of thought."""


@dataclass(frozen=True)
class AdvantageOptions:
    """Every number an estimator may be given; each estimator reads the ones it names."""

    ddof: int = 1
    """1: unbiased standard deviation (torch, TRL, verl); 0: biased. Where std is used."""
    epsilon: float = 1e-6
    """Added to the standard deviation. Where std is used."""
    lone: Literal["zero", "reward"] = "zero"
    """Advantage of an episode alone in its group: nothing, or its raw reward as in verl."""
    equal: float = EQUAL
    """Rewards of a group that differ by no more than this are equal and carry no signal."""
    scale_by_std: bool = True
    """pass_at_k: divide by the group's standard deviation."""
    gamma: float = 1.0
    """reinforce_pp: discount per token."""
    f_norm: float = 1.0
    """gpg: divides the advantage."""
    bonus_scale: float = 0.4
    """egpo: lambda, nats to advantage."""
    bonus_cap: float = 2.0
    """egpo: alpha; the entropy bonus is held under |advantage| / alpha (paper form)."""


AdvantageFunction = Callable[[AdvantageInput, AdvantageOptions], Tensor]


def sum_by_episode(batch: AdvantageInput, values_S: Tensor, mask_S: Tensor) -> Tensor:
    """Sum of `values_S` over each episode's tokens that `mask_S` keeps: (E), float64."""
    kept_S = torch.where(mask_S, values_S.double(), 0.0)
    return torch.zeros_like(batch.rewards_E, dtype=torch.float64).index_add(
        0, batch.episode_S, kept_S
    )


def outcomes_E(batch: AdvantageInput) -> Tensor:
    """What each episode earned in all: its reward and its token rewards, (E), float64."""
    rewards_E = batch.rewards_E.double()
    if batch.token_rewards_S is None:
        return rewards_E
    return rewards_E + sum_by_episode(batch, batch.token_rewards_S, batch.mask_S)


def to_tokens(batch: AdvantageInput, values_E: Tensor) -> Tensor:
    """Each episode's value at every trained token of it, 0 elsewhere: (S), float32."""
    return torch.where(batch.mask_S, values_E[batch.episode_S], 0.0).float()


def minus_baseline(
    batch: AdvantageInput, values_E: Tensor, baseline_E: Tensor, options: AdvantageOptions
) -> Tensor:
    """`values_E - baseline_E`, exactly 0 in groups of equal values; lone episodes by option."""
    silent_E = in_equal_group(values_E, batch.group_E, options.equal)
    centred_E = torch.where(silent_E, 0.0, values_E - baseline_E)
    if options.lone == "reward":
        return torch.where(group_size(batch.group_E) == 1, values_E, centred_E)
    return centred_E


def centred_E(batch: AdvantageInput, options: AdvantageOptions) -> Tensor:
    """Outcomes minus their group's mean, (E), float64."""
    values_E = outcomes_E(batch)
    return minus_baseline(batch, values_E, group_mean(values_E, batch.group_E), options)
