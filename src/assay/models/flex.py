"""Attention over packed trees as one FlexAttention call, for GPUs.

A mask in place of parts: which tokens see each other follows from the token's tree, its
completion and its place, so one fused kernel covers the whole packed row, and empty blocks are
skipped. On a CPU `tree_attention` computes part by part; there this module serves as a second
opinion in tests. FlexAttention: https://arxiv.org/abs/2412.05496.
"""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from assay.models.tree_attention import Tree

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
