"""What Assay's workers share: a recorder that keeps nothing, and the gradient of a batch."""

from contextlib import nullcontext
from typing import Any

from assay.rl.objectives import Objective
from assay.rl.packed import Packed
from assay.rl.policy import Policy
from assay.train.update import micro_batches, side_by_side


class NoRecords:
    """A recorder of a stage that was never interrupted."""

    def recorded_rewards(self, step: int) -> dict[str, Any]:
        """None."""
        return {}


def batch_gradient(
    policy: Policy, packed: Packed, objective: Objective, micro_tokens: int
) -> float:
    """The loss of the batch, its gradient accumulated as `assay.train.update` does it."""
    total = 0.0
    micros = list(micro_batches(policy, packed, objective.atom, micro_tokens))
    with side_by_side(policy.module) if len(micros) > 1 else nullcontext():
        for micro in micros:
            output = objective(policy.score(micro), micro)
            output.loss.backward()
            total += output.loss.item()
    return total
