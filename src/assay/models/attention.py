"""Attention that is planned for packed rows: prompts computed once per group.

A plan is told each layer's queries, keys and values and says which tokens see each other. Plans
here cover packed training rows (`TreePlan`). Sliding windows and attention dropout are not
covered; a model that asks for them is refused.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from assay.errors import InputError
from assay.models import flex
from assay.models.tree_attention import Tree, tree_attention


class AttentionUnsupported(InputError):
    """The model needs a kind of attention that the plans do not compute."""


class AttentionPlan(Protocol):
    """How the tokens of one forward pass see each other."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Attention of one layer: query (B, Hq, T, D), key and value (B, Hkv, T, D) -> like query.

        `layer` counts from 0; Hq is a multiple of Hkv (grouped queries).
        """
        ...


def refuse_unplanned(attention: Any) -> None:
    """Raise AttentionUnsupported where a layer's attention module asks for more than plans do.

    Mistral's modules read the window off the config, the others have their own.
    """
    window = getattr(attention, "sliding_window", None)
    if attention.config.model_type == "mistral":
        window = attention.config.sliding_window
    if window is not None:
        raise AttentionUnsupported(f"{type(attention).__name__} uses sliding_window")
    if attention.training and attention.attention_dropout:
        raise AttentionUnsupported("attention dropout", fix="set attention_dropout to 0")


@dataclass(frozen=True)
class TreePlan:
    """A packed row: each prompt sees itself causally, each completion its prompt and itself."""

    trees: tuple[Tree, ...]

    @cached_property
    def mask(self) -> BlockMask:
        """The same for FlexAttention on a GPU, made once for all layers."""
        return flex.tree_mask(self.trees, self.trees[-1].tokens.stop, torch.device("cuda"))

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """See `AttentionPlan.attend`; B is 1 and T covers all trees in order."""
        if query.is_cuda:
            return flex.attend(query, key, value, self.mask, scale)
        return tree_attention(query[0], key[0], value[0], self.trees, scale)[None]
