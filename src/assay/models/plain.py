"""The plain reference: log-probs through Transformers' own forward, one sequence at a time.

No cache, no packing, no sharing of prompts, and the layers and attention of Transformers. It says
what the shared path must give; it is slow on purpose and trains nothing.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


def score_plainly(
    model: nn.Module,
    contexts: Sequence[tuple[int, ...]],
    actions_S: Tensor,
    offsets_N1: Tensor,
    *,
    temperature: float = 1.0,
    entropy: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """What `scoring.score_actions` gives, sequence by sequence: log-probs (S) and entropies (S).

    `model` may be under an adapter and in any dtype. Gradients flow.
    """
    logps, entropies = [], []
    for context, (first, stop) in zip(contexts, pairwise(offsets_N1.tolist()), strict=True):
        actions_C = actions_S[first:stop].to(next(model.parameters()).device)
        table_CV = log_probs_after(model, context, actions_C, temperature)
        logps.append(table_CV.gather(1, actions_C[:, None])[:, 0])
        if entropy:
            entropies.append(-(table_CV.exp() * table_CV).sum(dim=-1))
    return torch.cat(logps), torch.cat(entropies) if entropy else None


def log_probs_after(
    model: nn.Module, context: tuple[int, ...], actions_C: Tensor, temperature: float
) -> Tensor:
    """Log-probs (C, V) of every word at each of the C positions where an action was taken."""
    ids_T = torch.cat([actions_C.new_tensor(context), actions_C])
    logits_1KV = model(
        input_ids=ids_T[None], use_cache=False, logits_to_keep=len(actions_C) + 1
    ).logits
    at_least_fp32 = torch.promote_types(logits_1KV.dtype, torch.float32)
    return (logits_1KV[0, :-1].to(at_least_fp32) / temperature).log_softmax(dim=-1)
