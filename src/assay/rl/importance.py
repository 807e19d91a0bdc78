"""Importance correction: weights that make up for a rollout whose log-probs are not training's.

c = p_train / p_rollout at the weights that sampled, of a token or a whole episode, within bounds.
The ratios that a policy loss clips are others, between updates of one rollout: see `losses`.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from assay.rl.group_arithmetic import group_sum

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
