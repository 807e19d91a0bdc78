"""REINFORCE++ and its baseline form: advantages whitened over all trained tokens of the batch.

Whitening shifts every token by the batch mean, so a group of equal rewards does carry a gradient
here; such groups must not be dropped beforehand (`assay.rl.signal.may_drop`).
"""

import torch
from torch import Tensor

from assay.rl.estimators.advantage_batch import (
    AdvantageInput,
    AdvantageOptions,
    centred_E,
    to_tokens,
)
from assay.rl.masked import masked_whiten


def returns_to_go(batch: AdvantageInput, gamma: float) -> Tensor:
    """Discounted sum of the rewards from each trained token to its episode's end.

    The episode's reward is earned at its last trained token; untrained tokens are passed over
    without a discount. (S), float64, 0 where not trained.
    """
    episodes, rewards = batch.episode_S.tolist(), batch.rewards_E.tolist()
    trained = batch.mask_S.tolist()
    immediate = [0.0] * len(episodes)
    if batch.token_rewards_S is not None:
        immediate = batch.token_rewards_S.tolist()
    returns = [0.0] * len(episodes)
    following: dict[int, float] = {}
    for s in reversed(range(len(episodes))):
        if trained[s]:
            episode = episodes[s]
            later = gamma * following[episode] if episode in following else rewards[episode]
            returns[s] = following[episode] = immediate[s] + later
    return torch.tensor(returns, dtype=torch.float64, device=batch.mask_S.device)


def reinforce_pp(batch: AdvantageInput, options: AdvantageOptions) -> Tensor:
    """Return-to-go, whitened over the batch's trained tokens (REINFORCE++, arXiv 2501.03262).

    Reads `gamma`, `equal`; exactly 0 where all returns of the batch are equal.
    """
    return _whitened(batch, returns_to_go(batch, options.gamma), options)


def reinforce_pp_baseline(batch: AdvantageInput, options: AdvantageOptions) -> Tensor:
    """r - mean of the group, whitened over the batch's trained tokens (arXiv 2501.03262).

    Reads `lone`, `equal`.
    """
    values_S = to_tokens(batch, centred_E(batch, options)).double()
    return _whitened(batch, values_S, options)


def _whitened(batch: AdvantageInput, values_S: Tensor, options: AdvantageOptions) -> Tensor:
    kept = values_S[batch.mask_S]
    if len(kept) == 0 or kept.max() - kept.min() <= options.equal:
        return torch.zeros_like(values_S, dtype=torch.float32)
    # In float32 as verl, whose published numbers include its rounding where rewards are large.
    whitened_S = masked_whiten(values_S.float(), batch.mask_S)
    return torch.where(batch.mask_S, whitened_S, 0.0)
