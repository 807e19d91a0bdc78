"""Objectives: pure functions of scores and a packed batch; `Needs` states what else they read.

`NllObjective` is the weighted negative log-likelihood of SFT, RFT and RCE, which differ in
`packed.weight_S` alone. `DistillObjective` is the weighted divergence from a teacher.
`GrpoObjective` is a policy loss with optional KL and entropy terms, corrected for the gap between
rollout and training. None of them computes scores or weights.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch
from torch import Tensor

from assay.errors import RunFailure, look_up
from assay.rl.advantages import masked_sum
from assay.rl.aggregation import (
    Importance,
    aggregate,
    beyond_bounds,
    importance_weights,
    log_ratios,
)
from assay.rl.kl import SEQUENCE_KL, check_kl_loss, k3, kl_loss, sequence_kl
from assay.rl.losses import LOSSES, Clip, TokenBatch, TokenLoss, clamped_log_ratio
from assay.rl.packed import Packed
from assay.rl.policy import ActionScores
from assay.rl.sampling_proof import TOLD, told_sums

Atom = Literal["turn", "episode", "group", "pair"]
"""The piece of a batch that micro-batching must keep together."""


@dataclass(frozen=True)
class Needs:
    """What must be worked out before or with the scores."""

    old: bool = False
    """`packed.old_S`: several updates are made from one rollout."""
    reference: bool = False
    """`packed.reference_S`."""
    entropy: bool = False
    """`scores.entropy_S`, with gradient."""


@dataclass(frozen=True)
class ObjectiveOutput:
    """Loss and metrics of a micro-batch; all but the coefficients add over micro-batches."""

    loss: Tensor
    """Scalar with gradient."""
    sums: dict[str, Tensor]
    """Detached scalars, sums over trained tokens; "tokens" is how many there were. Those named in
    `train.metric_names.PREFERENCE` are sums over "pairs"."""
    parts: dict[str, Tensor]
    """sum(weight_S * part_S) of each part of the loss, detached, float64: the loss is
    sum(coefficient * part)."""
    coefficients: Mapping[str, float]
    """By part, 0 for one that is off; one that is subtracted has a negative coefficient."""
    size: Tensor
    """sum(weight_S * |loss_S|), which rounding errors of the loss are a share of."""


def output(
    packed: Packed,
    loss_S: Tensor,
    parts_S: Mapping[str, Tensor],
    coefficients: Mapping[str, float],
    sums: dict[str, Tensor],
) -> ObjectiveOutput:
    """The answer of an objective whose token losses (S) are the weighted sum of `parts_S`."""
    # Terms of opposite sign cancel, and float32 would leave noise of the parts.
    weight_S = packed.weight_S.double()
    parts = {name: (weight_S * part_S.detach()).sum() for name, part_S in parts_S.items()}
    size = (weight_S * loss_S.detach().abs()).sum()
    return ObjectiveOutput(aggregate(packed.weight_S, loss_S), sums, parts, coefficients, size)


class Objective(Protocol):
    """A training method as the shared loop sees it."""

    @property
    def needs(self) -> Needs:
        """What the loop must supply."""
        ...

    @property
    def atom(self) -> Atom:
        """What micro-batching must not cut."""
        ...

    def __call__(self, scores: ActionScores, packed: Packed) -> ObjectiveOutput:
        """Loss and metrics of one micro-batch."""
        ...


@dataclass(frozen=True)
class NllObjective:
    """sum(weight_S * -logp_S): the likelihood of SFT, RFT and RCE.

    Weights are made by `aggregation.sft_weights` and `aggregation.rce_weights`.
    """

    needs: Needs = field(default_factory=Needs)
    atom: Atom = "turn"

    def __call__(self, scores: ActionScores, packed: Packed) -> ObjectiveOutput:
        """Metric: nll, the unweighted negative log-likelihood; part: nll_loss, the weighted one."""
        nll_S = -scores.logps_S
        sums = {
            "tokens": packed.mask_S.sum().float(),
            "nll": masked_sum(nll_S.detach(), packed.mask_S),
        }
        return output(packed, nll_S, {"nll_loss": nll_S}, {"nll_loss": 1.0}, sums)


@dataclass(frozen=True)
class DistillObjective:
    """sum(weight_S * divergence_S) from the batch's teacher (GKD, arXiv 2306.13649)."""

    needs: Needs = field(default_factory=Needs)
    atom: Atom = "turn"

    def __call__(self, scores: ActionScores, packed: Packed) -> ObjectiveOutput:
        """Part: distill_loss. Metrics: means over tokens, `own_divergence` over those that the
        student sampled. Raises RunFailure."""
        if scores.compared is None or packed.own_S is None:
            raise RunFailure("distillation needs a teacher")
        compared, own_S, teacher = scores.compared, packed.own_S, packed.teacher
        divergence_S = compared.divergence_S
        per_token = {
            "divergence": divergence_S.detach(),
            "teacher_agreement": compared.agrees_S,
            "entropy": compared.entropy_S,
            "on_policy_share": own_S.float(),
        }
        if teacher is not None and teacher.top_k is not None:
            per_token["teacher_tail"] = compared.tail_S
            if teacher.words is not None:
                per_token["divergence_gap"] = compared.exact_S - divergence_S.detach()
        sums = {name: masked_sum(value_S, packed.mask_S) for name, value_S in per_token.items()}
        sums |= {"tokens": packed.mask_S.sum().float(), "own_tokens": own_S.sum().float()}
        sums["own_divergence"] = masked_sum(divergence_S.detach(), own_S)
        if packed.behaviour_S is not None:
            gap_S = (scores.logps_S - packed.behaviour_S).abs()
            sums["rollout_gap_mean"] = masked_sum(gap_S, own_S)
        return output(
            packed, divergence_S, {"distill_loss": divergence_S}, {"distill_loss": 1.0}, sums
        )


