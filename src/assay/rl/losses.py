"""Per-token policy losses and their register, `LOSSES`.

A loss is a function of log-probs and advantages that gives one number per token. It does not
average (`aggregation`) and adds neither KL nor entropy (`objectives`). Adding one: write
`fn(batch, clip) -> TokenLoss` and enter it in `LOSSES` with its atom.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from assay.rl.advantages import group_sum

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


def gpg(batch: TokenBatch, clip: Clip) -> TokenLoss:
    """-A logp (REINFORCE; GPG, arXiv 2504.02546). Neither the ratio nor `clip` is used.

    Meant for one update per rollout: nothing corrects for a policy that has moved since.
    """
    return token_loss(batch, -batch.advantage_S * batch.logps_S, clamped_log_ratio(batch))


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


BOUNDS = frozenset({"low", "high"})


@dataclass(frozen=True)
class PolicyLoss:
    """A loss function, the smallest piece it can be computed on, and what it reads of `Clip`."""

    function: LossFunction
    atom: Atom
    reads: frozenset[str] = BOUNDS

    def __call__(self, batch: TokenBatch, clip: Clip) -> TokenLoss:
        """The loss of every token."""
        return self.function(batch, clip)


LOSSES: dict[str, PolicyLoss] = {
    "ppo_clip": PolicyLoss(ppo_clip, "token", BOUNDS | {"dual"}),
    "gspo": PolicyLoss(gspo, "episode"),
    "cispo": PolicyLoss(cispo, "token"),
    "geo_mean": PolicyLoss(geo_mean, "episode"),
    "sapo": PolicyLoss(sapo, "token", frozenset({"tau_positive", "tau_negative"})),
    "gpg": PolicyLoss(gpg, "token", frozenset()),
    "sequence_clip": PolicyLoss(sequence_clip, "episode"),
}
