"""The layers of a dense decoder over one packed row, as they are trained.

Calls the projections of a Transformers model (under adapters too) in the model's order, with
`elementwise` between them and attention by a plan. Outputs of norms and activations that products
read are computed again in the backward pass instead of kept; recomputing whole layers is activation
checkpointing (`adapt.save_activations`). Embedding and head are in `scoring`, the plain reference
in `first_difference`.

T packed tokens, K of them kept, H heads, J key heads, D numbers of a token or of a head.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from assay.models.attention import AttentionPlan, refuse_unplanned
from assay.models.elementwise import (
    add_and_norm,
    gated,
    norm_for_products,
    normalise,
    rms_norm,
    rotate,
    rotations,
)
from assay.models.matmul import project


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
        if layer.gradient_checkpointing and layer.training:
            # One tensor is kept for each layer, not the stream and its change.
            given = layer, number, added(*stream), None, rotation, plan, factor, nothing_again
            stream = cast(Stream, checkpoint(run_layer, *given, use_reentrant=False))
        else:
            stream = run_layer(layer, number, *stream, rotation, plan, factor)
    return normed(added(*stream).index_select(0, keep_K), base.norm)


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
    change_TD = times(attended(layer.self_attn, number, heads, rotation, plan), factor)
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


def attended(
    attention: Any,
    number: int,
    heads: tuple[Tensor, ...],
    rotation: tuple[Tensor, Tensor] | None,
    plan: AttentionPlan,
) -> Tensor:
    """What attention adds to the stream (T, D)."""
    query, key, value = heads
    if hasattr(attention, "q_norm"):
        query, key = normed(query, attention.q_norm), normed(key, attention.k_norm)
    if rotation is not None:
        query, key = rotate(query, rotation), rotate(key, rotation)
    query, key, value = (heads_THD.transpose(0, 1)[None] for heads_THD in (query, key, value))
    seen = plan.attend(number, query, key, value, attention.scaling)
    return project(attention.o_proj, seen[0].transpose(0, 1).flatten(1))


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
