"""Attention of a block of queries over all the keys it sees, as plain products.

On a CPU the matrix library's products are several times faster in bfloat16 than the one-pass
kernels are, and as fast in float32; a block's scores are small enough to stay in the cache, and
nothing above the causal diagonal is computed but inside a block. Query heads that share a key head
go as rows of one product, so that keys are never repeated. Scores are rounded to the type of the
products, sums and softmax are taken in at least float32. Which tokens form a block is the caller's
business; a GPU has better kernels than this.

H query heads, J key heads, M queries, N keys, D head size, R rows: the queries of all heads that
share a key head, Q of them.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right

from assay.models.matmul import batched

ROWS = 64
"""Queries of a block at most; what a block computes above the diagonal grows with it."""
LANES = 32
"""Numbers in a vector register at most: rows of other lengths are added several times slower."""


@dataclass(frozen=True)
class Span:
    """Neighbouring queries, and the keys behind a common beginning that any of them sees."""

    first: int
    stop: int
    seen: int
    """Where those keys begin; they end with the last query."""
    unseen_MN: Tensor
    """Added to the scores of the last keys: -inf where a query does not see a key."""


@lru_cache(maxsize=32)  # the layers of a model ask one after the other
def cut(lengths: tuple[int, ...]) -> tuple[Span, ...]:
    """Spans of at most ROWS queries; each token sees itself and what precedes it in its sequence.

    `lengths` are of sequences laid end to end from 0. Short ones share a span, a long one has
    spans of its own.
    """
    spans: list[Span] = []
    sequence_T = torch.repeat_interleave(torch.tensor(lengths, dtype=torch.long))
    first = stop = 0
    for length in lengths:
        if first < stop and stop + length - first > ROWS:
            spans.append(span(sequence_T, first, stop, first))
            first = stop
        begin, stop = stop, stop + length
        if length > ROWS:
            cuts = range(begin, stop, ROWS)
            spans += [span(sequence_T, a, min(a + ROWS, stop), begin) for a in cuts]
            first = stop
    if first < stop:
        spans.append(span(sequence_T, first, stop, first))
    return tuple(spans)


def span(sequence_T: Tensor, first: int, stop: int, seen: int) -> Span:
    """The span, its mask no wider than it must be but for whole vectors."""
    query_M1, key_N = torch.arange(first, stop)[:, None], torch.arange(seen, stop)
    unseen_MN = (key_N > query_M1) | (sequence_T[key_N] != sequence_T[query_M1])
    hidden_N = unseen_MN.any(dim=0)
    wanted = len(key_N) - int(hidden_N.int().argmax()) if hidden_N.any() else 0
    from_N = max(0, len(key_N) - -(-wanted // LANES) * LANES)
    mask_MN = torch.zeros(unseen_MN.shape).masked_fill_(unseen_MN, float("-inf"))
    return Span(first, stop, seen, mask_MN[:, from_N:].contiguous())


def scaled(query_HMD: Tensor, scale: float, dtype: torch.dtype) -> Tensor:
    """Queries as `weigh` takes them, rounded once."""
    return (query_HMD * scale).to(dtype)


def by_key_head(heads_HMD: Tensor, key_heads: int) -> Tensor:
    """(H, M, D) as (J, R, D)."""
    return heads_HMD.unflatten(0, (key_heads, -1)).flatten(1, 2)


def place(rows_JRD: Tensor, heads_HMD: Tensor) -> None:
    """Undo `by_key_head`: write rows where the heads have them."""
    queries = heads_HMD.shape[1]
    heads_HMD.unflatten(0, (len(rows_JRD), -1)).copy_(rows_JRD.unflatten(1, (-1, queries)))


def weigh(rows_JRD: Tensor, keys_JND: Tensor, unseen_MN: Tensor) -> Tensor:
    """How much each row takes of each key (J, R, N); `rows_JRD` are scaled queries."""
    scores_JRN = batched(rows_JRD, keys_JND.transpose(1, 2))
    queries, hidden = unseen_MN.shape
    if hidden:
        scores_JQMN = scores_JRN.unflatten(1, (-1, queries))
        scores_JQMN[..., -hidden:].add_(unseen_MN.to(scores_JRN.dtype))
    return torch.softmax(scores_JRN, dim=-1)


def weigh_backward(
    pull_JRD: Tensor, rows_JRD: Tensor, keys_JND: Tensor, values_JND: Tensor, weights_JRN: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of rows (J, R, D), and of keys and values (J, D, N) as they are computed fastest.

    `pull_JRD` is of the outputs, `weights_JRN` is what `weigh` gave.
    """
    grad_values = batched(pull_JRD.transpose(1, 2), weights_JRN)
    grad_weights = batched(pull_JRD, values_JND.transpose(1, 2))
    grad_scores = torch.ops.aten._softmax_backward_data(
        grad_weights, weights_JRN, -1, weights_JRN.dtype
    )
    grad_keys = batched(rows_JRD.transpose(1, 2), grad_scores)
    return batched(grad_scores, keys_JND), grad_keys, grad_values


def attend_last(query_HMD: Tensor, key_JND: Tensor, value_JND: Tensor, scale: float) -> Tensor:
    """The last M of N positions see all up to themselves: (H, M, D), on any device.

    Computed in the type of the values.
    """
    queries, keys, heads = query_HMD.shape[1], key_JND.shape[1], len(key_JND)
    if not query_HMD.is_cpu:
        mask = causal_lower_right(queries, keys)
        given = query_HMD[None].to(value_JND.dtype), key_JND[None], value_JND[None]
        return F.scaled_dot_product_attention(*given, mask, scale=scale, enable_gqa=True)[0]
    scaled_HMD = scaled(query_HMD, scale, value_JND.dtype)
    output_HMD = torch.empty_like(scaled_HMD)
    for part in cut((queries,)):
        here, seen = slice(part.first, part.stop), slice(0, keys - queries + part.stop)
        rows = by_key_head(scaled_HMD[:, here], heads)
        weights = weigh(rows, key_JND[:, seen], part.unseen_MN)
        place(batched(weights, value_JND[:, seen]), output_HMD[:, here])
    return output_HMD
