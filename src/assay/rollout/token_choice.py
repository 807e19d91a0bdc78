"""Draws tokens: counter-based uniform numbers and inverse-CDF choice.

Random numbers depend on (seed, row, sample, position) alone, never on the batch or on time. No
model is run here.
"""

import hashlib
import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from assay.errors import RunFailure
from assay.models.matmul import widened
from assay.models.scoring import CACHED_ROWS
from assay.rl.policy import SampleKey, Sampling

BLOCK = 256
"""Vocabulary entries summed at once; the draw walks the block sums first, then one block."""


LEAST_PLAIN = 1e-3
"""The least temperature that experiments may name; clients of `assay serve` may name less."""


def key_state(key: SampleKey) -> int:
    """A 64-bit state that names the stream of one completion."""
    text = f"{key.seed}\x1f{key.row}\x1f{key.sample}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def key_states(keys: Sequence[SampleKey]) -> np.ndarray:
    """The states (uint64) of many keys."""
    return np.array([key_state(key) for key in keys], dtype=np.uint64)


def uniforms(states_B: np.ndarray, positions_B: np.ndarray) -> np.ndarray:
    """Float64 numbers in the open interval (0, 1), one per stream and position.

    SplitMix64's output function (Steele et al. 2014) applied to state + position * golden gamma.
    """
    with np.errstate(over="ignore"):
        x = states_B + (positions_B.astype(np.uint64) + np.uint64(1)) * np.uint64(
            0x9E3779B97F4A7C15
        )
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    return ((x >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def choose(weights_BV: Tensor, uniform_B: Tensor) -> tuple[Tensor, Tensor]:
    """Inverse-CDF draw (B) from unnormalised weights, and their totals (B, float64).

    The first index whose mass exceeds u: blocks are walked first, then one block. A block is
    summed in the weights' own type, whose rounding moves a bound by as little as it moves a
    weight; all else runs in float64. An index of weight zero is never chosen, at neither end: the
    comparison is strict, and a target that rounding pushes past the total falls to the last
    positive index.
    """
    blocks_BNK = in_blocks(weights_BV, 0.0)
    cumulative_BN = blocks_BNK.sum(dim=-1).double().cumsum(dim=-1)
    target_B1 = uniform_B[:, None].double() * cumulative_BN[:, -1:]
    block_B = first_above(cumulative_BN, target_B1)
    row_B = torch.arange(len(block_B), device=block_B.device)
    inside_BK = blocks_BNK[row_B, block_B].double()
    before_B1 = F.pad(cumulative_BN, (1, 0))[row_B, block_B][:, None]
    index_B = first_above(inside_BK.cumsum(dim=-1), target_B1 - before_B1)
    return block_B * BLOCK + index_B, cumulative_BN[:, -1]


def in_blocks(values_BV: Tensor, filling: float) -> Tensor:
    """The values (B, N, BLOCK), the last block filled up where the vocabulary leaves it short."""
    short = -values_BV.shape[-1] % BLOCK
    # Padding by nothing would copy.
    whole = F.pad(values_BV, (0, short), value=filling) if short else values_BV
    return whole.unflatten(-1, (-1, BLOCK))


def first_above(cumulative_BN: Tensor, target_B1: Tensor) -> Tensor:
    """Index (B) of the first entry above the target, else of the first that reaches the maximum.

    Either way the entry adds mass of its own.
    """
    last_B1 = cumulative_BN[:, -1:].contiguous()
    reached_B1 = torch.searchsorted(cumulative_BN, last_B1)
    above_B1 = torch.searchsorted(cumulative_BN, target_B1.clamp(min=0).contiguous(), right=True)
    return torch.minimum(above_B1, reached_B1)[:, 0]


def filtered(logits_BV: Tensor, sampling: Sampling) -> Tensor:
    """Logits with everything outside top-k, top-p and min-p at minus infinity, in the order of
    Transformers' warpers."""
    if sampling.top_k:
        kth_B1 = logits_BV.topk(min(sampling.top_k, logits_BV.shape[-1])).values[:, -1:]
        logits_BV = logits_BV.masked_fill(logits_BV < kth_B1, float("-inf"))
    if sampling.top_p < 1:
        sorted_BV, order_BV = logits_BV.sort(dim=-1, descending=True)
        mass_BV = sorted_BV.softmax(dim=-1)
        outside_BV = mass_BV.cumsum(dim=-1) - mass_BV >= sampling.top_p
        outside_BV[:, 0] = False  # the smallest shares are 0 in float32
        removed_BV = torch.zeros_like(outside_BV).scatter(1, order_BV, outside_BV)
        logits_BV = logits_BV.masked_fill(removed_BV, float("-inf"))
    if sampling.min_p:
        least_B1 = logits_BV.amax(dim=-1, keepdim=True) + math.log(sampling.min_p)
        logits_BV = logits_BV.masked_fill(logits_BV < least_B1, float("-inf"))
    return logits_BV


def highest(scores_BV: Tensor) -> tuple[Tensor, Tensor]:
    """The greatest score (B) and the first index (B) that has it, found block by block."""
    blocks_BNK = in_blocks(scores_BV, float("-inf"))
    block_B = blocks_BNK.amax(dim=-1).argmax(dim=-1)
    inside_BK = blocks_BNK[torch.arange(len(block_B), device=block_B.device), block_B]
    value_B, index_B = inside_BK.max(dim=-1)
    return value_B, block_B * BLOCK + index_B


def draw(logits_BV: Tensor, sampling: Sampling, uniform_B: Tensor) -> tuple[Tensor, Tensor]:
    """Next tokens (B) and their log-probs (B) under the distribution they were drawn from.

    Greedy tokens carry their log-prob at temperature 1.
    """
    tokens_B, logps_B, *_ = draw_with_moments(logits_BV, sampling, uniform_B)
    return tokens_B, logps_B


def draw_with_moments(
    logits_BV: Tensor, sampling: Sampling, uniform_B: Tensor
) -> tuple[Tensor, ...]:
    """Those of `draw`, then entropies (B, nats) and variances (B) of the log-probs of the
    distributions they were drawn from; greedy tokens do not vary.

    A few rows at a time, so that their scores stay in the processor's cache from one pass to the
    next.
    """
    rows = len(logits_BV) if logits_BV.is_cuda else CACHED_ROWS
    pieces = zip(logits_BV.split(rows), uniform_B.split(rows), strict=True)
    drawn = [draw_rows(scores_RV, sampling, uniform_R) for scores_RV, uniform_R in pieces]
    return tuple(torch.cat(parts) for parts in zip(*drawn, strict=True))


def cooled(scores_RV: Tensor, temperature: float) -> Tensor:
    """Scores over a temperature that is not 0, such that no finite score becomes infinite."""
    if temperature < LEAST_PLAIN:
        # Near 0 the highest word is all that is left, as in greedy decoding.
        scores_RV = scores_RV - scores_RV.amax(dim=-1, keepdim=True)
        temperature = max(temperature, torch.finfo(scores_RV.dtype).tiny)
    return scores_RV / temperature


def draw_rows(logits_RV: Tensor, sampling: Sampling, uniform_R: Tensor) -> tuple[Tensor, ...]:
    """See `draw_with_moments`."""
    scores_RV = widened(logits_RV)
    if sampling.temperature not in (0, 1):
        scores_RV = cooled(scores_RV, sampling.temperature)
    if sampling.temperature:
        scores_RV = filtered(scores_RV, sampling)
    top_R, token_R = highest(scores_RV)
    if not torch.isfinite(top_R).all():
        problem = "the model's scores over the vocabulary are not finite numbers"
        raise RunFailure(f"{problem} (weights that training drove out of bounds?)")
    below_RV = scores_RV - top_R[:, None]
    weights_RV = below_RV.exp()
    if sampling.temperature:
        token_R, total_R = choose(weights_RV, uniform_R)
    else:
        total_R = weights_RV.sum(dim=-1)
    entropy_R = entropy_of(weights_RV, scores_RV, top_R, total_R)
    chosen_R = scores_RV.gather(1, token_R[:, None])[:, 0] - top_R
    variance_R = torch.zeros_like(entropy_R)
    if sampling.temperature:
        variance_R = variance_of(weights_RV, below_RV, total_R, entropy_R)
    return token_R, chosen_R - total_R.log().to(chosen_R.dtype), entropy_R, variance_R


def entropy_of(weights_RV: Tensor, scores_RV: Tensor, top_R: Tensor, total_R: Tensor) -> Tensor:
    """Entropy (R, nats) of weights exp(score - top) with these totals: log total - mean score.

    One pass over both, without another of their size.
    """
    sum_R = torch.linalg.vecdot(weights_RV, scores_RV)
    if sum_R.isnan().any():  # what is left out has weight 0 and a score of minus infinity
        least = torch.finfo(scores_RV.dtype).min
        sum_R = torch.linalg.vecdot(weights_RV, scores_RV.clamp(min=least))
    return (total_R.log() - sum_R / total_R + top_R).clamp(min=0).to(scores_RV.dtype)


def variance_of(weights_RV: Tensor, below_RV: Tensor, total_R: Tensor, entropy_R: Tensor) -> Tensor:
    """Variance (R) of the log-probs of weights exp(below) with these totals; `below_RV` is
    overwritten."""
    squares_RV = below_RV.square_()
    sum_R = torch.linalg.vecdot(weights_RV, squares_RV)
    if sum_R.isnan().any():
        sum_R = torch.linalg.vecdot(weights_RV, squares_RV.nan_to_num_(posinf=0.0))
    mean_R = total_R.log() - entropy_R
    return (sum_R / total_R - mean_R**2).clamp(min=0).to(entropy_R.dtype)
