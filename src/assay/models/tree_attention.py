"""Attention over trees of one prompt and its completions, without keeping any score matrix.

The prompt's keys are read once for all completions, whose queries meet them in one product of
their own; what a completion sees of itself is another part, and both merge (`flash`). Key heads
are never repeated for their query heads. How tokens form trees is `attention.py`'s business.

Suffixes: H query heads, J key heads, T packed tokens, D head size, G completions, C tokens of the
longest, P prompt tokens.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from assay.models.flash import attend, attend_backward, merge
from assay.models.numeric import widened


@dataclass(frozen=True)
class Tree:
    """One prompt and its completions inside a packed row of T tokens."""

    start: int
    """Index in T of the prompt's first token; the completions follow it end to end."""
    prompt: int
    """P, the number of prompt tokens."""
    completions: int
    """G."""
    longest: int
    """C, the tokens of the longest completion."""
    index_K: Tensor
    """Positions in the flattened (G, C) grid that hold real tokens, in packed order."""

    @property
    def tokens(self) -> slice:
        """The tree's tokens in T."""
        return slice(self.start, self.start + self.prompt + len(self.index_K))

    @property
    def prompt_tokens(self) -> slice:
        """The prompt's tokens in T."""
        return slice(self.start, self.start + self.prompt)

    @property
    def completion_tokens(self) -> slice:
        """The completions' tokens in T."""
        return slice(self.start + self.prompt, self.tokens.stop)


@dataclass(frozen=True)
class Packed:
    """Queries (H, T, D), and keys and values (J, T, D), all in one dtype."""

    query: Tensor
    key: Tensor
    value: Tensor

    def part(self, tokens: slice) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of some tokens, as a batch of one."""
        return self.query[None, :, tokens], self.key[None, :, tokens], self.value[None, :, tokens]


def tree_attention(
    query_HTD: Tensor, key_JTD: Tensor, value_JTD: Tensor, trees: tuple[Tree, ...], scale: float
) -> Tensor:
    """Attention of packed trees on a CPU: (H, T, D). Computed in the values' dtype.

    Each prompt sees itself causally; each completion sees its prompt and itself. Scores and
    softmax are at least float32. H is a multiple of J.
    """
    output: Any = TreeAttention.apply(query_HTD, key_JTD, value_JTD, trees, scale)
    return output


class TreeAttention(torch.autograd.Function):
    """See `tree_attention`."""

    @staticmethod
    def forward(
        ctx: Any,
        query_HTD: Tensor,
        key_JTD: Tensor,
        value_JTD: Tensor,
        trees: tuple[Tree, ...],
        scale: float,
    ) -> Tensor:
        """Outputs (H, T, D), laid out token by token as the next product reads them."""
        heads, tokens, size = query_HTD.shape
        dtype = value_JTD.dtype
        packed = Packed(query_HTD.to(dtype), key_JTD.to(dtype), value_JTD)
        output = packed.query.new_empty(tokens, heads, size).transpose(0, 1)
        normaliser = widened(packed.query.new_empty(0)).new_empty(heads, tokens)
        for tree in trees:
            here = tree.prompt_tokens
            into = output[None, :, here], normaliser[None, :, here]
            _copy(into, attend(*packed.part(here), scale, causal=True))
            if tree.completions:
                here = tree.completion_tokens
                into = output[None, :, here], normaliser[None, :, here]
                _copy(into, _completions(tree, packed, scale))
        ctx.save_for_backward(packed.query, packed.key, value_JTD, output, normaliser)
        ctx.trees, ctx.scale = trees, scale
        ctx.dtypes = (query_HTD.dtype, key_JTD.dtype)
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Gradients of queries, keys and values."""
        query, key, value, output, normaliser = ctx.saved_tensors
        packed = Packed(query, key, value)
        grad = grads[0].to(value.dtype)
        into = Packed(*(torch.zeros_like(x, dtype=normaliser.dtype) for x in (query, key, value)))
        for tree in ctx.trees:
            here = tree.prompt_tokens
            done = output[None, :, here], normaliser[None, :, here]
            parts = attend_backward(
                grad[None, :, here], *packed.part(here), done, ctx.scale, causal=True
            )
            _add(into.part(here), parts)
            if tree.completions:
                _completions_backward(tree, packed, output, normaliser, grad, into, ctx.scale)
        query_dtype, key_dtype = ctx.dtypes
        return (
            into.query.to(query_dtype),
            into.key.to(key_dtype),
            into.value.to(value.dtype),
            None,
            None,
        )


def _copy(into: tuple[Tensor, ...], values: tuple[Tensor, ...]) -> None:
    for target, value in zip(into, values, strict=True):
        target.copy_(value)


def _add(into: tuple[Tensor, ...], values: tuple[Tensor, ...]) -> None:
    for target, value in zip(into, values, strict=True):
        target.add_(value)


def _grid(tree: Tree, packed: Tensor) -> Tensor:
    """Completion tokens of (heads, T, ...) as (G, heads, C, ...), 0 where a completion is short."""
    flat = packed[:, tree.completion_tokens]
    cells = tree.completions * tree.longest
    if flat.shape[1] < cells:
        whole = flat.new_zeros(len(flat), cells, *flat.shape[2:])
        flat = whole.index_copy_(1, tree.index_K, flat)
    return flat.unflatten(1, (tree.completions, tree.longest)).transpose(0, 1)


def _grids(tree: Tree, packed: Packed) -> tuple[Tensor, Tensor, Tensor]:
    return _grid(tree, packed.query), _grid(tree, packed.key), _grid(tree, packed.value)


def _ungrid(tree: Tree, grid: Tensor) -> Tensor:
    """Undo `_grid`: real tokens only, in packed order, as a batch of one."""
    flat = grid.transpose(0, 1).flatten(1, 2)
    if len(tree.index_K) < flat.shape[1]:
        flat = flat.index_select(1, tree.index_K)
    return flat[None]


def _completions(tree: Tree, packed: Packed, scale: float) -> tuple[Tensor, Tensor]:
    """Outputs (1, H, K, D) and log-sum-exps (1, H, K) of all completions' K tokens."""
    query, _, _ = packed.part(tree.completion_tokens)
    _, key, value = packed.part(tree.prompt_tokens)
    output, normaliser = attend(*_grids(tree, packed), scale, causal=True)
    own = _ungrid(tree, output), _ungrid(tree, normaliser)
    return merge(attend(query, key, value, scale, causal=False), own)


def _completions_backward(
    tree: Tree,
    packed: Packed,
    output: Tensor,
    normaliser: Tensor,
    grad: Tensor,
    into: Packed,
    scale: float,
) -> None:
    """Add the completions' gradients; padding of the grid has none, as its `grad` is 0."""
    here = tree.completion_tokens
    query, _, _ = packed.part(here)
    _, key, value = packed.part(tree.prompt_tokens)
    done = output[None, :, here], normaliser[None, :, here]
    grad_query, *shared = attend_backward(
        grad[None, :, here], query, key, value, done, scale, causal=False
    )
    into.query[None, :, here].add_(grad_query)
    _add(into.part(tree.prompt_tokens)[1:], tuple(shared))
    done = _grid(tree, output), _grid(tree, normaliser)
    own = attend_backward(_grid(tree, grad), *_grids(tree, packed), done, scale, causal=True)
    _add(into.part(here), tuple(_ungrid(tree, each) for each in own))
