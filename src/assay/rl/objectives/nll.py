"""The weighted negative log-likelihood: SFT, RFT and RCE differ in `packed.weight_S` alone."""

from dataclasses import dataclass, field

from assay.rl.aggregation import aggregate
from assay.rl.masked import masked_sum
from assay.rl.objectives.objective import Atom, Needs, ObjectiveOutput
from assay.rl.packed import Packed
from assay.rl.policy import Scores


@dataclass(frozen=True)
class Nll:
    """sum(weight_S * -logp_S). Weights are made by `assay.rl.likelihood_weights`."""

    needs: Needs = field(default_factory=Needs)
    atom: Atom = "turn"

    def __call__(self, scores: Scores, packed: Packed) -> ObjectiveOutput:
        """Metric: nll, the unweighted negative log-likelihood."""
        nll_S = -scores.logps_S
        sums = {
            "tokens": packed.mask_S.sum().float(),
            "nll": masked_sum(nll_S.detach(), packed.mask_S),
        }
        return ObjectiveOutput(aggregate(packed.weight_S, nll_S), sums)
