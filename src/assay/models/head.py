"""Log-probs and entropies straight from hidden states: the vocabulary projection, in chunks.

The scores of one chunk over the whole vocabulary exist at a time. A batch that fits into one chunk
keeps its scores for the backward pass, which turns them into their gradient in place; a larger one
computes each chunk again. The caller chooses the positions.

Suffixes: K hidden states, V words, S actions (several may be read at one hidden state).
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from assay.models.matmul import product
from assay.models.numeric import spans, widened

CHUNK_BYTES = 512 << 20
"""Scores of one chunk at most; 2 600 positions of a 49k vocabulary in fp32."""
CACHED_ROWS = 16
"""Rows of scores per softmax: a few MiB, which stay in the cache."""


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
        rows = _chunk_rows(weight)
        logits_KV = None
        for first, stop in spans(len(hidden), rows):
            logits_KV = None  # free the last chunk before the next is made
            logits_KV = _logits(hidden[first:stop], weight, bias)
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
        kept = logits_KV if len(hidden) <= rows else None
        # Not by save_for_backward: the backward pass overwrites the scores and frees them.
        ctx.logits = kept if any(ctx.needs_input_grad) else None
        ctx.recompute = kept is None
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
        for first, stop in spans(
            len(hidden), _chunk_rows(weight) if ctx.recompute else len(hidden)
        ):
            logits = _logits(hidden[first:stop], weight, bias) if ctx.recompute else ctx.logits
            if logits is None:
                raise RuntimeError("the scores were used up by an earlier backward pass")
            ctx.logits = None
            pull = _into_gradient(logits, first, normaliser_K, entropy_K, grads, ctx.reads)
            grad_hidden[first:stop] = product(pull, weight)
            if wants_weight:
                grad_weight = _add_product(grad_weight, pull, hidden[first:stop], weight_VD.dtype)
            if grad_bias is not None:
                grad_bias += pull.sum(dim=0)
            del logits, pull
        return grad_hidden.to(hidden_KD.dtype), grad_weight, grad_bias, None, None


def _chunk_rows(weight_VD: Tensor) -> int:
    return max(1, CHUNK_BYTES // (len(weight_VD) * weight_VD.element_size()))


def _logits(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    logits = product(hidden, weight.t())
    return logits if bias is None else logits.add_(bias)


def _add_product(
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
