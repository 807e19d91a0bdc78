"""A dense decoder laid out for inference: fewer, larger products over weights packed once.

Takes the weights of a Transformers model (adapters merged, or apart from bf16 weights), fuses the
projections that read the same input, and on a CPU reorders them for its matrix kernels, which pays
from one row to about a hundred. Norms, residuals and rotations stay fp32, as in training under
autocast, so that sampled and trained log-probs differ as little as possible. Attention
comes from a plan; nothing here trains, samples or keeps keys and values.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn
from transformers.activations import SiLUActivation

from assay.models.attention import AttentionPlan, refuse_unplanned
from assay.models.layers import (
    Multipliers,
    multipliers,
    normalise,
    rotate,
    rotates,
    rotations,
    times,
)
from assay.models.lora import low_rank
from assay.models.scoring import plain_head

Product = Callable[[Tensor], Tensor]
"""Rows (A, in) to rows (A, out)."""
PACKING_ROWS = 64
"""Rows that packed weights are laid out for; other numbers work as well."""


@dataclass(frozen=True)
class Layer:
    """One decoder layer, its products ready to use."""

    norm_before: Tensor
    query_key_value: Product
    query_norm: Tensor | None
    key_norm: Tensor | None
    output: Product
    norm_between: Tensor
    gate: Product
    """Activated."""
    up: Product
    down: Product
    rotates: bool
    """Queries and keys have rotary positions."""


@dataclass(frozen=True)
class InferenceModel:
    """See the module; `scale` is the attention's, `eps` the norms'."""

    layers: tuple[Layer, ...]
    embedding_VD: Tensor
    norm: Tensor
    head: Product
    rotary: nn.Module
    heads: int
    key_heads: int
    size: int
    scale: float
    eps: float
    factors: Multipliers
    dtype: torch.dtype
    """In which products and attention are computed."""

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.embedding_VD.device

    def forward(
        self, tokens_T: Tensor, positions_T: Tensor, plan: AttentionPlan, keep_K: Tensor | None
    ) -> Tensor:
        """Logits (K, V) at the kept of T tokens; all T where `keep_K` is None. See `hidden`."""
        hidden = self.hidden(tokens_T, positions_T, plan)
        return self.words(hidden if keep_K is None else hidden[keep_K])

    def words(self, hidden_KD: Tensor) -> Tensor:
        """Logits (K, V) of what `hidden` gave."""
        return times(self.head(self._normed(hidden_KD, self.norm)), self.factors.logits)

    def hidden(self, tokens_T: Tensor, positions_T: Tensor, plan: AttentionPlan) -> Tensor:
        """The stream (T, D) behind the last layer, before its norm.

        The plan sees queries (1, H, T, D), in float32 at least, and keys and values (1, J, T, D).
        """
        hidden = times(F.embedding(tokens_T, self.embedding_VD), self.factors.embedding)
        rotation = rotations(self.rotary, hidden, positions_T)
        for number, layer in enumerate(self.layers):
            self._attend(number, layer, hidden, rotation, plan)
            rows = self._normed(hidden, layer.norm_between)
            change = layer.down(layer.gate(rows).mul_(layer.up(rows)))
            hidden.add_(change, alpha=self.factors.residual)
        return hidden

    def _normed(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return normalise(hidden, weight, self.eps, self.dtype)[0]

    def _attend(
        self,
        number: int,
        layer: Layer,
        hidden: Tensor,
        rotation: tuple[Tensor, Tensor],
        plan: AttentionPlan,
    ) -> None:
        """Add one layer's attention to the residual stream, in place."""
        mixed = layer.query_key_value(self._normed(hidden, layer.norm_before))
        heads_THD = mixed.unflatten(1, (-1, self.size))
        both, value = heads_THD.split([self.heads + self.key_heads, self.key_heads], dim=1)
        if layer.query_norm is not None and layer.key_norm is not None:
            query, key = both.split([self.heads, self.key_heads], dim=1)
            both = torch.cat(
                [
                    normalise(query, layer.query_norm, self.eps, hidden.dtype)[0],
                    normalise(key, layer.key_norm, self.eps, hidden.dtype)[0],
                ],
                dim=1,
            )
        turned = rotate(both, rotation) if layer.rotates else both.to(hidden.dtype)
        query, key = turned.split([self.heads, self.key_heads], dim=1)
        query, key, value = (x.transpose(0, 1)[None] for x in (query, key.to(self.dtype), value))
        seen = plan.attend(number, query, key, value, self.scale)
        change = layer.output(seen[0].transpose(0, 1).reshape(len(hidden), -1))
        hidden.add_(change, alpha=self.factors.residual)


