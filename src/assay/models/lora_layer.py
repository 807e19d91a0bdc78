"""A LoRA projection that adds its low-rank part in place, where packed rows go through it.

peft's own forward makes two more tensors of the output's size going forward and one going back,
which costs more than the low-rank products do. Where dropout is active its mask is drawn again for
the backward pass, so that no copy of the rows is kept for it. Batches with more dimensions,
adapters that are merged, switched off or several, and dropout without a key (`dropout`) take peft's
way. Adapters have no bias: `lora.add_lora` makes none.
"""

from typing import Any

import torch
from peft.tuners.lora.layer import Linear
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from assay.models.dropout import KeyedDropout, Mask
from assay.models.matmul import project


class PackedLora(Linear):
    """peft's LoRA of a linear layer, faster on rows (T, D)."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """W x + scaling B A x; Hu et al., 2021, https://arxiv.org/abs/2106.09685."""
        name = self._only_adapter()
        if x.dim() != 2 or name is None or args or kwargs:
            return super().forward(x, *args, **kwargs)
        down, up = self.lora_A[name].weight, self.lora_B[name].weight
        dropout = self.lora_dropout[name]
        mask = dropout.mask if isinstance(dropout, KeyedDropout) else None
        whole = project(self.base_layer, x)
        output: Any = AddLowRank.apply(whole, x, down, up, self.scaling[name], mask)
        return output

    def _only_adapter(self) -> str | None:
        """The adapter's name, where one plain adapter is all there is, its dropout keyed or off."""
        if self.disable_adapters or self.merged or len(self.active_adapters) != 1:
            return None
        name = self.active_adapters[0]
        dropout = self.lora_dropout[name]
        keyless = not isinstance(dropout, nn.Identity | KeyedDropout)
        dropping = keyless and dropout.training
        return None if dropping or name in self.lora_variant else name


class AddLowRank(torch.autograd.Function):
    """output (T, O) + scaling * x (T, D) A' (D, R) B' (R, O), into `output` itself.

    A mask drops numbers of x.
    """

    @staticmethod
    def forward(
        ctx: Any,
        output: Tensor,
        rows: Tensor,
        down_RD: Tensor,
        up_OR: Tensor,
        scaling: float,
        mask: Mask | None = None,
    ) -> Tensor:
        """The output, changed in place. Products are in its type."""
        dtype = output.dtype
        left = rows if mask is None else mask(rows)
        low_TR = left.to(dtype) @ down_RD.to(dtype).t()
        output.addmm_(low_TR, up_OR.to(dtype).t(), alpha=scaling)
        ctx.mark_dirty(output)
        ctx.save_for_backward(rows, low_TR, down_RD, up_OR)
        ctx.scaling, ctx.mask = scaling, mask
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # type: ignore[override]
        """Gradients of output, rows, A and B."""
        rows, low_TR, down_RD, up_OR = ctx.saved_tensors
        (grad,) = grads
        dtype = grad.dtype
        pull_TR = (grad @ up_OR.to(dtype)).mul_(ctx.scaling)
        grad_rows = None
        if ctx.needs_input_grad[1]:
            grad_rows = (pull_TR @ down_RD.to(dtype)).to(rows.dtype)
            grad_rows = grad_rows if ctx.mask is None else ctx.mask(grad_rows)
        left = rows if ctx.mask is None else ctx.mask(rows)
        grad_down = (pull_TR.t() @ left.to(dtype)).to(down_RD.dtype)
        grad_up = (grad.t() @ low_TR).mul_(ctx.scaling).to(up_OR.dtype)
        return grad, grad_rows, grad_down, grad_up, None, None
