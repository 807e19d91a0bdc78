"""AdamW over a model's trained weights, in fp32 or with 8-bit moments.

Matrices decay; norms, biases and other vectors do not. Schedules and clipping are the trainer's.
"""

from collections.abc import Iterable
from typing import Literal

import torch
from torch import nn

from assay.errors import InputError

OptimizerName = Literal["adamw", "adamw8bit"]


def decay_groups(
    parameters: Iterable[nn.Parameter], weight_decay: float
) -> list[dict[str, object]]:
    """The trained parameters in two groups: at least two dimensions decays, fewer does not.

    One dimension or none means norms and biases, whose scale weight decay has no reason to
    shrink. Frozen parameters are left out; a group may be absent.
    """
    trained = [p for p in parameters if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def make_optimizer(
    parameters: Iterable[nn.Parameter],
    *,
    name: OptimizerName = "adamw",
    lr: float = 0.0,
    weight_decay: float = 0.0,
    betas: tuple[float, float] = (0.9, 0.999),
) -> torch.optim.Optimizer:
    """AdamW (Loshchilov and Hutter, 2019) with `decay_groups`. The training loop sets `lr` of every
    step.

    `adamw8bit` keeps the two moments in blockwise 8 bits (Dettmers et al., 2022) through
    bitsandbytes; raises InputError where that does not run.
    """
    groups = decay_groups(parameters, weight_decay)
    if name == "adamw8bit":
        return _adamw_8bit(groups, lr, betas)
    # One pass over the weights instead of a dozen.
    return torch.optim.AdamW(groups, lr=lr, betas=betas, fused=True)


def _adamw_8bit(
    groups: list[dict[str, object]], lr: float, betas: tuple[float, float]
) -> torch.optim.Optimizer:
    try:
        from bitsandbytes.optim import AdamW8bit  # type: ignore[import-not-found]
    except ImportError as error:
        raise InputError(
            "adamw8bit needs bitsandbytes",
            field="optimizer.name",
            fix="pip install bitsandbytes, or use adamw",
        ) from error
    return AdamW8bit(groups, lr=lr, betas=betas)