def inference_model(module: nn.Module, dtype: torch.dtype) -> InferenceModel:
    """Lay out a model of a plain family (see `supported.FAMILIES`) for products in `dtype`.

    Embedding and norms are the module's own where they have the wanted type: lay it out again
    after the weights changed. Raises InputError for another family, and for
    attention that plans do not compute.
    """
    causal: Any = module.get_base_model() if isinstance(module, PeftModel) else module
    head, base = plain_head(causal), causal.base_model
    attention = base.layers[0].self_attn
    wide = torch.promote_types(dtype, torch.float32)
    with torch.no_grad():
        return InferenceModel(
            layers=tuple(lay_out_layer(layer, dtype) for layer in base.layers),
            embedding_VD=base.embed_tokens.weight.detach().to(wide),
            norm=base.norm.weight.detach().to(wide),
            head=product([head], dtype),
            rotary=base.rotary_emb,
            heads=causal.config.num_attention_heads,
            key_heads=causal.config.num_key_value_heads,
            size=attention.head_dim,
            scale=attention.scaling,
            eps=causal.config.rms_norm_eps,
            factors=multipliers(causal.config),
            dtype=dtype,
        )


def lay_out_layer(layer: Any, dtype: torch.dtype) -> Layer:
    """One layer's products."""
    wide = torch.promote_types(dtype, torch.float32)

    def norm(module: Any) -> Tensor:
        return module.weight.detach().to(wide)

    attention, mlp = layer.self_attn, layer.mlp
    refuse_unplanned(attention)
    normed = hasattr(attention, "q_norm")
    return Layer(
        norm_before=norm(layer.input_layernorm),
        query_key_value=product([attention.q_proj, attention.k_proj, attention.v_proj], dtype),
        query_norm=norm(attention.q_norm) if normed else None,
        key_norm=norm(attention.k_norm) if normed else None,
        output=product([attention.o_proj], dtype),
        norm_between=norm(layer.post_attention_layernorm),
        gate=product([mlp.gate_proj], dtype, activation=mlp.act_fn),
        up=product([mlp.up_proj], dtype),
        down=product([mlp.down_proj], dtype),
        rotates=rotates(attention),
    )


def merged_weight(linear: Any) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of the plain linear layer that an adapted one amounts to."""
    if not isinstance(linear, LoraLayer):
        return linear.weight.detach(), None if linear.bias is None else linear.bias.detach()
    adapted: Any = linear
    weight, bias = merged_weight(adapted.get_base_layer())
    return weight + sum(adapted.get_delta_weight(a) for a in adapted.active_adapters), bias


def product(linears: list[Any], dtype: torch.dtype, activation: nn.Module | None = None) -> Product:
    """One product that does the work of all `linears` side by side, then the activation.

    Adapters are merged, unless `dtype` is narrower than the weights: after a step at a learning
    rate of 1e-4, rounding to bfloat16 loses most of what is merged.
    """
    if any(
        isinstance(each, LoraLayer) and dtype.itemsize < each.get_base_layer().weight.dtype.itemsize  # type: ignore[union-attr]
        for each in linears
    ):
        return adapted_product(linears, dtype, activation)
    parts = [merged_weight(linear) for linear in linears]
    weight = side_by_side([weight.to(dtype) for weight, _ in parts])
    bias = None
    if parts[0][1] is not None:
        bias = side_by_side([part.to(dtype) for _, part in parts if part is not None])
    if weight.device.type == "cpu" and may_pack(weight.dtype):
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, PACKING_ROWS)
        fused = "swish" if isinstance(activation, nn.SiLU | SiLUActivation) else "none"
        linear = torch.ops.mkldnn._linear_pointwise

        def multiply(rows: Tensor) -> Tensor:
            return linear(rows, packed, bias, fused, [], "")

        if activation is None or fused == "swish":
            return multiply
        return lambda rows: activation(multiply(rows))
    if activation is None:
        return lambda rows: F.linear(rows, weight, bias)
    return lambda rows: activation(F.linear(rows, weight, bias))


def adapted_product(
    linears: list[Any], dtype: torch.dtype, activation: nn.Module | None
) -> Product:
    """The same with each adapter's part added to the rounded base's, as training under autocast
    does (`lora.AddLowRank`)."""
    base = product([getattr(each, "base_layer", each) for each in linears], dtype)
    stop, adapters = 0, []
    for each in linears:
        start, stop = stop, stop + each.out_features
        if isinstance(each, LoraLayer):
            adapter = low_rank(each)
            down_RD, up_OR = adapter.down_RD.to(dtype), adapter.up_OR.to(dtype)
            adapter = replace(adapter, down_RD=down_RD, up_OR=up_OR)
            adapters.append((slice(start, stop), adapter))

    def multiply(rows: Tensor) -> Tensor:
        output = base(rows)
        for columns, each in adapters:
            low = rows @ each.down_RD.t()
            output[:, columns].addmm_(low, each.up_OR.t(), alpha=each.scaling)
        return output if activation is None else activation(output)

    return multiply


def side_by_side(parts: list[Tensor]) -> Tensor:
    """The parts as one tensor; a single one is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def may_pack(dtype: torch.dtype) -> bool:
    """Whether oneDNN multiplies such weights on this CPU; bf16 needs AVX-512 there."""
    if dtype == torch.bfloat16:
        return torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return dtype == torch.float32 and torch.backends.mkldnn.is_available()
