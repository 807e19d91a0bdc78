"""PPO's clipped surrogate with separate bounds and an optional dual clip."""

import torch

from assay.rl.policy_losses.loss_batch import (
    Clip,
    TokenBatch,
    TokenLoss,
    clamped_log_ratio,
    token_loss,
)


def ppo_clip(batch: TokenBatch, clip: Clip) -> TokenLoss:
    """-min(rho A, clip(rho, 1 - low, 1 + high) A) (PPO, arXiv 1707.06347; GRPO uses it as it is).

    Different bounds are DAPO's Clip-Higher (arXiv 2503.14476). `clip.dual` caps the loss of a
    negative advantage at -dual * A (arXiv 1912.09729). As verl's `vanilla`.
    """
    log_ratio_S = clamped_log_ratio(batch)
    ratio_S = log_ratio_S.exp()
    advantage_S = batch.advantage_S
    plain_S = -advantage_S * ratio_S
    bounded_S = -advantage_S * ratio_S.clamp(1 - clip.low, 1 + clip.high)
    loss_S = torch.maximum(plain_S, bounded_S)
    negative_S = advantage_S < 0
    dual_S = None
    if clip.dual is not None:
        cap_S = -advantage_S * clip.dual
        dual_S = negative_S & (loss_S > cap_S)
        loss_S = torch.where(negative_S, torch.minimum(loss_S, cap_S), loss_S)
    held_S = bounded_S > plain_S
    return token_loss(
        batch,
        loss_S,
        log_ratio_S,
        low_S=held_S & negative_S,
        high_S=held_S & ~negative_S,
        dual_S=dual_S,
    )
