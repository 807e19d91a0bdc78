"""The register of policy losses, each with the atom that micro-batching must not cut.

Adding one: write `fn(batch, clip) -> TokenLoss` in a file of `policy_losses/`, enter it here.
"""

from dataclasses import dataclass

from assay.rl.policy_losses.cispo import cispo
from assay.rl.policy_losses.geo_mean import geo_mean
from assay.rl.policy_losses.gpg import gpg
from assay.rl.policy_losses.gspo import gspo
from assay.rl.policy_losses.loss_batch import Atom, Clip, LossFunction, TokenBatch, TokenLoss
from assay.rl.policy_losses.ppo_clip import ppo_clip
from assay.rl.policy_losses.sapo import sapo
from assay.rl.policy_losses.sequence_clip import sequence_clip

__all__ = ["LOSSES", "Atom", "Clip", "LossFunction", "PolicyLoss", "TokenBatch", "TokenLoss"]


@dataclass(frozen=True)
class PolicyLoss:
    """A loss function and the smallest piece it can be computed on."""

    function: LossFunction
    atom: Atom

    def __call__(self, batch: TokenBatch, clip: Clip) -> TokenLoss:
        """The loss of every token."""
        return self.function(batch, clip)


LOSSES: dict[str, PolicyLoss] = {
    "ppo_clip": PolicyLoss(ppo_clip, "token"),
    "gspo": PolicyLoss(gspo, "episode"),
    "cispo": PolicyLoss(cispo, "token"),
    "geo_mean": PolicyLoss(geo_mean, "episode"),
    "sapo": PolicyLoss(sapo, "token"),
    "gpg": PolicyLoss(gpg, "token"),
    "sequence_clip": PolicyLoss(sequence_clip, "episode"),
}
