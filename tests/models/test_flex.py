"""FlexAttention over a packed row sees exactly what the blocks for CPUs see."""

import pytest
import torch

from assay.models.attention import attend, tree_attention, tree_mask
from assay.models.scoring import build_tree
from tests.few import few

SHAPES = [
    [(7, [3, 5, 0, 2])],
    [(1, [])],
    [(4, [6]), (9, [2, 2]), (3, [])],
    [(150, [140, 3, 131])],
]


@pytest.mark.parametrize("shape", SHAPES)
@few("key_heads", [2, 1, 4], fast=1)
def test_both_kinds_of_tree_attention_agree(shape, key_heads):
    # On a CPU FlexAttention has no backward pass; on a GPU it follows from the same mask.
    torch.manual_seed(0)
    trees, start = [], 0
    for prompt, fed in shape:
        trees.append(build_tree(start, prompt, fed))
        start = trees[-1].tokens.stop
    query = torch.randn(4, start, 8)
    key, value = torch.randn(2, key_heads, start, 8)
    blocks = tree_attention(query, key, value, tuple(trees), 0.3)
    mask = tree_mask(tuple(trees), start, torch.device("cpu"))
    flex = attend(query[None], key[None], value[None], mask, 0.3)[0]
    torch.testing.assert_close(blocks, flex)
