"""The layers of a dense decoder over one packed row, as they are trained.

Calls the projections of a Transformers model (under adapters too) in the model's order, with norms
and activations between them and attention by a plan. Outputs of norms and activations that products
read are computed again in the backward pass instead of kept; recomputing whole layers is activation
checkpointing (`adapt.save_activations`). Embedding and head are in `scoring`, the plain reference
in `plain_forward`.

T packed tokens, K of them kept, H heads, J key heads, D numbers of a token or of a head.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint
from transformers.activations import SiLUActivation

from assay.models.attention import AttentionPlan, refuse_unplanned
from assay.models.matmul import project, spans, wide_type, widened

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


@contextmanager
def made_again(values: Tensor, make: Callable[[], Tensor]) -> Iterator[None]:
    """Inside, the backward pass computes `values` again with `make` instead of keeping them.

    `make` returns the same numbers and refers only to tensors that are kept anyway. It runs once
    for all products that read them, without gradients; the gradient of `values` is not affected.
    """
    recipe = Recipe(make)
    # The hooks must not refer to the values, because autograd keeps the hooks.
    place, shape = values.data_ptr(), values.shape

    def pack(saved: Tensor) -> Any:
        if saved.data_ptr() == place and saved.shape == shape:
            recipe.readers += 1
            return recipe
        return saved

    with torch.autograd.graph.saved_tensors_hooks(pack, unpacked):
        yield


def unpacked(kept: Any) -> Tensor:
    """A tensor that was kept, or made again."""
    return kept.read() if isinstance(kept, Recipe) else kept


class Recipe:
    """Computes a tensor at the first of `readers` reads and drops it after the last."""

    def __init__(self, make: Callable[[], Tensor]):
        """No tensor is computed yet, and no product reads it."""
        self.make = make
        self.readers = 0
        self.left = 0
        self.value: Tensor | None = None

    def read(self) -> Tensor:
        """The tensor, for one reader."""
        if self.value is None:
            with torch.no_grad():
                self.value = self.make()
            self.left = self.readers
        value = self.value
        self.left -= 1
        if not self.left:
            self.value = None
        return value


Stream = tuple[Tensor, Tensor | None]
"""The residual stream (T, D), and the output of the last layer, not added yet: the next norm adds
it in the same pass over memory."""
Again = Callable[[Tensor, Callable[[], Tensor]], AbstractContextManager[None]]
"""`made_again` or `nothing_again`."""


@dataclass(frozen=True, slots=True)
class Multipliers:
    """Factors by which a family differs from Llama's layers; 1 changes nothing."""

    embedding: float = 1.0
    residual: float = 1.0
    """Of what a sublayer adds to the stream."""
    logits: float = 1.0


def multipliers(config: Any) -> Multipliers:
    """Granite's factors; other families have none, whatever their config says."""
    if config.model_type != "granite":
        return Multipliers()
    scaling = config.embedding_multiplier, config.residual_multiplier, 1 / config.logits_scaling
    return Multipliers(*scaling)


def run_layers(
    base: Any, hidden_TD: Tensor, positions_T: Tensor, plan: AttentionPlan, keep_K: Tensor
) -> Tensor:
    """Normalised hidden states (K, D) behind the last layer of a family in `FAMILIES`.

    Weights are float32 or wider. Raises InputError for attention that plans do not
    compute.
    """
    rotations_T = rotations(base.rotary_emb, hidden_TD, positions_T)
    factor = multipliers(base.config).residual
    stream: Stream = hidden_TD, None
    for number, layer in enumerate(base.layers):
        refuse_unplanned(layer.self_attn)
        rotation = rotations_T if rotates(layer.self_attn) else None
        stream = computed(layer, kept_layer)(number, stream, rotation, plan, factor)
    return normed(added(*stream).index_select(0, keep_K), base.norm)


class Own(partial[Any]):
    """The forward of a module that computes as is done here."""


def computes(module: nn.Module, compute: Callable[..., Any]) -> None:
    """Make `compute`, given the module, what a call of the module does, so that its hooks run."""
    module.forward = Own(compute, module)


def computed(module: nn.Module, compute: Callable[..., Any]) -> Callable[..., Any]:
    """`compute`, given the module; the module's own call where `computes` made that the same."""
    return module if isinstance(module.forward, Own) else partial(compute, module)


