"""Log-probs of completions with every distinct prompt computed once, in one packed row.

Lays prompts and completions out as trees, runs the layers with a `TreePlan`, and reads log-probs
and entropies at completion positions only. Gradients flow; nothing is sampled.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from peft import PeftModel
from torch import Tensor, nn
from transformers import PreTrainedModel

from assay.data.episode import continues
from assay.errors import InputError
from assay.models.attention import Tree, TreePlan
from assay.models.layers import computed, multipliers, run_layers, times
from assay.models.matmul import moved, product, spans, widened
from assay.models.supported import FAMILIES, refuse_length_dependent

KEPT_BYTES = 512 << 20
"""Scores that are kept for the backward pass at most; 2 600 positions of a 49k vocabulary in fp32.
Of more, the backward pass computes them again."""
CHUNK_BYTES = 128 << 20
"""Scores of one chunk of those that are not kept."""
CACHED_ROWS = 16
"""Rows of scores per softmax: a few MiB, which stay in the cache."""


Moments = tuple[Tensor, ...]
"""Log-probs (S), entropies (S) and variances (S) of log-probs under the model."""


@dataclass(frozen=True)
class Reads:
    """Which word is read where."""

    kept_S: Tensor
    """Index of the hidden state that predicts each action."""
    targets_S: Tensor
    temperature: float
    entropy: bool


def head_logps(
    hidden_KD: Tensor, weight_VD: Tensor, bias_V: Tensor | None, reads: Reads
) -> tuple[Tensor, Tensor | None]:
    """Log-probs (S) and, if asked, entropies (S) of softmax((W h + b) / temperature).

    Scores are computed in the type of autocast where it is on, else in that of the hidden
    states; softmax is at least float32. Differentiable once in hidden states, weight and bias.
    """
    dtype = hidden_KD.dtype
    if torch.is_autocast_enabled(hidden_KD.device.type):
        dtype = torch.get_autocast_dtype(hidden_KD.device.type)
    result: Any = HeadLogps.apply(hidden_KD, weight_VD, bias_V, reads, dtype)
    logps_S, entropy_S = result
    return logps_S, entropy_S if reads.entropy else None


class HeadLogps(torch.autograd.Function):
    """See `head_logps`; entropies are empty where they are not asked for."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_KD: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        reads: Reads,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        """Log-probs (S) and entropies (S)."""
        hidden, weight = hidden_KD.to(dtype), weight_VD.to(dtype)
        bias = None if bias_V is None else bias_V.to(dtype)
        normaliser_K = widened(hidden_KD.new_empty(0)).new_empty(len(hidden))
        entropy_K = torch.empty_like(normaliser_K) if reads.entropy else normaliser_K[:0]
        logps_S = normaliser_K.new_empty(len(reads.kept_S))
        keeps = len(hidden) <= chunk_rows(weight, KEPT_BYTES)
        rows = chunk_rows(weight, KEPT_BYTES if keeps else CHUNK_BYTES)
        logits_KV = None
        for first, stop in spans(len(hidden), rows):
            logits_KV = scaled = None  # both hold the last chunk: free it before the next is made
            logits_KV = head_scores(hidden[first:stop], weight, bias)
            chosen_S = (reads.kept_S >= first) & (reads.kept_S < stop)
            picked = logits_KV[reads.kept_S[chosen_S] - first, reads.targets_S[chosen_S]]
            logps_S[chosen_S] = widened(picked) / reads.temperature
            for a, b in spans(stop - first, CACHED_ROWS):
                here = slice(first + a, first + b)
                scaled = _scaled(logits_KV[a:b], reads.temperature)
                normaliser_K[here] = scaled.logsumexp(dim=-1)
                if reads.entropy:
                    shifted = scaled - normaliser_K[here, None]
                    entropy_K[here] = -(shifted.exp() * shifted).sum(dim=-1)
        # Not by save_for_backward: the backward pass overwrites the scores and frees them.
        ctx.logits = logits_KV if keeps and any(ctx.needs_input_grad) else None
        ctx.recompute = not keeps
        ctx.reads, ctx.dtype = reads, dtype
        ctx.save_for_backward(hidden_KD, weight_VD, bias_V, normaliser_K, entropy_K)
        logps_S -= normaliser_K[reads.kept_S]
        return logps_S, entropy_K[reads.kept_S] if reads.entropy else entropy_K

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # type: ignore[override]
        """Gradients of hidden states, weight and bias."""
        hidden_KD, weight_VD, bias_V, normaliser_K, entropy_K = ctx.saved_tensors
        hidden, weight = hidden_KD.to(ctx.dtype), weight_VD.to(ctx.dtype)
        bias = None if bias_V is None else bias_V.to(ctx.dtype)
        grad_hidden = torch.empty_like(hidden)
        wants_weight = ctx.needs_input_grad[1]
        grad_weight = None
        grad_bias = None if bias_V is None else torch.zeros_like(bias_V)
        rows = chunk_rows(weight, CHUNK_BYTES if ctx.recompute else KEPT_BYTES)
        for first, stop in spans(len(hidden), rows):
            logits = head_scores(hidden[first:stop], weight, bias) if ctx.recompute else ctx.logits
            if logits is None:
                raise RuntimeError("the scores were used up by an earlier backward pass")
            ctx.logits = None
            pull = _into_gradient(logits, first, normaliser_K, entropy_K, grads, ctx.reads)
            grad_hidden[first:stop] = product(pull, weight)
            if wants_weight:
                grad_weight = add_product(grad_weight, pull, hidden[first:stop], weight_VD.dtype)
            if grad_bias is not None:
                grad_bias += pull.sum(dim=0)
            del logits, pull
        return grad_hidden.to(hidden_KD.dtype), grad_weight, grad_bias, None, None


def chunk_rows(weight_VD: Tensor, size: int) -> int:
    """Hidden states whose scores take `size` bytes."""
    return max(1, size // (len(weight_VD) * weight_VD.element_size()))


def head_scores(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The head's scores of hidden states."""
    logits = product(hidden, weight.t())
    return logits if bias is None else logits.add_(bias)


