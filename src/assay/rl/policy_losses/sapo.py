"""SAPO: a smooth gate in place of the clip."""

import torch

from assay.rl.policy_losses.loss_batch import (
    Clip,
    TokenBatch,
    TokenLoss,
    clamped_log_ratio,
    token_loss,
)


def sapo(batch: TokenBatch, clip: Clip) -> TokenLoss:
    """-A (4 / tau) sigmoid(tau (rho - 1)) (SAPO, arXiv 2511.20347; verl's `sapo`).

    tau is `tau_positive` where A > 0, else `tau_negative`; the bounds of `clip` are not read. At
    rho = 1 the gate's slope is 1, so the gradient is the policy gradient. Averaged with
    seq_mean_token_mean.
    """
    log_ratio_S = clamped_log_ratio(batch)
    tau_S = torch.where(batch.advantage_S > 0, clip.tau_positive, clip.tau_negative)
    gate_S = torch.sigmoid(tau_S * (log_ratio_S.exp() - 1)) * (4 / tau_S)
    return token_loss(batch, -batch.advantage_S * gate_S, log_ratio_S)
