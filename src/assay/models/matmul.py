"""Matrix products by the library that is fastest for them on this processor.

torch has two on a CPU: float32 goes to MKL, which takes slower paths on processors that are not
Intel's (100 against 220 GFLOP/s on one core of an AMD EPYC with AVX-512), bfloat16 to oneDNN. Here
float32 goes to oneDNN on an AMD processor, a batch of products on Zen 5 only: on Zen 4 MKL's small
ones are as fast in one thread and faster in two. Other processors, types and devices, and products
under autocast, are torch's own; so is what decodes, which has its weights laid out (`inference`).
"""

import re
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

LEAST_SIDE = 256
"""Of a batch of products, each is computed by itself where its longest side has so many numbers."""
ZEN_5 = 26
"""Its family: what `amd_family` says of it."""


@cache
def amd_family() -> int:
    """The family of an AMD processor: 25 of Zen 3 and 4, 26 of Zen 5; 0 of other processors."""
    cpu = Path("/proc/cpuinfo")
    text = cpu.read_text() if cpu.exists() else ""
    family = re.search(r"^cpu family\s*: (\d+)$", text, re.MULTILINE)
    return int(family[1]) if family and "AuthenticAMD" in text else 0


def prefers_onednn() -> bool:
    """Whether float32 products are faster by oneDNN than by torch's choice."""
    return amd_family() > 0 and torch.backends.mkldnn.is_available()


def takes(values: Tensor) -> bool:
    """Whether a product with these values goes to oneDNN."""
    plain = values.is_cpu and values.dtype == torch.float32
    return plain and prefers_onednn() and not torch.is_autocast_enabled("cpu")


def project(layer: nn.Module, rows_TI: Tensor) -> Tensor:
    """What a linear layer makes of rows (T, I); other modules are called as they are.

    So is a layer that somebody watches.
    """
    watched = layer._forward_hooks or layer._forward_pre_hooks
    if type(layer) is nn.Linear and not watched and takes(rows_TI):
        result: Any = Project.apply(rows_TI, layer.weight, layer.bias)
        return result
    return layer(rows_TI)


def product(left_MK: Tensor, right_KN: Tensor) -> Tensor:
    """left @ right; not differentiable."""
    if not takes(left_MK):
        return torch.mm(left_MK, right_KN)
    return onednn(left_MK, right_KN.t(), None)


def batched(left_BMK: Tensor, right_BKN: Tensor) -> Tensor:
    """left @ right of each of a batch; not differentiable."""
    sides = (*left_BMK.shape[1:], right_BKN.shape[2])
    if max(sides) < LEAST_SIDE or amd_family() < ZEN_5 or not takes(left_BMK):
        return torch.bmm(left_BMK, right_BKN)
    return torch.stack([product(*pair) for pair in zip(left_BMK, right_BKN, strict=True)])


def onednn(rows_TI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
    """rows @ weight' + bias by oneDNN; either may be a transposed view."""
    return torch.ops.mkldnn._linear_pointwise(rows_TI, weight_OI, bias_O, "none", [], "")


class Project(torch.autograd.Function):
    """A linear layer whose three products go to oneDNN."""

    @staticmethod
    def forward(ctx: Any, rows_TI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
        """Rows (T, O)."""
        ctx.save_for_backward(rows_TI if ctx.needs_input_grad[1] else None, weight_OI)
        return onednn(rows_TI, weight_OI, bias_O)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # type: ignore[override]
        """Gradients of rows, weight and bias, those that are wanted."""
        rows_TI, weight_OI = ctx.saved_tensors
        (grad_TO,) = grads
        wants_rows, wants_weight, wants_bias = ctx.needs_input_grad
        return (
            product(grad_TO, weight_OI) if wants_rows else None,
            product(grad_TO.t(), rows_TI) if wants_weight else None,
            grad_TO.sum(dim=0) if wants_bias else None,
        )
