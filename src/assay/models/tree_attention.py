"""Attention over trees of one prompt and its completions, without keeping any score matrix.

A prompt's tokens see each other causally, a completion's tokens see the prompt and themselves. It
goes block by block (`block_attention`), and going back computes each block's scores again. How
tokens form trees is `attention.py`'s business.

Suffixes: H query heads, J key heads, T packed tokens, D head size, R rows of a block, N its keys.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from assay.models.block_attention import (
    Span,
    by_key_head,
    cut,
    place,
    scaled,
    weigh,
    weigh_backward,
)
from assay.models.matmul import batched
from assay.models.numeric import wide_type


@dataclass(frozen=True)
class Tree:
    """One prompt and its completions inside a packed row of T tokens."""

    start: int
    """Index in T of the prompt's first token; the completions follow it end to end."""
    prompt: int
    """The number of prompt tokens."""
    completions: tuple[int, ...]
    """The number of tokens of each completion."""

    @property
    def tokens(self) -> slice:
        """The tree's tokens in T."""
        return slice(self.start, self.start + self.prompt + sum(self.completions))

    @property
    def prompt_tokens(self) -> slice:
        """The prompt's tokens in T."""
        return slice(self.start, self.start + self.prompt)

    @property
    def completion_tokens(self) -> slice:
        """The completions' tokens in T."""
        return slice(self.start + self.prompt, self.tokens.stop)

    @cached_property
    def blocks(self) -> tuple["Block", ...]:
        """All of the tree, cut up; made once for all layers."""
        none, prompt = slice(self.start, self.start), self.prompt_tokens
        return (
            *(block(none, prompt.start, span) for span in cut((self.prompt,))),
            *(block(prompt, prompt.stop, span) for span in cut(self.completions)),
        )


@dataclass(frozen=True)
class Block:
    """Queries that go together, and the keys that any of them sees: some of T each."""

    queries: slice
    shared: slice
    """Keys that every query sees, or none."""
    own: slice
    """The other keys."""
    unseen_MN: Tensor
    """See `block_attention.Span`."""

    def of_keys(self, packed_JTD: Tensor) -> Tensor:
        """What all its keys have, (J, N, D)."""
        if self.shared.start == self.shared.stop:
            return packed_JTD[:, self.own]
        return torch.cat([packed_JTD[:, self.shared], packed_JTD[:, self.own]], dim=1)

    def add_to_keys(self, packed_JDT: Tensor, change_JDN: Tensor) -> None:
        """Add to what its keys have."""
        count = self.shared.stop - self.shared.start
        if count:
            packed_JDT[..., self.shared] += change_JDN[..., :count]
        packed_JDT[..., self.own] += change_JDN[..., count:]


def block(shared: slice, start: int, span: Span) -> Block:
    """The block of a span that is counted from `start`."""
    queries, own = slice(start + span.first, start + span.stop), start + span.seen
    return Block(queries, shared, slice(own, queries.stop), span.unseen_MN)


def tree_attention(
    query_HTD: Tensor, key_JTD: Tensor, value_JTD: Tensor, trees: tuple[Tree, ...], scale: float
) -> Tensor:
    """Attention of packed trees on a CPU: (H, T, D). Computed in the values' dtype.

    Each prompt sees itself causally; each completion sees its prompt and itself. H is a multiple
    of J.
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
        query = scaled(query_HTD, scale, dtype)
        key, value = key_JTD.to(dtype).contiguous(), value_JTD.contiguous()
        output = query.new_empty(tokens, heads, size).transpose(0, 1)
        for part in blocks(trees):
            rows = by_key_head(query[:, part.queries], len(key))
            weights = weigh(rows, part.of_keys(key), part.unseen_MN)
            place(batched(weights, part.of_keys(value)), output[:, part.queries])
        ctx.save_for_backward(query, key, value)
        ctx.trees, ctx.scale = trees, scale
        ctx.dtypes = (query_HTD.dtype, key_JTD.dtype, value_JTD.dtype)
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Gradients of queries, keys and values."""
        query, key, value = ctx.saved_tensors
        grad = grads[0].to(value.dtype)
        query_dtype, key_dtype, value_dtype = ctx.dtypes
        into_query = torch.empty_like(query)
        into_key, into_value = (
            x.new_zeros(len(x), x.shape[2], x.shape[1], dtype=wide_type(x)) for x in (key, value)
        )
        for part in blocks(ctx.trees):
            rows, pull = (by_key_head(x[:, part.queries], len(key)) for x in (query, grad))
            keys, values = part.of_keys(key), part.of_keys(value)
            weights = weigh(rows, keys, part.unseen_MN)
            grad_rows, grad_keys, grad_values = weigh_backward(pull, rows, keys, values, weights)
            place(grad_rows, into_query[:, part.queries])
            part.add_to_keys(into_key, grad_keys)
            part.add_to_keys(into_value, grad_values)
        return (
            into_query.to(query_dtype).mul_(ctx.scale),
            into_key.transpose(1, 2).to(key_dtype),
            into_value.transpose(1, 2).to(value_dtype),
            None,
            None,
        )


def blocks(trees: tuple[Tree, ...]) -> Iterator[Block]:
    """Those of all trees."""
    for tree in trees:
        yield from tree.blocks
