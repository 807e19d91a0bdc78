"""DPO and Score-DPO: learns which of two stored completions is better, against a reference.

The reference is the policy at the stage's start. Its log-probs are computed for the pairs of each
step, before the update, so that a resumed stage computes the same ones. Which pairs there are is
`pair_choice`'s, the loss `rl.preference`'s.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from assay.data.row_order import RowOrder, visits
from assay.models.lora import begin_masks
from assay.rl.packed import Packed, pack
from assay.rl.policy import Policy
from assay.rl.preference import Preference, Scoring, pair_weights, preference_factors
from assay.train.grpo import score_all
from assay.train.pair_choice import Pair
from assay.train.train_state import Batch, Journal, Place


@dataclass(frozen=True)
class Dpo:
    """See `train_state.Method`."""

    pairs: tuple[Pair, ...]
    batch: int
    """Pairs per optimizer update."""
    seed: int
    objective: Preference
    scoring: Scoring
    micro_tokens: int
    groups: int
    """Of the stage's rows."""
    telling: int
    """Groups that give a pair; the others' scores are equal, or abstained."""
    order: RowOrder | None = None
    """None: the pairs are shuffled anew each epoch."""

    def collect(self, policy: Policy, place: Place, journal: Journal) -> Batch:
        """The next `batch` pairs of the stream with the log-probs of the reference."""
        begin_masks(policy.module, self.seed, place.step)
        chosen = visits(self.pairs, self.seed, place.cursor, self.batch, self.order)
        packed = pair_batch([pair for _, pair in chosen], self.scoring)
        with policy.reference():
            given = policy, packed, self.micro_tokens
            reference_S, _ = score_all(*given, entropy=False, atom=self.objective.atom)
        metrics = {
            "pairs": float(len(chosen)),
            "tokens": float(packed.mask_S.sum()),
            "score_gap": sum(pair.gap for _, pair in chosen) / len(chosen),
            "signal_share": self.telling / max(self.groups, 1),
        }
        update = packed.with_tokens(reference_S=reference_S)
        return Batch((update,), self.objective, metrics, consumed=self.batch)


def pair_batch(pairs: Sequence[Pair], scoring: Scoring) -> Packed:
    """Pairs packed side by side, each a group of its own, with the weights of their mean."""
    sides = [
        (replace(episode, group=f"{n}", visit=0), factor)
        for n, pair in enumerate(pairs)
        for episode, factor in zip(
            (pair.chosen, pair.rejected), preference_factors(scoring, *pair.scores), strict=True
        )
    ]
    packed = pack([episode for episode, _ in sides])
    factor_E = torch.tensor([factor for _, factor in sides], dtype=torch.float64)
    packed = packed.with_tokens(preference_S=factor_E[packed.episode_S], behaviour_S=None)
    return packed.with_tokens(weight_S=pair_weights(packed))
