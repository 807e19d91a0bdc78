"""PPO's clipped surrogate on the probability of a whole completion, as TRL's RLOO takes it."""

import torch

from assay.rl.group_arithmetic import group_sum
from assay.rl.policy_losses.loss_batch import Clip, TokenBatch, TokenLoss, log_ratio, token_loss


def sequence_clip(batch: TokenBatch, clip: Clip) -> TokenLoss:
    """-min(w A, clip(w, 1 - low, 1 + high) A) / |o| at every token, w = exp(sum of log ratios).

    The ratio is the product over the episode's |o| tokens, not their mean as in `gspo`; with
    seq_mean_token_sum an episode counts once (TRL's `RLOOTrainer`). The sum is held in [-20, 20],
    so that w stays finite, which TRL does not; A is the episode's, one for all its tokens.
    """
    log_ratio_S = log_ratio(batch)
    tokens_S = group_sum(batch.mask_S.float(), batch.episode_S).clamp(min=1)
    ratio_S = group_sum(log_ratio_S, batch.episode_S).clamp(-20, 20).exp()
    plain_S = -batch.advantage_S * ratio_S
    bounded_S = -batch.advantage_S * ratio_S.clamp(1 - clip.low, 1 + clip.high)
    held_S = bounded_S > plain_S
    negative_S = batch.advantage_S < 0
    return token_loss(
        batch,
        torch.maximum(plain_S, bounded_S) / tokens_S,
        log_ratio_S,
        low_S=held_S & negative_S,
        high_S=held_S & ~negative_S,
    )
