"""Attention over trees of one prompt and its completions, without keeping any score matrix.

The prompt's keys are read once for all completions: scores against the prompt and against a
completion's own tokens are two products under one softmax. Both passes work in blocks that stay
in the processor's cache; the backward pass computes scores again from the saved log-sum-exp
(Dao et al. 2022, FlashAttention, https://arxiv.org/abs/2205.14135). Key heads are never repeated
for their query heads. How tokens form trees is `attention.py`'s business.

Suffixes: J key heads, R query heads per key head, T packed tokens, D head size, G completions,
C tokens of the longest, P prompt tokens.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

QUERY_BLOCK = 128
"""Query positions handled together."""
SCORE_BLOCK = 1 << 20
"""Scores held at once, as long as one completion's block allows."""


def widened(tensor: Tensor) -> Tensor:
    """The tensor in at least float32, where sums over many keys or words are taken."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


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
    """Queries (J, R, T, D), scaled, and keys and values (J, T, D), all in one dtype."""

    query: Tensor
    key: Tensor
    value: Tensor


def tree_attention(
    query_HTD: Tensor, key_JTD: Tensor, value_JTD: Tensor, trees: tuple[Tree, ...], scale: float
) -> Tensor:
    """Attention of packed trees: (H, T, D), H = J * R. Computed in the values' dtype.

    Each prompt sees itself causally; each completion sees its prompt and itself. Scores and
    softmax are at least float32.
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
        key_heads, dtype = len(key_JTD), value_JTD.dtype
        query = (query_HTD * scale).to(dtype).view(key_heads, -1, tokens, size)
        packed = Packed(query, key_JTD.to(dtype), value_JTD)
        output_TJRD = query.new_empty(tokens, key_heads, heads // key_heads, size)
        output = output_TJRD.permute(1, 2, 0, 3)
        normaliser = widened(query.new_empty(0)).new_empty(query.shape[:3])
        for tree in trees:
            here = tree.prompt_tokens
            key, value = packed.key[:, here], packed.value[:, here]
            attend_causally(
                query[:, :, here], key, value, output[:, :, here], normaliser[:, :, here]
            )
            if tree.completions:
                _completions_forward(tree, packed, output, normaliser)
        ctx.save_for_backward(query, packed.key, value_JTD, output, normaliser)
        ctx.trees, ctx.scale = trees, scale
        ctx.dtypes = (query_HTD.dtype, key_JTD.dtype)
        return output_TJRD.view(tokens, heads, size).transpose(0, 1)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Gradients of queries, keys and values."""
        query, key, value, output, normaliser = ctx.saved_tensors
        packed = Packed(query, key, value)
        grad = grads[0].to(value.dtype).unflatten(0, query.shape[:2])
        delta = (widened(grad) * output).sum(dim=-1)
        into = Packed(
            torch.empty_like(query),
            torch.zeros_like(key, dtype=normaliser.dtype),
            torch.zeros_like(value, dtype=normaliser.dtype),
        )
        for tree in ctx.trees:
            _prompt_backward(tree, packed, normaliser, grad, delta, into)
            if tree.completions:
                _completions_backward(tree, packed, normaliser, grad, delta, into)
        query_dtype, key_dtype = ctx.dtypes
        grad_query = (into.query * ctx.scale).flatten(0, 1).to(query_dtype)
        return grad_query, into.key.to(key_dtype), into.value.to(value.dtype), None, None


def spans(length: int, step: int) -> Iterator[tuple[int, int]]:
    """Consecutive (first, stop) pairs that cover `length`."""
    for first in range(0, length, step):
        yield first, min(first + step, length)


def _scores(query_BMD: Tensor, key_BND: Tensor) -> Tensor:
    # Rounded to bf16 they would cost attention weights, and the gradient, two digits.
    return torch.bmm(widened(query_BMD), widened(key_BND).transpose(1, 2))


def _hide_later(scores_BMN: Tensor, queries: int) -> None:
    """The last `queries` keys are the queries' own positions: hide those after each query.

    The rows M are R times the queries, head by head.
    """
    later = torch.ones(queries, queries, dtype=torch.bool, device=scores_BMN.device).triu_(1)
    own = scores_BMN.unflatten(1, (-1, queries))[..., scores_BMN.shape[-1] - queries :]
    own.masked_fill_(later, float("-inf"))


def attend_causally(
    query_JRnD: Tensor, key_JND: Tensor, value_JND: Tensor, output: Tensor, normaliser: Tensor
) -> None:
    """Attention of the last n of N positions to all up to themselves, into (J, R, n, D).

    Queries are scaled. `normaliser` (J, R, n) receives the log-sum-exp of each query's scores.
    """
    behind = key_JND.shape[1] - query_JRnD.shape[2]
    for first, stop in spans(query_JRnD.shape[2], QUERY_BLOCK):
        scores = _scores(query_JRnD[:, :, first:stop].flatten(1, 2), key_JND[:, : behind + stop])
        _hide_later(scores, stop - first)
        highest = scores.amax(dim=-1, keepdim=True)
        weights = scores.sub_(highest).exp_()
        total = weights.sum(dim=-1, keepdim=True)
        value = value_JND[:, : behind + stop]
        mixed = widened(torch.bmm(weights.to(value.dtype), value)).div_(total)
        output[:, :, first:stop] = mixed.unflatten(1, (-1, stop - first))
        normaliser[:, :, first:stop] = (highest + total.log())[..., 0].unflatten(
            1, (-1, stop - first)
        )


def _prompt_backward(
    tree: Tree, packed: Packed, normaliser: Tensor, grad: Tensor, delta: Tensor, into: Packed
) -> None:
    key, value = packed.key[:, tree.prompt_tokens], packed.value[:, tree.prompt_tokens]
    for first, stop in spans(tree.prompt, QUERY_BLOCK):
        here = slice(tree.start + first, tree.start + stop)
        seen = slice(tree.start, tree.start + stop)
        query, grad_here = packed.query[:, :, here].flatten(1, 2), grad[:, :, here].flatten(1, 2)
        scores = _scores(query, key[:, :stop])
        _hide_later(scores, stop - first)
        weights = scores.sub_(normaliser[:, :, here].flatten(1)[..., None]).exp_()
        into.value[:, seen] += torch.bmm(weights.to(value.dtype).transpose(1, 2), grad_here)
        pull = _scores(grad_here, value[:, :stop])
        pull = pull.sub_(delta[:, :, here].flatten(1)[..., None]).mul_(weights).to(key.dtype)
        into.query[:, :, here] = torch.bmm(pull, key[:, :stop]).unflatten(1, (-1, stop - first))
        into.key[:, seen] += torch.bmm(pull.transpose(1, 2), query)


def _grid(tree: Tree, packed: Tensor, token_axis: int) -> Tensor:
    """Completion tokens of a packed tensor with the token axis unfolded to (G, C), 0-padded."""
    shape = (tree.completions, tree.longest)
    flat = packed.narrow(token_axis, tree.completion_tokens.start, len(tree.index_K))
    cells = tree.completions * tree.longest
    if len(tree.index_K) < cells:
        sizes = [*flat.shape[:token_axis], cells, *flat.shape[token_axis + 1 :]]
        flat = flat.new_zeros(sizes).index_copy_(token_axis, tree.index_K, flat)
    return flat.unflatten(token_axis, shape)


def _ungrid(tree: Tree, grid: Tensor, token_axis: int) -> Tensor:
    """Undo `_grid`: real tokens only, in packed order."""
    flat = grid.flatten(token_axis, token_axis + 1)
    if len(tree.index_K) == flat.shape[token_axis]:
        return flat
    return flat.index_select(token_axis, tree.index_K)


@dataclass(frozen=True)
class _Block:
    """Some completions (G) at some of their positions (n), as batched matrices."""

    tree: Tree
    completions: slice
    positions: slice

    def queries(self, grid_JRGC: Tensor) -> Tensor:
        """Rows of these queries, heads beside each other: (J * G, R * n, ...)."""
        block = grid_JRGC[:, :, self.completions, self.positions]
        return block.transpose(1, 2).flatten(2, 3).flatten(0, 1)

    def put(self, grid_JRGC: Tensor, rows: Tensor) -> None:
        """Write rows, laid out as `queries` gives them, back into a grid."""
        block = grid_JRGC[:, :, self.completions, self.positions]
        shape = block.transpose(1, 2).shape
        block.copy_(rows.view(shape).transpose(1, 2))

    def keys(self, grid_JGC: Tensor) -> Tensor:
        """A view of the own keys that these queries may see: (J, G, stop, ...)."""
        return grid_JGC[:, self.completions, : self.positions.stop]

    def scores(self, query: Tensor, key_prompt: Tensor, key_own: Tensor) -> tuple[Tensor, Tensor]:
        """Scores (J * G, R * n, P) against the prompt and (J * G, R * n, stop) against its own."""
        shared = _scores(_by_head(query, key_prompt), key_prompt)
        own = _scores(query, self.keys(key_own).flatten(0, 1))
        _hide_later(own, self.positions.stop - self.positions.start)
        return shared.view(*query.shape[:2], -1), own


def _by_head(rows: Tensor, key_prompt: Tensor) -> Tensor:
    """(J * G, M, ...) as (J, G * M, ...): all completions meet the prompt in one product."""
    return rows.reshape(len(key_prompt), -1, rows.shape[-1])


def _completion_blocks(tree: Tree, heads: int) -> Iterator[_Block]:
    for first, stop in spans(tree.longest, QUERY_BLOCK):
        each = heads * (stop - first) * (tree.prompt + stop)
        for begin, end in spans(tree.completions, max(1, SCORE_BLOCK // each)):
            yield _Block(tree, slice(begin, end), slice(first, stop))


def _completions_forward(tree: Tree, packed: Packed, output: Tensor, normaliser: Tensor) -> None:
    query, key, value = (_grid(tree, x, x.dim() - 2) for x in _fields(packed))
    key_prompt, value_prompt = (x[:, tree.prompt_tokens] for x in (packed.key, packed.value))
    mixed_grid, normaliser_grid = torch.empty_like(query), normaliser.new_empty(query.shape[:4])
    for block in _completion_blocks(tree, query.shape[0] * query.shape[1]):
        shared, own = block.scores(block.queries(query), key_prompt, key)
        highest = torch.maximum(shared.amax(-1, keepdim=True), own.amax(-1, keepdim=True))
        shared.sub_(highest).exp_()
        own.sub_(highest).exp_()
        total = shared.sum(-1, keepdim=True) + own.sum(-1, keepdim=True)
        mixed = torch.bmm(_by_head(shared, key_prompt).to(value.dtype), value_prompt)
        mixed_own = torch.bmm(own.to(value.dtype), block.keys(value).flatten(0, 1))
        mixed = (widened(mixed).view(mixed_own.shape) + mixed_own).div_(total)
        block.put(mixed_grid, mixed)
        block.put(normaliser_grid, (highest + total.log())[..., 0])
    output[:, :, tree.completion_tokens] = _ungrid(tree, mixed_grid, 2)
    normaliser[:, :, tree.completion_tokens] = _ungrid(tree, normaliser_grid, 2)


def _fields(packed: Packed) -> tuple[Tensor, Tensor, Tensor]:
    return packed.query, packed.key, packed.value


def _completions_backward(
    tree: Tree, packed: Packed, normaliser: Tensor, grad: Tensor, delta: Tensor, into: Packed
) -> None:
    query, key, value = (_grid(tree, x, x.dim() - 2) for x in _fields(packed))
    grad_grid, normaliser_grid, delta_grid = (_grid(tree, x, 2) for x in (grad, normaliser, delta))
    key_prompt, value_prompt = (x[:, tree.prompt_tokens] for x in (packed.key, packed.value))
    query_into = torch.empty_like(query)
    key_into = torch.zeros_like(key, dtype=normaliser.dtype)
    value_into = torch.zeros_like(key_into)
    for block in _completion_blocks(tree, query.shape[0] * query.shape[1]):
        rows, grad_rows = block.queries(query), block.queries(grad_grid)
        key_own, value_own = (block.keys(x).flatten(0, 1) for x in (key, value))
        shared, own = block.scores(rows, key_prompt, key)
        for scores in (shared, own):
            scores.sub_(block.queries(normaliser_grid)[..., None]).exp_()
        into.value[:, tree.prompt_tokens] += torch.bmm(
            _by_head(shared, key_prompt).to(value.dtype).transpose(1, 2),
            _by_head(grad_rows, key_prompt),
        )
        block.keys(value_into).add_(
            torch.bmm(own.to(value.dtype).transpose(1, 2), grad_rows).view_as(block.keys(value))
        )
        pull_shared = _scores(_by_head(grad_rows, key_prompt), value_prompt).view_as(shared)
        pull_own = _scores(grad_rows, value_own)
        for pull, weights in ((pull_shared, shared), (pull_own, own)):
            pull.sub_(block.queries(delta_grid)[..., None]).mul_(weights)
        pull_shared = _by_head(pull_shared, key_prompt).to(key.dtype)
        pull_own = pull_own.to(key.dtype)
        rows_into = torch.bmm(pull_shared, key_prompt).view_as(rows) + torch.bmm(pull_own, key_own)
        block.put(query_into, rows_into)
        into.key[:, tree.prompt_tokens] += torch.bmm(
            pull_shared.transpose(1, 2), _by_head(rows, key_prompt)
        )
        block.keys(key_into).add_(
            torch.bmm(pull_own.transpose(1, 2), rows).view_as(block.keys(key))
        )
    here = tree.completion_tokens
    into.query[:, :, here] = _ungrid(tree, query_into, 2)
    into.key[:, here] = _ungrid(tree, key_into, 1)
    into.value[:, here] = _ungrid(tree, value_into, 1)
