"""Attention in one pass that keeps no scores, part by part, and the merging of parts.

A query's keys may be split into parts: each part gives an output and a log-sum-exp of its scores,
and two such pairs merge exactly (Dao et al. 2022, FlashAttention, https://arxiv.org/abs/2205.14135;
section 3 and appendix B). The backward pass of a part is the same product once it is given the
merged output and log-sum-exp. The kernels are torch's own for CPUs, which read grouped key heads
without repeating them and take sums in at least float32; which keys a query sees is the caller's
business. What a decoding step needs works on any device.

B batches, H query heads, J key heads, M queries, N keys, D head size.
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right

from assay.models.numeric import widened

_FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward

UNSEEN = -1e30
"""Added to the score of a key that is not to be seen. It is finite, so a query that sees no key of
a part has a finite output there, and a log-sum-exp so low that a merge gives it no weight."""

Part = tuple[Tensor, Tensor]
"""Outputs (B, H, M, D) and log-sum-exps (B, H, M) of the queries over some keys."""


def attend(
    query_BHMD: Tensor, key_BJND: Tensor, value_BJND: Tensor, scale: float, *, causal: bool
) -> Part:
    """One part, on a CPU; `causal` lets query m see the keys up to m."""
    return _FORWARD(query_BHMD, key_BJND, value_BJND, 0.0, causal, scale=scale)


def attend_backward(
    grad_BHMD: Tensor,
    query_BHMD: Tensor,
    key_BJND: Tensor,
    value_BJND: Tensor,
    merged: Part,
    scale: float,
    *,
    causal: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """This part's gradients of queries, keys and values; `merged` is of all parts together."""
    return _BACKWARD(grad_BHMD, query_BHMD, key_BJND, value_BJND, *merged, 0.0, causal, scale=scale)


def attend_seen(
    query_BHMD: Tensor, key_BHND: Tensor, value_BHND: Tensor, scale: float, mask: Tensor | None
) -> Part:
    """One part on any device, as many query heads as key heads; `mask` is added to the scores."""
    if query_BHMD.device.type != "cpu":
        return attend_by_products(query_BHMD, key_BHND, value_BHND, scale, mask)
    return _FORWARD(query_BHMD, key_BHND, value_BHND, 0.0, False, attn_mask=mask, scale=scale)


def attend_by_products(
    query_BHMD: Tensor, key_BHND: Tensor, value_BHND: Tensor, scale: float, mask: Tensor | None
) -> Part:
    """What `attend_seen` gives, by operations that every device has and a CUDA graph can hold."""
    scores = widened(query_BHMD @ key_BHND.transpose(2, 3)) * scale
    if mask is not None:
        scores = scores + mask
    normaliser = scores.logsumexp(dim=-1, keepdim=True)
    weights = (scores - normaliser).exp().to(value_BHND.dtype)
    return weights @ value_BHND, normaliser[..., 0]


def mix(first: Part, second: Part) -> Tensor:
    """Outputs of the queries over the keys of both parts."""
    share = torch.sigmoid(second[1] - first[1])[..., None]
    both = torch.lerp(first[0].to(share.dtype), second[0].to(share.dtype), share)
    return both.to(first[0].dtype)


def merge(first: Part, second: Part) -> Part:
    """The queries over the keys of both parts."""
    return mix(first, second), torch.logaddexp(first[1], second[1])


def attend_last(query_HMD: Tensor, key_JND: Tensor, value_JND: Tensor, scale: float) -> Tensor:
    """The last M of N positions see all up to themselves: (H, M, D), on any device."""
    query, key, value = query_HMD[None], key_JND[None], value_JND[None]
    behind = key.shape[2] - query.shape[2]
    if query.device.type != "cpu":
        mask = causal_lower_right(query.shape[2], key.shape[2])
        return F.scaled_dot_product_attention(
            query, key, value, mask, scale=scale, enable_gqa=True
        )[0]
    own = attend(query, key[:, :, behind:], value[:, :, behind:], scale, causal=True)
    if not behind:
        return own[0][0]
    earlier = attend(query, key[:, :, :behind], value[:, :, :behind], scale, causal=False)
    return mix(earlier, own)[0]