def kept_layer(
    layer: Any,
    number: int,
    stream: Stream,
    rotation: tuple[Tensor, Tensor] | None,
    plan: AttentionPlan,
    factor: float,
) -> Stream:
    """One decoder layer, run again in the backward pass where the model says so."""
    if layer.gradient_checkpointing and layer.training:
        # One tensor is kept for each layer, not the stream and its change.
        inputs = layer, number, added(*stream), None, rotation, plan, factor, nothing_again
        return cast(Stream, checkpoint(run_layer, *inputs, use_reentrant=False))
    return run_layer(layer, number, *stream, rotation, plan, factor)


def run_layer(
    layer: Any,
    number: int,
    hidden_TD: Tensor,
    change_TD: Tensor | None,
    rotation: tuple[Tensor, Tensor] | None,
    plan: AttentionPlan,
    factor: float = 1.0,
    again: Again = made_again,
) -> Stream:
    """One decoder layer; `factor` multiplies what it adds to the stream."""
    norm = layer.input_layernorm
    hidden_TD, rows_TD = added_and_normed(hidden_TD, change_TD, norm)
    with again(rows_TD, normed_like(rows_TD, hidden_TD, norm)):
        heads = projected(layer.self_attn, rows_TD)
    del rows_TD
    query, key, value = heads
    if hasattr(layer.self_attn, "q_norm"):
        query, key = normed(query, layer.self_attn.q_norm), normed(key, layer.self_attn.k_norm)
    if rotation is not None:
        query, key = rotate(query, rotation), rotate(key, rotation)
    query, key, value = (heads_THD.transpose(0, 1)[None] for heads_THD in (query, key, value))
    seen = plan.attend(number, query, key, value, layer.self_attn.scaling)
    change_TD = times(project(layer.self_attn.o_proj, seen[0].transpose(0, 1).flatten(1)), factor)
    norm = layer.post_attention_layernorm
    hidden_TD, rows_TD = added_and_normed(hidden_TD, change_TD, norm)
    mlp = layer.mlp
    with again(rows_TD, normed_like(rows_TD, hidden_TD, norm)):
        gate, up = project(mlp.gate_proj, rows_TD), project(mlp.up_proj, rows_TD)
    del rows_TD
    inner = gated(gate, up, mlp.act_fn)
    with again(inner, partial(gated, gate.detach(), up.detach(), mlp.act_fn)):
        return hidden_TD, times(project(mlp.down_proj, inner), factor)


def times(change_TD: Tensor, factor: float) -> Tensor:
    """The change multiplied, without a copy where the factor is 1."""
    return change_TD if factor == 1 else change_TD * factor


def rotates(attention: Any) -> bool:
    """Whether a layer has rotary positions: SmolLM3 leaves some without."""
    return bool(getattr(attention, "use_rope", True))


def projected(attention: Any, rows_TD: Tensor) -> tuple[Tensor, ...]:
    """Queries (T, H, D), keys and values (T, J, D)."""
    layers = attention.q_proj, attention.k_proj, attention.v_proj
    size = attention.head_dim
    return tuple(project(layer, rows_TD).unflatten(-1, (-1, size)) for layer in layers)


def normed(values: Tensor, norm: Any) -> Tensor:
    """A norm module's values."""
    return rms_norm(values, norm.weight, norm.variance_epsilon)


def added(hidden_TD: Tensor, change_TD: Tensor | None) -> Tensor:
    """The stream with the change in it."""
    return hidden_TD if change_TD is None else hidden_TD + change_TD


def added_and_normed(
    hidden_TD: Tensor, change_TD: Tensor | None, norm: Any
) -> tuple[Tensor, Tensor]:
    """The stream with the change in it, and that under a norm module, for products."""
    if change_TD is None:
        return hidden_TD, norm_for_products(hidden_TD, norm.weight, norm.variance_epsilon)
    return add_and_norm(hidden_TD, change_TD, norm.weight, norm.variance_epsilon)


def normed_like(rows_TD: Tensor, hidden_TD: Tensor, norm: Any) -> Callable[[], Tensor]:
    """Makes the normalised stream again, without gradients, in the type that it has now."""
    hidden_TD, dtype = hidden_TD.detach(), rows_TD.dtype
    return lambda: normalise(hidden_TD, norm.weight, norm.variance_epsilon, dtype)[0]


def nothing_again(values: Tensor, make: Callable[[], Tensor]) -> AbstractContextManager[None]:
    """Inside a layer that is run again as a whole, `values` are kept that long."""
    return nullcontext()
