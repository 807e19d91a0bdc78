"""Rewards standardised inside their group before anything else is computed of them.

This is no advantage estimator: `advantages` standardise as well, and both together are the double
normalisation of reports 002 and 004.
"""

import torch
from torch import Tensor

from assay.rl.group_arithmetic import group_mean, group_std

FLAT = 1e-12
"""Rewards of a smaller standard deviation are left as they are."""
HELD = 3.0


def normalised_rewards(rewards_E: Tensor, group_E: Tensor) -> Tensor:
    """(r - mean) / std inside each group, held in [-3, 3], (E), float64 (Lever-Plus, unbiased std).

    A group of rewards whose deviation is at most FLAT keeps them.
    """
    values_E = rewards_E.double()
    std_E = group_std(values_E, group_E, ddof=1)
    centred_E = values_E - group_mean(values_E, group_E)
    return torch.where(std_E > FLAT, (centred_E / std_E).clamp(-HELD, HELD), values_E)