def high_entropy_mask(entropy_S: Tensor, mask_S: Tensor, share: float) -> Tensor:
    """Bool (S): the `share` of the kept tokens with the highest entropy.

    Those at or above the (1 - share) quantile ("Beyond the 80/20 Rule", arXiv 2506.01939), as TRL's
    `top_entropy_quantile`; ties at the quantile are all kept.
    """
    if not mask_S.any():
        return torch.zeros_like(mask_S)
    least = torch.quantile(entropy_S[mask_S].float(), 1 - share)
    return mask_S & (entropy_S.float() >= least)


@dataclass(frozen=True)
class GrpoObjective:
    """The policy-gradient objective of GRPO and its relatives.

    loss = sum weight * (c * policy loss + kl_coef * KL - entropy_coef * entropy). Ratios use the
    training forward's own log-probs. c, detached, corrects for a rollout whose numerics or engine
    differ from training's (`rl.importance`). Raises InputError for k1 as a loss and
    InputError for unknown names, when made.
    """

    loss: str = "ppo_clip"
    clip: Clip = field(default_factory=Clip)
    kl_coef: float = 0.0
    """Of the KL term in the loss; a KL in the reward is part of the advantage."""
    kl_estimator: str = "k3"
    entropy_coef: float = 0.0
    importance: Importance = Importance()
    """How c is made; the gap is measured even where it is off."""
    several_updates: bool = False
    """More than one update per rollout, so that `packed.old_S` is needed."""

    def __post_init__(self) -> None:
        look_up(LOSSES, self.loss, "loss")
        if self.kl_coef:
            check_kl_loss(self.kl_estimator)

    @property
    def needs(self) -> Needs:
        """What this choice of terms reads."""
        return Needs(self.several_updates, self.kl_coef != 0, self.entropy_coef != 0)

    @property
    def atom(self) -> Atom:
        """An episode for sequence ratios and a KL of sequences, else a single turn."""
        whole = "episode" in (LOSSES[self.loss].atom, self.importance.atom)
        whole |= self.kl_coef != 0 and self.kl_estimator in SEQUENCE_KL
        return "episode" if whole else "turn"

    @property
    def raises_clip(self) -> bool:
        """Whether there is a Clip-Higher: `clip_raised_share` counts the tokens whose ratio is
        above what a bound as near as the lower one would let through: none with a single update."""
        return self.loss == "ppo_clip" and self.clip.high > self.clip.low

    def __call__(self, scores: ActionScores, packed: Packed) -> ObjectiveOutput:
        """Loss and metrics, named as a run's metrics name them; raises RunFailure."""
        batch = self._token_batch(scores, packed)
        policy = LOSSES[self.loss](batch, self.clip)
        loss_S = heard(packed, policy.loss_S)
        sums = _sums(scores, packed, batch, policy)
        if self.raises_clip:
            raised_S = (policy.log_ratio_S.exp() > 1 + self.clip.low) & (batch.advantage_S > 0)
            sums["clip_raised_share"] = masked_sum(raised_S.float(), packed.mask_S)
        if self.importance.how != "off" and packed.behaviour_S is not None:
            gap_S = _gap(batch, packed.behaviour_S)
            ratio_S = log_ratios(self.importance, gap_S, packed.mask_S, batch.episode_S)
            loss_S = loss_S * importance_weights(self.importance, ratio_S)
            beyond_S = beyond_bounds(self.importance, ratio_S)
            sums["importance_cut_share"] = masked_sum(beyond_S.float(), packed.mask_S)
        parts_S = {"policy_loss": loss_S}
        if self.kl_coef:
            parts_S["kl_loss"] = self._kl(batch, packed)
            loss_S = loss_S + self.kl_coef * parts_S["kl_loss"]
        if self.entropy_coef:
            parts_S["entropy_bonus"] = heard(packed, _entropy(scores))
            loss_S = loss_S - self.entropy_coef * parts_S["entropy_bonus"]
        factors = {
            "policy_loss": 1.0,
            "kl_loss": self.kl_coef,
            "entropy_bonus": -self.entropy_coef,
        }
        return output(packed, loss_S, parts_S, factors, sums)

    def _token_batch(self, scores: ActionScores, packed: Packed) -> TokenBatch:
        old_S = packed.old_S
        if old_S is None:
            if self.several_updates:
                raise RunFailure("several updates per rollout need log-probs from before them")
            old_S = scores.logps_S.detach()
        return TokenBatch(
            scores.logps_S, old_S, packed.advantage_S, packed.mask_S, packed.episode_S
        )

    def _kl(self, batch: TokenBatch, packed: Packed) -> Tensor:
        if packed.reference_S is None:
            raise RunFailure("the KL term needs log-probs of the reference")
        if self.kl_estimator in SEQUENCE_KL:
            inputs = batch.logps_S, packed.reference_S, batch.mask_S, batch.episode_S
            return sequence_kl(self.kl_estimator, *inputs)
        return kl_loss(
            self.kl_estimator, batch.logps_S, packed.reference_S, clamped_log_ratio(batch)
        )


