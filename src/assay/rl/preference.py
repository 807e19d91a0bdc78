"""The objective of DPO and of Score-DPO: a chosen and a rejected completion of one prompt.

With sums over the trained tokens of the chosen completion w and of the rejected completion l,

    margin = beta * (a_w * log(p(w) / p_ref(w)) - a_l * log(p(l) / p_ref(l)))
    loss   = -(1 - e) * log sigmoid(margin) - e * log sigmoid(-margin)

DPO has a_w = a_l = 1 (Rafailov et al., arXiv 2305.18290, eq. 7); e is the label smoothing of cDPO
(Mitchell, 2023), TRL's `label_smoothing`. Score-DPO has a_w = s_w and a_l = 1 - s_l, the scores of
the two (ScoreFlow, arXiv 2502.04306; Gen-Verse/ScoreFlow 24925638, `ScoreFlow/DPOtrainer.py`,
`get_batch_loss_metrics`). Which completions make a pair, and their scores, come from elsewhere.
"""

from dataclasses import dataclass, field
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from assay.errors import RunFailure
from assay.rl.advantages import compact, group_sum, masked_sum
from assay.rl.kl import k3
from assay.rl.objectives import Atom, Needs, ObjectiveOutput, output
from assay.rl.packed import Packed
from assay.rl.policy import ActionScores

Scoring = Literal["plain", "score"]
"""Whether the log-ratios of a pair count as they are (DPO) or by the scores (Score-DPO)."""


def preference_factors(scoring: Scoring, chosen: float, rejected: float) -> tuple[float, float]:
    """a_w and -a_l of a pair with these scores. In Score-DPO 0 <= rejected < chosen <= 1, so that
    neither is 0."""
    return (1.0, -1.0) if scoring == "plain" else (chosen, rejected - 1.0)


def pair_weights(packed: Packed) -> Tensor:
    """Weight of every token's loss, (S), float64: the loss is the mean over the pairs of a batch,
    0 where masked."""
    pairs = len(packed.group_N.unique())
    return packed.mask_S.double() / max(pairs, 1)


def preference_loss(margin: Tensor, smoothing: float) -> Tensor:
    """The loss of each margin, same shape."""
    kept = -(1 - smoothing) * F.logsigmoid(margin)
    return kept - smoothing * F.logsigmoid(-margin) if smoothing else kept


@dataclass(frozen=True)
class Preference:
    """Mean over pairs of the loss above; every pair is a group of the packed batch.

    The loss of a pair is spread evenly over its trained tokens. Raises RunFailure for a batch
    without log-probs of the reference, or without pairs.
    """

    beta: float = 0.1
    label_smoothing: float = 0.0
    """e: the share of pairs that are taken to be the wrong way round, below 0.5."""
    needs: Needs = field(default_factory=lambda: Needs(reference=True))
    atom: Atom = "pair"

    def __call__(self, scores: ActionScores, packed: Packed) -> ObjectiveOutput:
        """Metrics: the implicit reward beta * log(p / p_ref) of the chosen minus that of the
        rejected, whether it is above 0, both log-probs, and the mean k3 to the reference over the
        chosen tokens: what is to become unlikely says nothing of a policy that went astray.
        """
        if packed.reference_S is None or packed.preference_S is None:
            missing = (
                "the log-probs of the reference" if packed.preference_S is not None else "pairs"
            )
            raise RunFailure(f"a preference loss needs {missing}")
        mask_S, pair_S = packed.mask_S, packed.group_S
        ratio_S = torch.where(mask_S, scores.logps_S - packed.reference_S, 0.0)
        margin_S = self.beta * group_sum(packed.preference_S * ratio_S, pair_S)
        tokens_S = group_sum(mask_S.double(), pair_S).clamp(min=1)
        loss_S = torch.where(
            mask_S, preference_loss(margin_S, self.label_smoothing) / tokens_S, 0.0
        )
        sums = self._sums(scores.logps_S.detach(), ratio_S.detach(), packed)
        return output(packed, loss_S, {"preference_loss": loss_S}, {"preference_loss": 1.0}, sums)

    def _sums(self, logps_S: Tensor, ratio_S: Tensor, packed: Packed) -> dict[str, Tensor]:
        assert packed.reference_S is not None and packed.preference_S is not None
        chosen_S = packed.preference_S > 0
        side_S = torch.where(chosen_S, self.beta, -self.beta).double()
        pair_S, pairs = compact(packed.group_S)
        margin_P = side_S.new_zeros(pairs).index_add(0, pair_S, side_S * ratio_S)
        kept_S = packed.mask_S & chosen_S
        long_S = group_sum(kept_S.double(), pair_S).clamp(min=1)
        return {
            "tokens": packed.mask_S.sum().float(),
            "pairs": torch.tensor(float(pairs)),
            "reward_margin": margin_P.sum(),
            "reward_accuracy": (margin_P > 0).double().sum(),
            "chosen_logp": masked_sum(logps_S, kept_S),
            "rejected_logp": masked_sum(logps_S, packed.mask_S & ~chosen_S),
            "kl": masked_sum(k3(logps_S, packed.reference_S) / long_S, kept_S),
        }
