"""Attention over packed rows by a plan that says which tokens see each other.

`TreePlan` covers packed training rows: `tree_attention` computes it block by block on a CPU, one
FlexAttention call (https://arxiv.org/abs/2412.05496) on a GPU, where a mask replaces the blocks and
empty ones are skipped. On a CPU the FlexAttention path is only a reference for tests. Models with
sliding windows or attention dropout are refused.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from assay.errors import InputError
from assay.models.tree_attention import Tree, tree_attention

Visible = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def tree_mask(trees: tuple[Tree, ...], tokens: int, device: torch.device) -> BlockMask:
    """Each prompt sees itself causally; each completion its prompt and itself."""
    visible = visibility(trees, tokens, device)
    return create_block_mask(visible, None, None, tokens, tokens, device=str(device))


def visibility(trees: tuple[Tree, ...], tokens: int, device: torch.device) -> Visible:
    """The mask function over token indices (batch and head play no part)."""
    tree_T = torch.zeros(tokens, dtype=torch.int32, device=device)
    branch_T = torch.zeros(tokens, dtype=torch.int32, device=device)
    for number, tree in enumerate(trees):
        tree_T[tree.tokens] = number
        if tree.completions:
            lengths_G = torch.tensor(tree.completions, device=device)
            branch_T[tree.completion_tokens] = 1 + torch.repeat_interleave(lengths_G).int()

    def visible(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        same = (branch_T[key] == 0) | (branch_T[key] == branch_T[query])
        return (tree_T[query] == tree_T[key]) & same & (key <= query)

    return visible


@cache
def compiled_attention() -> Callable[..., Tensor]:
    """FlexAttention compiled once for all lengths."""
    return torch.compile(flex_attention, dynamic=True)


def attend(query: Tensor, key: Tensor, value: Tensor, mask: BlockMask, scale: float) -> Tensor:
    """Queries (1, H, T, D), keys and values (1, J, T, D) -> like the queries."""
    dtype = value.dtype
    kernel = compiled_attention() if value.is_cuda else flex_attention
    return kernel(
        query.to(dtype),
        key.to(dtype),
        value,
        block_mask=mask,
        scale=scale,
        enable_gqa=query.shape[1] != key.shape[1],
    )


class AttentionPlan(Protocol):
    """How the tokens of one forward pass see each other."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Attention of one layer: query (B, Hq, T, D), key and value (B, Hkv, T, D) -> like query.

        `layer` counts from 0; Hq is a multiple of Hkv (grouped queries).
        """
        ...


def refuse_unplanned(attention: Any) -> None:
    """Raise InputError where a layer's attention module asks for more than plans do.

    Mistral's modules read the window off the config, the others have their own.
    """
    window = getattr(attention, "sliding_window", None)
    if attention.config.model_type == "mistral":
        window = attention.config.sliding_window
    if window is not None:
        raise InputError(f"{type(attention).__name__} uses sliding_window")
    if attention.training and attention.attention_dropout:
        raise InputError("attention dropout", fix="set attention_dropout to 0")


@dataclass(frozen=True)
class TreePlan:
    """A packed row: each prompt sees itself causally, each completion its prompt and itself."""

    trees: tuple[Tree, ...]

    @cached_property
    def mask(self) -> BlockMask:
        """The same for FlexAttention on a GPU, made once for all layers."""
        return tree_mask(self.trees, self.trees[-1].tokens.stop, torch.device("cuda"))

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """See `AttentionPlan.attend`; B is 1 and T covers all trees in order."""
        if query.is_cuda:
            return attend(query, key, value, self.mask, scale)
        return tree_attention(query[0], key[0], value[0], self.trees, scale)[None]
