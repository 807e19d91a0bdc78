"""CISPO: clip the weight, not the gradient."""

from assay.rl.policy_losses.loss_batch import (
    Clip,
    TokenBatch,
    TokenLoss,
    clamped_log_ratio,
    token_loss,
)


def cispo(batch: TokenBatch, clip: Clip) -> TokenLoss:
    """-sg[clip(rho, 1 - low, 1 + high)] A logp (MiniMax-M1, arXiv 2506.13585).

    Clipped tokens keep a gradient, through logp alone. low >= 1 means no lower bound.
    """
    log_ratio_S = clamped_log_ratio(batch)
    ratio_S = log_ratio_S.detach().exp()
    weight_S = ratio_S.clamp(1 - clip.low, 1 + clip.high)
    return token_loss(
        batch,
        -weight_S * batch.advantage_S * batch.logps_S,
        log_ratio_S,
        low_S=ratio_S < weight_S,
        high_S=ratio_S > weight_S,
    )