def add_product(
    total_VD: Tensor | None, pull_CV: Tensor, hidden_CD: Tensor, dtype: torch.dtype
) -> Tensor:
    """The head's gradient so far plus one chunk's, with a temporary matrix in bf16 at most.

    Left to torch: oneDNN would copy the scores.
    """
    if total_VD is None:
        return torch.mm(pull_CV.t(), hidden_CD).to(dtype)
    if pull_CV.dtype == dtype:
        return total_VD.addmm_(pull_CV.t(), hidden_CD)
    return total_VD.add_(torch.mm(pull_CV.t(), hidden_CD))


def _scaled(logits: Tensor, temperature: float) -> Tensor:
    scaled = widened(logits)
    return scaled if temperature == 1 else scaled / temperature


def _into_gradient(
    logits_CV: Tensor,
    first: int,
    normaliser_K: Tensor,
    entropy_K: Tensor,
    grads: tuple[Tensor, ...],
    reads: Reads,
) -> Tensor:
    """Turn a chunk of scores into their gradient, in place.

    d logp(target) = onehot(target) - p; d entropy = -p (log p + entropy); both over temperature.
    """
    stop = first + len(logits_CV)
    chosen_S = (reads.kept_S >= first) & (reads.kept_S < stop)
    row_S, targets_S = reads.kept_S[chosen_S] - first, reads.targets_S[chosen_S]
    grad_S = grads[0][chosen_S] / reads.temperature
    # Several actions may be read at one hidden state; their gradients add up.
    total_C = grad_S.new_zeros(len(logits_CV)).index_add_(0, row_S, grad_S)
    entropy_C = None
    if reads.entropy:
        grad_entropy_S = grads[1][chosen_S] / reads.temperature
        entropy_C = torch.zeros_like(total_C).index_add_(0, row_S, grad_entropy_S)
    for a, b in spans(len(logits_CV), CACHED_ROWS):
        block = logits_CV[a:b]
        shifted = _scaled(block, reads.temperature) - normaliser_K[first + a : first + b, None]
        if entropy_C is None:
            pull = shifted.exp_().mul_(-total_C[a:b, None])
        else:
            slope = shifted + entropy_K[first + a : first + b, None]
            slope = slope.mul_(entropy_C[a:b, None]).add_(total_C[a:b, None])
            pull = shifted.exp_().mul_(slope).neg_()
        # Added before rounding to the scores' type: for a nearly certain word only 1 - p is left.
        here_S = (row_S >= a) & (row_S < b)
        places = row_S[here_S] - a, targets_S[here_S]
        block.copy_(pull.index_put_(places, grad_S[here_S], accumulate=True))
    return logits_CV


@dataclass(frozen=True)
class TreeRow:
    """A packed row of T tokens and where its S actions are predicted."""

    tokens_T: Tensor
    positions_T: Tensor
    plan: TreePlan
    keep_K: Tensor
    """Positions in T whose next token is an action of some completion."""
    kept_S: Tensor
    """For each action, the index into `keep_K` of the position that predicts it."""
    order_S: Tensor
    """For each action in the row's own order, its index among the caller's actions."""


