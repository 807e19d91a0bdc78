"""One optimizer update from a packed batch: micro-batches, exact accumulation, clipping.

Knows no method: whatever has a policy, weights and an objective goes through here.
"""

from dataclasses import dataclass, field

import torch

from assay.rl.objectives.objective import Objective
from assay.rl.packed import Packed
from assay.rl.policy import Policy
from assay.train.microbatch import micro_batches


@dataclass(frozen=True)
class UpdateResult:
    """What one update did."""

    grad_norm: float
    """Global norm before clipping."""
    stepped: bool
    """False where a non-finite gradient made the update be skipped."""
    sums: dict[str, float] = field(default_factory=dict)
    """The objective's additive metrics, summed over the micro-batches."""


def trainable(module: torch.nn.Module) -> list[torch.nn.Parameter]:
    """The parameters an update changes."""
    return [p for p in module.parameters() if p.requires_grad]


def update(
    policy: Policy,
    packed: Packed,
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    *,
    micro_tokens: int,
    clip_norm: float,
) -> UpdateResult:
    """Accumulate the gradient of the whole batch, clip it by norm, step the optimizer."""
    sums = accumulate(policy, packed, objective, micro_tokens)
    norm = torch.nn.utils.clip_grad_norm_(trainable(policy.module), clip_norm)
    stepped = bool(torch.isfinite(norm))
    if stepped:
        optimizer.step()
        policy.updated()
    # Gradients are as large as the weights: they must not lie about during the next rollout.
    optimizer.zero_grad(set_to_none=True)
    return UpdateResult(float(norm), stepped, sums)


def accumulate(
    policy: Policy, packed: Packed, objective: Objective, micro_tokens: int
) -> dict[str, float]:
    """Add the gradient of the whole batch to the parameters' own; returns the objective's sums."""
    sums: dict[str, float] = {}
    for micro in micro_batches(policy, packed, objective.atom, micro_tokens):
        output = objective(policy.score(micro, entropy=objective.needs.entropy), micro)
        output.loss.backward()
        for name, value in output.sums.items():
            sums[name] = sums.get(name, 0.0) + float(value)
    return sums
