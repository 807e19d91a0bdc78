"""EGPO: GRPO's advantage plus a bonus for entropy in the chain of thought, in two forms.

With A the GRPO advantage and E the mean entropy of an episode's chain-of-thought tokens (nats):
  egpo              A + min(lambda * E, |A| / alpha)       arXiv 2508.05118 v4, eq. 5
  egpo_scaled_clip  A + lambda * clip(E, -|A|/alpha, |A|/alpha)   zhangdw156/verl 0350dd9c
The bonus is never negative and smaller than |A| (alpha > 1), so no sign flips, and A = 0 gets
none. Finding the tokens of the chain of thought is `rl.thought`'s part.
"""

import torch
from torch import Tensor

from assay.errors import InputError
from assay.rl.estimators.advantage_batch import (
    AdvantageInput,
    AdvantageOptions,
    sum_by_episode,
    to_tokens,
)
from assay.rl.estimators.group import standardised_E


class NoChainOfThought(InputError):
    """The estimator needs entropies or chain-of-thought marks that this run does not make."""


def egpo(batch: AdvantageInput, options: AdvantageOptions) -> Tensor:
    """A + min(lambda * E, |A| / alpha) (arXiv 2508.05118 v4, eq. 5).

    Reads what `grpo` reads, `bonus_scale` (lambda), `bonus_cap` (alpha). Raises NoChainOfThought.
    """
    return _with_bonus(batch, options, options.bonus_scale)


def egpo_scaled_clip(batch: AdvantageInput, options: AdvantageOptions) -> Tensor:
    """A + lambda * clip(E, -|A| / alpha, |A| / alpha) (zhangdw156/verl 0350dd9c).

    The cap lies at lambda * |A| / alpha, below the paper's. Reads what `egpo` reads. Raises
    NoChainOfThought.
    """
    return _with_bonus(batch, options, 1.0)


def egpo_diagnostics(batch: AdvantageInput, options: AdvantageOptions) -> dict[str, float]:
    """What `egpo` did to this batch; see `_diagnostics`."""
    return _diagnostics(batch, options, options.bonus_scale)


def egpo_scaled_clip_diagnostics(
    batch: AdvantageInput, options: AdvantageOptions
) -> dict[str, float]:
    """What `egpo_scaled_clip` did to this batch; see `_diagnostics`."""
    return _diagnostics(batch, options, 1.0)


def _with_bonus(batch: AdvantageInput, options: AdvantageOptions, inner: float) -> Tensor:
    advantage_E = standardised_E(batch, options)
    return to_tokens(batch, advantage_E + _bonus_E(batch, advantage_E, options, inner))


def _bonus_E(
    batch: AdvantageInput, advantage_E: Tensor, options: AdvantageOptions, inner: float
) -> Tensor:
    """Both forms are (lambda / inner) * min(inner * E, |A| / alpha), inner = lambda or 1."""
    capped_E = torch.minimum(
        inner * _thought_entropy_E(batch), advantage_E.abs() / options.bonus_cap
    )
    return options.bonus_scale / inner * capped_E


def _thought_mask(batch: AdvantageInput) -> Tensor:
    if batch.cot_mask_S is None:
        raise NoChainOfThought(
            "egpo needs to know which tokens are chain of thought",
            fix="name the model's thinking tags, or choose another algorithm",
        )
    return batch.cot_mask_S & batch.mask_S


def _thought_entropy_E(batch: AdvantageInput) -> Tensor:
    """Mean entropy over each episode's chain of thought, detached; 0 where there is none."""
    mask_S = _thought_mask(batch)
    if batch.entropy_S is None:
        raise NoChainOfThought("egpo needs the policy's entropy at every token")
    tokens_E = sum_by_episode(batch, torch.ones_like(mask_S), mask_S)
    total_E = sum_by_episode(batch, batch.entropy_S.detach(), mask_S)
    # Entropy summed in float32 may come out a hair below 0, and the bonus may not.
    return (total_E / tokens_E.clamp(min=1)).clamp(min=0)


def _diagnostics(
    batch: AdvantageInput, options: AdvantageOptions, inner: float
) -> dict[str, float]:
    """cot_tokens_mean, share_without_cot and bonus_mean over episodes; share_capped over the
    episodes with an advantage other than 0: those whose entropy reached beyond the cap; and
    bonus_to_advantage, the sum of all bonuses over that of all |advantages| without them.
    """
    mask_S = _thought_mask(batch)
    tokens_E = sum_by_episode(batch, torch.ones_like(mask_S), mask_S)
    advantage_E = standardised_E(batch, options)
    beyond_E = inner * _thought_entropy_E(batch) > advantage_E.abs() / options.bonus_cap
    heard_E = advantage_E != 0
    capped = (beyond_E & heard_E).sum() / heard_E.sum().clamp(min=1)
    bonus_E = _bonus_E(batch, advantage_E, options, inner)
    size = advantage_E.abs().sum()
    return {
        "cot_tokens_mean": tokens_E.mean().item(),
        "share_without_cot": (tokens_E == 0).double().mean().item(),
        "bonus_mean": bonus_E.mean().item(),
        "bonus_to_advantage": (bonus_E.sum() / size).item() if size else 0.0,
        "share_capped": capped.item(),
    }
