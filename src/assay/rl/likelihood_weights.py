"""Token weights of the likelihood methods: SFT and RFT, and RCE's softmax over rewards.

The weights carry every denominator of the optimizer batch; the loss that reads them is
`objectives.nll`.
"""

import torch
from torch import Tensor

from assay.rl.aggregation import token_weights
from assay.rl.group_arithmetic import compact, group_sum


def sft_weights(mask_S: Tensor, episode_S: Tensor) -> Tensor:
    """Every trained token of the optimizer batch counts the same: 1 / T, (S)."""
    return token_weights("token_mean", mask_S, episode_S)


def rce_shares(rewards_E: Tensor, group_E: Tensor, tau: float) -> Tensor:
    """softmax(reward / tau) inside each group, (E), float64; uniform where rewards are equal."""
    index_E, groups = compact(group_E)
    scaled_E = rewards_E.double() / tau
    top = scaled_E.new_zeros(groups).scatter_reduce(
        0, index_E, scaled_E, "amax", include_self=False
    )
    exp_E = (scaled_E - top[index_E]).exp()
    return exp_E / group_sum(exp_E, group_E)


def rce_weights(
    mask_S: Tensor, episode_S: Tensor, rewards_E: Tensor, group_E: Tensor, tau: float
) -> Tensor:
    """Each episode's share of its group, divided by the number of groups, at its tokens, (S).

    L = mean over groups of sum_b softmax(R / tau)_b * sum_s CE_bs (Lever-Plus, "RCE";
    reward-weighted SFT in the literature). `episode_S` counts rows of `rewards_E`. A group of
    equal rewards imitates all its episodes alike: it is not silent here.
    """
    _, groups = compact(group_E)
    shares_E = rce_shares(rewards_E, group_E, tau).float() / max(groups, 1)
    return torch.where(mask_S, shares_E[episode_S], 0.0)


def rce_tau(step: int, steps: int, start: float = 2.0, end: float = 0.5) -> float:
    """Temperature of optimizer step `step` (from 0) of `steps`: linear from `start` to `end`."""
    return start + (end - start) * step / max(steps - 1, 1)
