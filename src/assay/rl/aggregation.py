"""The four ways to average token losses, as one weight per token.

loss = sum(weight_S * loss_S). All denominators are taken over the optimizer batch that the
tensors describe, so the losses of any split into micro-batches add up to the loss of the whole.
Names are verl's `loss_agg_mode`. What the loss is stands in `policy_losses/`.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from torch import Tensor

from assay.errors import InputError
from assay.rl.group_arithmetic import group_sum
from assay.rl.look_up import look_up

Aggregation = Literal[
    "token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "seq_mean_token_sum_norm"
]
AGGREGATIONS: dict[str, Aggregation] = {mode: mode for mode in get_args(Aggregation)}


class MissingScale(InputError):
    """seq_mean_token_sum_norm divides by a constant that was not given."""


@dataclass(frozen=True)
class Dropped:
    """What was left out of the batch before any forward pass but stays in the denominators."""

    tokens: int = 0
    episodes: int = 0


def token_weights(
    mode: str,
    mask_S: Tensor,
    episode_S: Tensor,
    *,
    scale: float | None = None,
    dropped: Dropped | None = None,
) -> Tensor:
    """Weight of every token's loss, (S), float32, 0 where masked.

    With T trained tokens, E episodes that have any, and |o| trained tokens of the token's episode
    (`dropped` adds to T and E):
      token_mean               1 / T          (DAPO, arXiv 2503.14476; verl's default)
      seq_mean_token_mean      1 / (E |o|)    (GRPO, arXiv 2402.03300)
      seq_mean_token_sum       1 / E
      seq_mean_token_sum_norm  1 / scale      (Dr. GRPO, arXiv 2503.20783: scale = number of
                                               episodes times the generation limit, see
                                               `constant_scale`; verl: `loss_scale_factor`)
    Raises UnknownName, and MissingScale where the last mode is asked for without `scale`.
    """
    look_up(AGGREGATIONS, mode, "aggregation")
    extra = dropped or Dropped()
    kept_S = mask_S.float()
    if mode == "token_mean":
        return kept_S / (kept_S.sum() + extra.tokens).clamp(min=1)
    if mode == "seq_mean_token_sum_norm":
        if scale is None:
            raise MissingScale(f"{mode} needs the constant it divides by", fix="pass scale")
        return kept_S / scale
    episodes = len(episode_S[mask_S].unique()) + extra.episodes
    weight_S = kept_S / max(episodes, 1)
    if mode == "seq_mean_token_mean":
        weight_S = weight_S / group_sum(kept_S, episode_S).clamp(min=1)
    return weight_S


def constant_scale(episodes: int, max_tokens: int) -> float:
    """Dr. GRPO's denominator: every episode counts as if it had used the whole generation limit.

    `episodes` includes dropped ones.
    """
    return float(episodes * max_tokens)


def aggregate(weight_S: Tensor, loss_S: Tensor) -> Tensor:
    """sum(weight_S * loss_S), a scalar."""
    return (weight_S * loss_S).sum()