def heard(packed: Packed, values_S: Tensor) -> Tensor:
    """The values where the batch's policy mask, if it has one, lets them count; else 0."""
    if packed.policy_mask_S is None:
        return values_S
    return torch.where(packed.policy_mask_S, values_S, 0.0)


def _gap(batch: TokenBatch, behaviour_S: Tensor) -> Tensor:
    """log(training / rollout) at the weights that sampled. (S)"""
    return batch.old_S - behaviour_S


def _entropy(scores: ActionScores) -> Tensor:
    if scores.entropy_S is None or not scores.entropy_S.requires_grad:
        raise RunFailure("the entropy bonus needs entropies with gradient")
    return scores.entropy_S


def _sums(
    scores: ActionScores, packed: Packed, batch: TokenBatch, policy: TokenLoss
) -> dict[str, Tensor]:
    per_token = {
        "clip_low_share": policy.clip_low_S,
        "clip_high_share": policy.clip_high_S,
        "dual_clip_share": policy.dual_clip_S,
        "policy_kl": -policy.log_ratio_S,
    }
    if packed.reference_S is not None:
        per_token["kl"] = k3(batch.logps_S.detach(), packed.reference_S)
    if scores.entropy_S is not None:
        per_token["entropy"] = scores.entropy_S.detach()
    if packed.behaviour_S is not None:
        gap_S = _gap(batch, packed.behaviour_S)
        per_token["rollout_gap_mean"] = gap_S.abs()
        # The tokens were sampled by the rollout's policy, so this is KL(rollout || training).
        per_token["rollout_gap_k3"] = k3(packed.behaviour_S, batch.old_S)
    sums = {name: masked_sum(values_S, packed.mask_S) for name, values_S in per_token.items()}
    return {"tokens": packed.mask_S.sum().float()} | sums | _told(packed, batch)


def _told(packed: Packed, batch: TokenBatch) -> dict[str, Tensor]:
    """What the rollout's log-probs add to the proof of it, by names that begin with TOLD."""
    if packed.behaviour_S is None or packed.excess_S is None:
        return {}
    told_S, own_S, excess_S = (
        each_S[packed.mask_S].double().cpu().numpy()
        for each_S in (packed.behaviour_S, batch.old_S.detach(), packed.excess_S)
    )
    sums = told_sums(told_S - own_S, excess_S)
    return {TOLD + name: torch.tensor(value) for name, value in sums.items()}
