"""What every policy loss reads and answers, and the ratio they share.

A loss is a function of log-probs and advantages that answers one number per token; averaging is
`assay.rl.aggregation`'s, KL and entropy terms are the objective's.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Atom = Literal["token", "episode"]
"""The smallest piece a loss can be computed on: a token alone, or an episode's tokens together."""


@dataclass(frozen=True)
class TokenBatch:
    """S action tokens laid end to end."""

    logps_S: Tensor
    """Log-probs under the policy in training, with gradient."""
    old_S: Tensor
    """Log-probs before this rollout's first update, without gradient."""
    advantage_S: Tensor
    mask_S: Tensor
    """Bool: tokens that are trained."""
    episode_S: Tensor
    """Index of each token's episode (long, any numbering)."""


@dataclass(frozen=True)
class Clip:
    """Where a loss stops trusting the ratio of new to old probability."""

    low: float = 0.2
    """Ratios below 1 - low are clipped."""
    high: float = 0.2
    """Ratios above 1 + high are clipped."""
    dual: float | None = None
    """ppo_clip: with a negative advantage the loss is capped at -dual * advantage."""
    tau_positive: float = 1.0
    """sapo: steepness of the gate where the advantage is positive."""
    tau_negative: float = 1.05
    """sapo: steepness of the gate elsewhere."""


@dataclass(frozen=True)
class TokenLoss:
    """Loss and clip flags per token, 0 where masked. Sums over tokens add over micro-batches."""

    loss_S: Tensor
    """To be minimised; with gradient."""
    log_ratio_S: Tensor
    """log(new / old), detached; minus its mean is verl's `ppo_kl`."""
    clip_low_S: Tensor
    """1.0 where the lower bound holds the ratio."""
    clip_high_S: Tensor
    """1.0 where the upper bound holds the ratio."""
    dual_clip_S: Tensor
    """1.0 where the dual clip caps the loss."""


LossFunction = Callable[[TokenBatch, Clip], TokenLoss]


def log_ratio(batch: TokenBatch) -> Tensor:
    """logp - old at trained tokens, 0 elsewhere, with gradient. (S)"""
    return torch.where(batch.mask_S, batch.logps_S - batch.old_S, 0.0)


def clamped_log_ratio(batch: TokenBatch) -> Tensor:
    """The same held in [-20, 20], so that its exponential stays finite (verl). (S)"""
    return log_ratio(batch).clamp(-20, 20)


def token_loss(
    batch: TokenBatch,
    loss_S: Tensor,
    log_ratio_S: Tensor,
    *,
    low_S: Tensor | None = None,
    high_S: Tensor | None = None,
    dual_S: Tensor | None = None,
) -> TokenLoss:
    """The answer of a loss function; flags not given are 0 everywhere."""

    def flag(where_S: Tensor | None) -> Tensor:
        if where_S is None:
            return torch.zeros_like(batch.mask_S, dtype=torch.float32)
        return (where_S & batch.mask_S).float()

    return TokenLoss(
        loss_S=torch.where(batch.mask_S, loss_S, 0.0),
        log_ratio_S=log_ratio_S.detach(),
        clip_low_S=flag(low_S),
        clip_high_S=flag(high_S),
        dual_clip_S=flag(dual_S),
    )
