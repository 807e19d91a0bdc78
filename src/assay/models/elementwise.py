"""Norms, rotary positions and gated activation of a decoder layer, with their own backward passes.

Written for training; sampling shares norms and rotations. On a CPU this work is bound by memory, so
it goes a few rows at a time, which stay in a core's cache between operations, and the backward pass
keeps nothing that follows from what is kept already. Weights are float32 or wider. Products and
attention are elsewhere.

T tokens, H heads, D numbers of a token or of a head.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers.activations import SiLUActivation

from assay.models.numeric import spans, wide_type, widened

BLOCK_BYTES = 256 << 10
"""Bytes of one tensor and thread; the few tensors of an operation fit the second-level cache."""


def rms_norm(values: Tensor, weight_D: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm over the last dimension, in at least float32.

    Zhang and Sennrich 2019, https://arxiv.org/abs/1910.07467.
    """
    result: Any = RmsNorm.apply(values, weight_D, eps, wide_type(values))
    return result


def norm_for_products(values: Tensor, weight_D: Tensor, eps: float) -> Tensor:
    """`rms_norm`, rounded to the type that products are computed in."""
    result: Any = RmsNorm.apply(values, weight_D, eps, product_type(values))
    return result


def add_and_norm(
    hidden_TD: Tensor, change_TD: Tensor, weight_D: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """The residual stream with a sublayer's output added, and that normalised for products."""
    result: Any = AddAndNorm.apply(hidden_TD, change_TD, weight_D, eps, product_type(hidden_TD))
    return result


def rotate(heads_THD: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary positions (Su et al. 2021, RoFormer, half-split form), in the cosines' type at least.

    `rotation` is cosines (T, D) and sines with the sign of the half they multiply.
    """
    result: Any = Rotate.apply(heads_THD, *rotation)
    return result


def gated(gate: Tensor, up: Tensor, activation: nn.Module) -> Tensor:
    """activation(gate) * up."""
    if not isinstance(activation, nn.SiLU | SiLUActivation):
        return activation(gate) * up
    result: Any = GatedSilu.apply(gate, up)
    return result


def rotations(rotary: nn.Module, hidden: Tensor, positions_T: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines (T, D) and sines with the sign of the half they multiply, of Transformers' rotary."""
    # Transformers' rotary reads only the type and device of the hidden states.
    cosine, sine = rotary(hidden[None, :1], positions_T[None])
    half = sine.shape[-1] // 2
    signed = torch.cat([-sine[0, :, :half], sine[0, :, half:]], dim=-1)
    return cosine[0], signed


class RmsNorm(torch.autograd.Function):
    """See `rms_norm`."""

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, weight_D: Tensor, eps: float, dtype: torch.dtype
    ) -> Tensor:
        """Normalised values."""
        normed, scale = normalise(values, weight_D, eps, dtype)
        ctx.save_for_backward(values, scale, weight_D)
        return normed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # type: ignore[override]
        """Gradients of values and weight."""
        values, scale, weight_D = ctx.saved_tensors
        grad, grad_weight = normalise_backward(
            grads[0], values, scale, weight_D, ctx.needs_input_grad[1]
        )
        return grad.to(values.dtype), grad_weight, None, None


class AddAndNorm(torch.autograd.Function):
    """See `add_and_norm`."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_TD: Tensor,
        change_TD: Tensor,
        weight_D: Tensor,
        eps: float,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        """The sum and the sum normalised."""
        total_TD = torch.empty_like(hidden_TD)
        for here in blocks(hidden_TD):
            torch.add(hidden_TD[here], change_TD[here], out=total_TD[here])
        normed, scale = normalise(total_TD, weight_D, eps, dtype)
        ctx.save_for_backward(total_TD, scale, weight_D)
        ctx.dtypes = hidden_TD.dtype, change_TD.dtype
        return total_TD, normed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # type: ignore[override]
        """Gradients of the stream, of what was added, and of the weight."""
        total_TD, scale, weight_D = ctx.saved_tensors
        grad, grad_weight = normalise_backward(
            grads[1], total_TD, scale, weight_D, ctx.needs_input_grad[2]
        )
        grad.add_(grads[0])
        hidden_dtype, change_dtype = ctx.dtypes
        return grad.to(hidden_dtype), grad.to(change_dtype), grad_weight, None, None


def product_type(values: Tensor) -> torch.dtype:
    """What products compute in: the type of autocast where it is on, else at least float32."""
    device = values.device.type
    if torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return wide_type(values)


def normalise(
    values: Tensor, weight_D: Tensor, eps: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Normalised values, rounded to `dtype` at the end, and what each row was multiplied by."""
    width = len(weight_D)
    rows_ND = values.reshape(-1, width)
    normed_ND = rows_ND.new_empty(rows_ND.shape, dtype=dtype)
    scale_N1 = rows_ND.new_empty(len(rows_ND), 1, dtype=wide_type(values))
    for here in blocks(rows_ND):
        row = widened(rows_ND[here])
        work = row * row
        mean = work.mean(dim=-1, keepdim=True)
        scale = torch.rsqrt(mean.add_(eps), out=scale_N1[here])
        normed_ND[here] = torch.mul(row, scale, out=work).mul_(weight_D)
    return normed_ND.view(values.shape), scale_N1


def normalise_backward(
    pull: Tensor, values: Tensor, scale_N1: Tensor, weight_D: Tensor, wants_weight: bool
) -> tuple[Tensor, Tensor | None]:
    """Gradients of the values, and of the weight where it is trained.

    With u = x s and g = w dy: dx = s (g - u mean(g u)) and dw = sum dy u.
    """
    width = len(weight_D)
    rows_ND, pull_ND = values.reshape(-1, width), pull.reshape(-1, width)
    grad_ND = torch.empty(pull_ND.shape, dtype=scale_N1.dtype, device=pull_ND.device)
    grad_weight = torch.zeros_like(weight_D) if wants_weight else None
    for here in blocks(grad_ND):
        unit_ND = widened(rows_ND[here]) * scale_N1[here]
        product_ND = pull_ND[here] * unit_ND
        if grad_weight is not None:
            grad_weight += product_ND.sum(dim=0)
        # mean(g u) = (dy u) . w / D, without another matrix for g.
        mean_N1 = torch.mv(product_ND, weight_D)[:, None] / width
        grad = torch.mul(pull_ND[here], weight_D, out=grad_ND[here])
        grad.addcmul_(unit_ND, mean_N1, value=-1).mul_(scale_N1[here])
    return grad_ND.view(values.shape), grad_weight


class Rotate(torch.autograd.Function):
    """See `rotate`. Going back turns the other way."""

    @staticmethod
    def forward(ctx: Any, heads_THD: Tensor, cosine_TD: Tensor, sine_TD: Tensor) -> Tensor:
        """Turned heads."""
        ctx.save_for_backward(cosine_TD, sine_TD)
        ctx.dtype = heads_THD.dtype
        return turned(heads_THD, cosine_TD, sine_TD)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # type: ignore[override]
        """Gradient of the heads."""
        cosine_TD, sine_TD = ctx.saved_tensors
        return turned(grads[0], cosine_TD, -sine_TD).to(ctx.dtype), None, None


def turned(heads_THD: Tensor, cosine_TD: Tensor, sine_TD: Tensor) -> Tensor:
    """heads * cosine + heads with halves exchanged * sine."""
    dtype = torch.promote_types(heads_THD.dtype, cosine_TD.dtype)
    out_THD = torch.empty(heads_THD.shape, dtype=dtype, device=heads_THD.device)
    half = heads_THD.shape[-1] // 2
    for here in blocks(out_THD):
        heads, out, sine = heads_THD[here].to(dtype), out_THD[here], sine_TD[here, None]
        torch.mul(heads, cosine_TD[here, None], out=out)
        out[..., :half].addcmul_(heads[..., half:], sine[..., :half])
        out[..., half:].addcmul_(heads[..., :half], sine[..., half:])
    return out_THD


class GatedSilu(torch.autograd.Function):
    """SiLU(gate) * up; the activated gate is computed again going back."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        """The product, in the inputs' type."""
        ctx.save_for_backward(gate, up)
        out = torch.empty_like(gate)
        for here in blocks(gate):
            torch.ops.aten.silu.out(gate[here], out=out[here]).mul_(up[here])
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # type: ignore[override]
        """Gradients of gate and up."""
        gate, up = ctx.saved_tensors
        grad_gate, grad_up = torch.empty_like(gate), torch.empty_like(up)
        for here in blocks(gate):
            pull = grads[0][here]
            torch.mul(F.silu(gate[here]), pull, out=grad_up[here])
            torch.ops.aten.silu_backward.grad_input(
                pull * up[here], gate[here], grad_input=grad_gate[here]
            )
        return grad_gate, grad_up


def blocks(values: Tensor) -> Iterator[slice]:
    """Rows that fit the cache together; on a GPU all of them."""
    rows = max(1, len(values))
    if values.device.type == "cpu" and values.numel():
        rows = max(1, torch.get_num_threads() * BLOCK_BYTES * len(values) // values.nbytes)
    for first, stop in spans(len(values), rows):
        yield slice(first, stop)
