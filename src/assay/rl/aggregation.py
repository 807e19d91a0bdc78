"""Token weights: the four ways to average token losses, and the weights of the likelihood methods.

loss = sum(weight_S * loss_S). All denominators are taken over the optimizer batch that the tensors
describe, so the losses of any split into micro-batches add up to the loss of the whole. Modes are
named as verl's `loss_agg_mode`. Losses are in `losses` and `objectives`.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from assay.errors import InputError, look_up
from assay.rl.advantages import compact, group_sum

SAFE = 20.0
"""The log of a sequence's ratio is held in [-20, 20], so that it stays finite (verl)."""


@dataclass(frozen=True, slots=True)
class Importance:
    """How the correction is made: token ratios truncated at 2, unless set otherwise.

    `truncate` holds ratios at the bounds (TIS); `mask` gives tokens, or sequences, beyond them
    weight 0, and they stay in the denominators (TRL's `token_mask`, `sequence_mask`). verl's
    `rollout_is` truncates from above alone; its `rollout_rs` takes masked tokens out of the
    denominators as well.
    """

    mode: Literal["token", "sequence"] = "token"
    how: Literal["truncate", "mask", "off"] = "truncate"
    low: float | None = None
    high: float = 2.0

    @property
    def atom(self) -> Literal["token", "episode"]:
        """The smallest piece that weights can be computed on."""
        return "episode" if self.mode == "sequence" and self.how != "off" else "token"


def log_ratios(importance: Importance, gap_S: Tensor, mask_S: Tensor, episode_S: Tensor) -> Tensor:
    """log c before the bounds (S): `gap_S`, log(training / rollout), of the token itself, or summed
    over the trained tokens of its episode."""
    if importance.mode == "token":
        return gap_S
    return group_sum(torch.where(mask_S, gap_S, 0.0), episode_S).clamp(-SAFE, SAFE)


def importance_weights(importance: Importance, ratio_S: Tensor) -> Tensor:
    """c at every token (S), detached where `ratio_S` is."""
    if importance.how == "mask":
        return torch.where(beyond_bounds(importance, ratio_S), 0.0, ratio_S.exp())
    low = None if importance.low is None else math.log(importance.low)
    return ratio_S.clamp(min=low, max=math.log(importance.high)).exp()


def beyond_bounds(importance: Importance, ratio_S: Tensor) -> Tensor:
    """Bool (S): tokens whose ratio lies beyond the bounds."""
    above_S = ratio_S > math.log(importance.high)
    return above_S if importance.low is None else above_S | (ratio_S < math.log(importance.low))


Aggregation = Literal[
    "token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "seq_mean_token_sum_norm"
]
AGGREGATIONS: dict[str, Aggregation] = {mode: mode for mode in get_args(Aggregation)}


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
                                               `constant_scale`; the limit is verl's
                                               `loss_scale_factor`)
    Raises InputError, also where the last mode is asked for without `scale`.
    """
    look_up(AGGREGATIONS, mode, "aggregation")
    extra = dropped or Dropped()
    kept_S = mask_S.float()
    if mode == "token_mean":
        return kept_S / (kept_S.sum() + extra.tokens).clamp(min=1)
    if mode == "seq_mean_token_sum_norm":
        if scale is None:
            raise InputError(f"{mode} needs the constant it divides by", fix="pass scale")
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


def sft_weights(mask_S: Tensor, episode_S: Tensor) -> Tensor:
    """Every trained token of the optimizer batch counts the same: 1 / T, (S)."""
    return token_weights("token_mean", mask_S, episode_S)


def rce_shares(rewards_E: Tensor, group_E: Tensor, tau: float) -> Tensor:
    """softmax(reward / tau) inside each group, (E), float64; uniform where rewards are equal."""
    index_E, groups = compact(group_E)
    scaled_E = rewards_E.double() / tau
    top = scaled_E.new_zeros(groups).scatter_reduce(
        0, index_E, scaled_E, "amax", include_self=False
    )
    exp_E = (scaled_E - top[index_E]).exp()
    return exp_E / group_sum(exp_E, group_E)


def rce_weights(
    mask_S: Tensor, episode_S: Tensor, rewards_E: Tensor, group_E: Tensor, tau: float
) -> Tensor:
    """Each episode's share of its group, divided by the number of groups, at its tokens, (S).

    L = mean over groups of sum_b softmax(R / tau)_b * sum_s CE_bs (Lever-Plus, "RCE";
    reward-weighted SFT in the literature). `episode_S` counts rows of `rewards_E`. A group of
    equal rewards imitates all its episodes alike: it is not silent here.
    """
    _, groups = compact(group_E)
    shares_E = rce_shares(rewards_E, group_E, tau).float() / max(groups, 1)
    return torch.where(mask_S, shares_E[episode_S], 0.0)
