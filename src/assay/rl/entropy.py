"""Log-probs and entropy from logits, and the mask of the tokens where entropy is high.

For logits that lie in memory already; the fused head of a language model is in `assay.models`.
"""

import torch
from torch import Tensor


def logps_from_logits(logits_SV: Tensor, actions_S: Tensor, chunk: int = 1024) -> Tensor:
    """log softmax(logits)[action], (S), float32, differentiable.

    `chunk` rows at a time, so that the float32 copy of half-precision logits stays small.
    """
    pieces = zip(logits_SV.split(chunk), actions_S.split(chunk), strict=True)
    return torch.cat(
        [
            logits.float().gather(-1, actions[:, None]).squeeze(-1) - logits.float().logsumexp(-1)
            for logits, actions in pieces
        ]
    )


def entropy_from_logits(logits_SV: Tensor, chunk: int = 1024) -> Tensor:
    """logsumexp(z) - sum softmax(z) z, in nats, (S), float32, differentiable.

    Logits of -inf (impossible tokens) count as probability 0.
    """
    return torch.cat([_entropy(logits.float()) for logits in logits_SV.split(chunk)])


def _entropy(logits_SV: Tensor) -> Tensor:
    finite_SV = logits_SV.masked_fill(logits_SV == -torch.inf, 0.0)
    return logits_SV.logsumexp(-1) - (logits_SV.softmax(-1) * finite_SV).sum(-1)


def high_entropy_mask(entropy_S: Tensor, mask_S: Tensor, quantile: float) -> Tensor:
    """Trained tokens whose entropy reaches the given quantile of all trained tokens', bool (S).

    ("Beyond the 80/20 rule", arXiv 2506.01939; TRL's `get_high_entropy_mask`.) The quantile must
    be taken over the optimizer batch, so this is called before micro-batching.
    """
    if not mask_S.any():
        return torch.zeros_like(mask_S)
    ordered = entropy_S[mask_S].float().sort().values
    # Linear interpolation between order statistics; torch.quantile refuses large inputs.
    position = quantile * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    threshold = torch.lerp(ordered[below], ordered[above], position - below)
    return mask_S & (entropy_S.float() >= threshold)
