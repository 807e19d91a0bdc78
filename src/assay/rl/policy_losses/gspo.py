"""GSPO: the ratio of a whole sequence, clipped as one."""

import torch

from assay.rl.group_arithmetic import group_sum
from assay.rl.policy_losses.loss_batch import Clip, TokenBatch, TokenLoss, log_ratio, token_loss


def gspo(batch: TokenBatch, clip: Clip) -> TokenLoss:
    """-min(s A, clip(s, 1 - low, 1 + high) A), s = exp(mean of the episode's log ratios).

    (GSPO, arXiv 2507.18071.) Token form s_t = sg[s] * p_t / sg[p_t], log clamped at 10, as verl;
    the paper averages with seq_mean_token_mean.
    """
    log_ratio_S = log_ratio(batch)
    tokens_S = group_sum(batch.mask_S.float(), batch.episode_S).clamp(min=1)
    mean_S = group_sum(log_ratio_S, batch.episode_S) / tokens_S
    token_S = batch.logps_S - batch.logps_S.detach()
    ratio_S = (token_S + mean_S.detach()).clamp(max=10.0).exp()
    plain_S = -batch.advantage_S * ratio_S
    bounded_S = -batch.advantage_S * ratio_S.clamp(1 - clip.low, 1 + clip.high)
    held_S = bounded_S > plain_S
    negative_S = batch.advantage_S < 0
    return token_loss(
        batch,
        torch.maximum(plain_S, bounded_S),
        log_ratio_S,
        low_S=held_S & negative_S,
        high_S=held_S & ~negative_S,
    )
