"""One optimizer update from a packed batch: micro-batches, exact accumulation, clipping.

Knows no method: whatever has a policy, weights and an objective goes through here.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

import torch

from assay.models.lora import next_masks
from assay.rl.objectives import Objective
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
    micros = list(micro_batches(policy, packed, objective.atom, micro_tokens))
    sums: dict[str, float] = {}
    with side_by_side(policy.module) if len(micros) > 1 else nullcontext():
        for micro in micros:
            output = objective(policy.score(micro, entropy=objective.needs.entropy), micro)
            output.loss.backward()
            next_masks(policy.module)
            for name, value in output.sums.items():
                sums[name] = sums.get(name, 0.0) + float(value)
    return sums


@contextmanager
def side_by_side(module: torch.nn.Module) -> Iterator[None]:
    """Let gradients that are accumulated inside lie in one block of memory, made beforehand.

    Those that a backward pass makes lie where activations were, and leave holes that the next
    micro-batch's do not fit. A parameter that no gradient reaches has none afterwards, as ever.
    """
    weights = [p for p in trainable(module) if p.grad is None]
    reached: set[torch.Tensor] = set()
    hooks = [p.register_post_accumulate_grad_hook(reached.add) for p in weights]
    for kind in {(p.dtype, p.device) for p in weights}:
        alike = [p for p in weights if (p.dtype, p.device) == kind]
        sizes = [p.numel() for p in alike]
        block = torch.zeros(sum(sizes), dtype=kind[0], device=kind[1])
        for parameter, grad in zip(alike, block.split(sizes), strict=True):
            parameter.grad = grad.view_as(parameter)
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for parameter in weights:
            if parameter not in reached:
                parameter.grad = None
