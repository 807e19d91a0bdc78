"""The plain policy gradient."""

from assay.rl.policy_losses.loss_batch import (
    Clip,
    TokenBatch,
    TokenLoss,
    clamped_log_ratio,
    token_loss,
)


def gpg(batch: TokenBatch, clip: Clip) -> TokenLoss:
    """-A logp (REINFORCE; GPG, arXiv 2504.02546). Neither the ratio nor `clip` is used.

    Meant for one update per rollout: nothing corrects for a policy that has moved since.
    """
    return token_loss(batch, -batch.advantage_S * batch.logps_S, clamped_log_ratio(batch))