def distinct(contexts: Sequence[tuple[int, ...]]) -> dict[tuple[int, ...], list[int]]:
    """Indices of the turns that share each context, contexts in order of first appearance."""
    members: dict[tuple[int, ...], list[int]] = {}
    for n, context in enumerate(contexts):
        members.setdefault(context, []).append(n)
    return members


def build_tree(start: int, prompt: int, fed: Sequence[int]) -> Tree:
    """The tree whose prompt starts at `start` and whose completions feed `fed` tokens each.

    A single completion simply continues its prompt.
    """
    if len(fed) == 1 or not any(fed):
        return Tree(start, prompt + sum(fed), ())
    return Tree(start, prompt, tuple(fed))


@dataclass(frozen=True)
class Chain:
    """Turns that extend each other, so that one sequence covers them all."""

    turns: tuple[int, ...]
    tokens: tuple[int, ...]
    """The last turn's context and its actions, but for the last one, which is never fed."""


def find_chains(
    contexts: Sequence[tuple[int, ...]], actions: Sequence[tuple[int, ...]]
) -> list[Chain]:
    """Join each turn whose context begins with the previous turn and its actions to that turn."""
    chains: list[list[int]] = []
    for n, context in enumerate(contexts):
        if n and continues(context, contexts[n - 1], actions[n - 1]):
            chains[-1].append(n)
        else:
            chains.append([n])
    return [Chain(tuple(c), contexts[c[-1]] + actions[c[-1]][:-1]) for c in chains]


def lay_out(contexts: Sequence[tuple[int, ...]], actions_S: Tensor, offsets_N1: Tensor) -> TreeRow:
    """Lay N turns out as trees: a shared first context, then what each chain adds to it."""
    spans = list(pairwise(offsets_N1.tolist()))
    whole = actions_S.tolist()
    chains = find_chains(contexts, [tuple(whole[first:stop]) for first, stop in spans])
    tokens: list[int] = []
    positions: list[int] = []
    trees: list[Tree] = []
    keep: list[int] = []
    kept: list[int] = []
    order: list[int] = []
    for root, members in distinct([contexts[chain.turns[0]] for chain in chains]).items():
        start, prompt = len(tokens), len(root)
        together = [chains[m] for m in members]
        trees.append(build_tree(start, prompt, [len(c.tokens) - prompt for c in together]))
        tokens += root
        positions += range(prompt)
        last = len(keep)
        keep.append(start + prompt - 1)
        for chain in together:
            # Position p >= prompt of this chain lies at base + p in T.
            base = len(tokens) - prompt
            tokens += chain.tokens[prompt:]
            positions += range(prompt, len(chain.tokens))
            for n in chain.turns:
                first, stop = spans[n]
                order += range(first, stop)
                # The token before an action predicts it: for first actions the prompt's last one.
                before = range(len(contexts[n]) - 1, len(contexts[n]) - 1 + stop - first)
                for place in before:
                    kept.append(last if place < prompt else len(keep))
                    if place >= prompt:
                        keep.append(base + place)
    return TreeRow(
        tokens_T=torch.tensor(tokens),
        positions_T=torch.tensor(positions),
        plan=TreePlan(tuple(trees)),
        keep_K=torch.tensor(keep),
        kept_S=torch.tensor(kept, dtype=torch.long),
        order_S=torch.tensor(order, dtype=torch.long),
    )


def to_device(row: TreeRow, device: torch.device) -> TreeRow:
    """The same row on the model's device."""
    if device.type == "cpu":
        return row
    others = (row.keep_K, row.kept_S, row.order_S)
    return TreeRow(
        moved(row.tokens_T, device),
        moved(row.positions_T, device),
        row.plan,
        *(moved(indices, device) for indices in others),
    )


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Inside, no dropout; afterwards every part is in the mode that it had."""
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


def score_actions(
    model: PreTrainedModel,
    contexts: Sequence[tuple[int, ...]],
    actions_S: Tensor,
    offsets_N1: Tensor,
    *,
    temperature: float = 1.0,
    entropy: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Log-probs (S) of the actions after their contexts, and entropies (S) if asked.

    Both are of softmax(logits / temperature) over the whole vocabulary, in at least float32, on
    the model's device, in the order of `actions_S`. Contexts must not be empty; the model's weights
    are float32 or wider. Raises InputError for a model whose scores are more than a
    projection, and InputError for attention that plans do not compute.
    """
    causal: Any = model.get_base_model() if isinstance(model, PeftModel) else model
    row = to_device(lay_out(contexts, actions_S, offsets_N1), model.device)
    targets_S = moved(actions_S, model.device)[row.order_S]
    logps_S, entropy_S = computed(causal, score_row)(row, targets_S, temperature, entropy)
    # The inverse permutation, back to the caller's order.
    back_S = torch.empty_like(row.order_S)
    back_S[row.order_S] = torch.arange(len(back_S), device=back_S.device)
    return logps_S[back_S], None if entropy_S is None else entropy_S[back_S]


