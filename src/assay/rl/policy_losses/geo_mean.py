"""GMPO: the geometric mean of an episode's clipped ratios."""

import torch

from assay.rl.group_arithmetic import group_sum
from assay.rl.policy_losses.loss_batch import (
    Clip,
    TokenBatch,
    TokenLoss,
    clamped_log_ratio,
    token_loss,
)


def geo_mean(batch: TokenBatch, clip: Clip) -> TokenLoss:
    """-A exp(mean_t of the clipped log ratios) at every token of an episode.

    (GMPO, arXiv 2507.20673; verl's `geo_mean`.) The bounds [-low, high] hold log ratios, on the
    side that the sign of A makes pessimistic; A is the episode's mean advantage. With
    seq_mean_token_mean the episode counts once, as in the paper. The flags are verl's: log ratio
    outside the bounds, `clip_high` where A > 0 and `clip_low` where A < 0.
    """
    log_ratio_S = clamped_log_ratio(batch)
    bounded_S = log_ratio_S.clamp(-clip.low, clip.high)
    sign_S = batch.advantage_S.sign()
    pessimistic_S = sign_S * torch.minimum(sign_S * log_ratio_S, sign_S * bounded_S)
    tokens_S = group_sum(batch.mask_S.float(), batch.episode_S).clamp(min=1)
    ratio_S = (group_sum(pessimistic_S, batch.episode_S) / tokens_S).exp()
    kept_S = torch.where(batch.mask_S, batch.advantage_S, 0.0)
    advantage_S = group_sum(kept_S, batch.episode_S) / tokens_S
    outside_S = log_ratio_S != bounded_S
    return token_loss(
        batch,
        -advantage_S * ratio_S,
        log_ratio_S,
        low_S=outside_S & (batch.advantage_S < 0),
        high_S=outside_S & (batch.advantage_S > 0),
    )
