"""Finds the first sublayer whose outputs differ between two ways of computing a model.

The plain way is the reference: Transformers' own layers and attention, one sequence at a time,
without cache, packing or shared prompts; slow, and never trained. Both run without gradient in the
weights' own type. Rows are matched by value, not position, so the layout of the shared path need
not be known: every row it computes must occur in some sequence of the plain one.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from assay.models.matmul import widened
from assay.models.plain_forward import causal_of, logits_from
from assay.models.scoring import score_actions


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
    logits_1KV = logits_from(causal_of(model), ids_T[None], None, len(context) - 1)
    return (widened(logits_1KV[0, :-1]) / temperature).log_softmax(dim=-1)


NOTICEABLE = 1e-3
"""Distance of a row from its nearest, relative to its norm; fp32 rounding stays below 1e-4."""

FED_BY = {
    "self_attn.q_proj": "input_layernorm",
    "self_attn.k_proj": "input_layernorm",
    "self_attn.v_proj": "input_layernorm",
    "self_attn.o_proj": "self_attn",
    "mlp.gate_proj": "post_attention_layernorm",
    "mlp.up_proj": "post_attention_layernorm",
    "mlp.down_proj": "mlp",
}
"""Each projection of a layer, and the sublayer whose output it reads."""

See = Callable[[str, Tensor], None]


def first_difference(
    model: Any, contexts: Sequence[tuple[int, ...]], actions_S: Tensor, offsets_N1: Tensor
) -> str | None:
    """Name of the first sublayer, in the order they run, that computes other rows; else None."""
    shared: dict[str, Tensor] = {}
    nearest: dict[str, Tensor] = {}

    def keep(name: str, output_TD: Tensor) -> None:
        shared[name] = output_TD

    def match(name: str, output_TD: Tensor) -> None:
        if name in shared:
            distance_T = distances(shared[name], output_TD)
            nearest[name] = torch.minimum(nearest.get(name, distance_T), distance_T)

    with torch.no_grad(), seen(model, keep):
        score_actions(model, contexts, actions_S, offsets_N1)
    with torch.no_grad(), seen(model, match):
        score_plainly(model, contexts, actions_S, offsets_N1)
    apart = (name for name, found_T in nearest.items() if not float(found_T.max()) <= NOTICEABLE)
    return next(apart, None)


@contextmanager
def seen(model: nn.Module, see: See) -> Iterator[None]:
    """Inside, call `see` with the name and the output (T, D) of every sublayer that runs.

    Only projections are hooked, because both paths call them; the input of one is the output of
    the norm, attention or gated activation before it.
    """
    hooks = []
    for name, module in projections(model):
        hooks.append(module.register_forward_pre_hook(reading_hook(source_of(name), see)))
        hooks.append(module.register_forward_hook(writing_hook(name, see)))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def reading_hook(name: str, see: See) -> Callable[[nn.Module, Any], None]:
    """Calls `see` with a projection's input, under the name of the sublayer that computed it."""

    def hook(module: nn.Module, inputs: Any) -> None:
        see(name, rows(inputs[0]))

    return hook


def writing_hook(name: str, see: See) -> Callable[[nn.Module, Any, Any], None]:
    """Calls `see` with a projection's output."""

    def hook(module: nn.Module, inputs: Any, output: Any) -> None:
        see(name, rows(output))

    return hook


def rows(values: Tensor) -> Tensor:
    """Tokens (T, D) of a packed row, or of a batch of one."""
    return values.reshape(-1, values.shape[-1])


def source_of(projection: str) -> str:
    """Full name of the sublayer that a projection reads from."""
    layer, part, name = projection.rsplit(".", 2)
    return f"{layer}.{FED_BY[f'{part}.{name}']}"


def projections(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The projections of every decoder layer, adapted ones as a whole."""
    for name, module in model.named_modules():
        if ".".join(name.rsplit(".", 2)[1:]) in FED_BY:
            yield name, module


def distances(rows_TD: Tensor, others_RD: Tensor) -> Tensor:
    """Distance (T) of each row to the nearest of the others, relative to the row's norm."""
    # The faster way by matrix products loses half of the digits.
    exact = "donot_use_mm_for_euclid_dist"
    distance_TR = torch.cdist(rows_TD.double(), others_RD.double(), compute_mode=exact)
    return distance_TR.amin(dim=1) / rows_TD.double().norm(dim=1).clamp(min=1e-30)