def score_row(
    causal: Any, row: TreeRow, targets_S: Tensor, temperature: float, entropy: bool
) -> tuple[Tensor, Tensor | None]:
    """`score_actions` of a row, in the row's own order."""
    hidden_KD, head, factor = hidden_row(causal, row)
    # Scaled logits are those of another temperature.
    reads = Reads(row.kept_S, targets_S, temperature / factor, entropy)
    return head_logps(hidden_KD, head.weight, head.bias, reads)


def score_moments(
    model: PreTrainedModel,
    contexts: Sequence[tuple[int, ...]],
    actions_S: Tensor,
    offsets_N1: Tensor,
    temperature: float = 1.0,
) -> Moments:
    """Like `score_actions`, without gradient, with the variances that `rl.sampling_proof` reads."""
    causal: Any = model.get_base_model() if isinstance(model, PeftModel) else model
    row = to_device(lay_out(contexts, actions_S, offsets_N1), model.device)
    targets_S = moved(actions_S, model.device)[row.order_S]
    with torch.no_grad():
        hidden_KD, head, factor = hidden_row(causal, row)
        scores = []
        for first, stop in spans(len(targets_S), CACHED_ROWS):
            here = slice(first, stop)
            scores_CV = F.linear(hidden_KD[row.kept_S[here]], head.weight, head.bias)
            scores.append(moments_of(widened(scores_CV) * (factor / temperature), targets_S[here]))
    back_S = row.order_S.argsort()
    return tuple(torch.cat(parts)[back_S] for parts in zip(*scores, strict=True))


def moments_of(scores_SV: Tensor, actions_S: Tensor) -> Moments:
    """Of softmax(scores): log-probs (S) of actions, entropies (S), and variances (S) of log-probs
    under it, sum p log^2 p - entropy^2."""
    table_SV = scores_SV.log_softmax(dim=-1)
    chance_SV = table_SV.exp()
    below_SV = table_SV.clamp(min=-1e4)  # 0 log 0 is 0
    entropy_S = -torch.linalg.vecdot(chance_SV, below_SV)
    variance_S = torch.linalg.vecdot(chance_SV, (below_SV + entropy_S[:, None]).square())
    return table_SV.gather(1, actions_S[:, None])[:, 0], entropy_S, variance_S


def hidden_row(causal: Any, row: TreeRow) -> tuple[Tensor, nn.Linear, float]:
    """The hidden states (K, D) that predict a row's actions, the head that reads them, and what its
    scores are multiplied by."""
    head = plain_head(causal)
    factors = multipliers(causal.config)
    hidden_TD = times(embed(causal, head, row.tokens_T), factors.embedding)
    hidden_KD = run_layers(causal.base_model, hidden_TD, row.positions_T, row.plan, row.keep_K)
    return hidden_KD, head, factors.logits


def plain_head(causal: PreTrainedModel) -> nn.Linear:
    """The output projection, where the vocabulary scores are just that.

    Raises InputError elsewhere.
    """
    head = causal.get_output_embeddings()
    if causal.config.model_type not in FAMILIES or type(head) is not nn.Linear:
        raise InputError(
            f"the packed path does not compute the vocabulary scores of {type(causal).__name__}",
            fix=f"use a model of type {', '.join(FAMILIES)}, its head without an adapter",
        )
    refuse_length_dependent(causal.config)
    return head


def embed(causal: PreTrainedModel, head: nn.Linear, tokens_T: Tensor) -> Tensor:
    """Embeddings (T, D) of the tokens.

    Where they share their weight with the head, their gradient is sparse: it is added to the
    head's, row by row, in place of another dense matrix of the size of the vocabulary.
    """
    layer: Any = causal.get_input_embeddings()
    if type(layer) is nn.Embedding and layer.weight is head.weight:
        return F.embedding(tokens_T, layer.weight, layer.padding_idx, sparse=True)
    return layer(tokens_T)
