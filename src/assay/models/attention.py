"""Attention that Transformers models call and that Assay plans: prompts computed once per group.

A plan is handed to the model's forward as the keyword `plan`; every layer's attention goes to
`plan.attend`. Plans here cover packed training rows (`TreePlan`). Model code is not patched: the
function is registered through Transformers' public attention interface under the name "assay".
Sliding windows, soft-capped scores and attention sinks are not covered; a model that asks for
them is refused.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask
from transformers import AttentionInterface

from assay.errors import InputError
from assay.models import flex
from assay.models.tree_attention import Tree, tree_attention

NAME = "assay"


class AttentionUnsupported(InputError):
    """The model needs a kind of attention that the plans do not compute."""


class AttentionPlan(Protocol):
    """How the tokens of one forward pass see each other."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Attention of one layer: query (B, Hq, T, D), key and value (B, Hkv, T, D) -> like query.

        `layer` counts from 0; Hq is a multiple of Hkv (grouped queries).
        """
        ...


def planned_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    plan: AttentionPlan | None = None,
    **unsupported: Any,
) -> tuple[Tensor, None]:
    """The attention function that Transformers calls; returns (B, T, Hq, D)."""
    if plan is None:
        raise AttentionUnsupported(
            "this model was loaded for planned attention and called without a plan",
            fix='call model.set_attn_implementation("sdpa") before using it on its own',
        )
    for name in ("sliding_window", "softcap", "s_aux"):
        if unsupported.get(name) is not None:
            raise AttentionUnsupported(f"{type(module).__name__} uses {name}")
    if dropout:
        raise AttentionUnsupported("attention dropout", fix="set attention_dropout to 0")
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    return plan.attend(layer, query, key, value, scaling).transpose(1, 2), None


AttentionInterface.register(NAME, planned_attention)


@dataclass(frozen=True)
class TreePlan:
    """A packed row: each prompt sees itself causally, each completion its prompt and itself."""

    trees: tuple[Tree, ...]

    @cached_property
    def mask(self) -> BlockMask:
        """The same for FlexAttention, made once for all layers."""
        device = self.trees[0].index_K.device
        return flex.tree_mask(self.trees, self.trees[-1].tokens.stop, device)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """See `AttentionPlan.attend`; B is 1 and T covers all trees in order."""
        if query.is_cuda:
            return flex.attend(query, key, value, self.mask, scale)
        return tree_attention(query[0], key[0], value[0], self.trees, scale)[None]
