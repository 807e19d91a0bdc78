"""Attention over packed rows by a plan that says which tokens see each other.

`TreePlan` covers packed training rows: `tree_attention` computes it block by block on a CPU, one
FlexAttention call (https://arxiv.org/abs/2412.05496) on a GPU, where a mask replaces the blocks and
empty ones are skipped. On a CPU the FlexAttention path is only a reference for tests. Models with
sliding windows or attention dropout are refused.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from assay.errors import InputError
from assay.models.matmul import batched, wide_type

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
    # Where keys lie before the first query, every query sees them: no mask as long as the row.
    low = max(seen, first - LANES)
    query_M1, key_N = torch.arange(first, stop)[:, None], torch.arange(low, stop)
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
    # The mask covers the last keys only; every query of the block sees those before them.
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
    # A GPU has better kernels than blocks of plain products.
    if not query_HMD.is_cpu:
        mask = causal_lower_right(queries, keys)
        inputs = query_HMD[None].to(value_JND.dtype), key_JND[None], value_JND[None]
        return F.scaled_dot_product_attention(*inputs, mask, scale=scale, enable_gqa=True)[0]
    scaled_HMD = scaled(query_HMD, scale, value_JND.dtype)
    output_HMD = torch.empty_like(scaled_HMD)
    for part in cut((queries,)):
        here, seen = slice(part.first, part.stop), slice(0, keys - queries + part.stop)
        rows = by_key_head(scaled_HMD[:, here], heads)
        weights = weigh(rows, key_JND[:, seen], part.unseen_MN)
        place(batched(weights, value_JND[:, seen]), output_HMD[:, here])
    return output_HMD


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
    """See `Span`."""

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
        # A query lies in one block; a key sums over all blocks that see it, so in float32 at least.
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
        # The blocks worked with scaled queries, so the gradient of the given ones is scaled too.
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
    options: dict[str, Any] = {"block_mask": mask, "scale": scale}
    options["enable_gqa"] = query.shape[1] != key.shape[1]
    if not value.is_cuda:
        return flex_attention(query.to(dtype), key.to(dtype), value, **options)
    # Below 128 tokens torch takes its kernel for decoding, which has no block size for 64 to 127
    # tokens of grouped queries, and no backward pass.
    options["kernel_options"] = {"FORCE_USE_FLEX_ATTENTION": True}
    return compiled_attention()(query.to(dtype), key.to(dtype), value, **options)


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
