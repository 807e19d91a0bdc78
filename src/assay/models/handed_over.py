"""The whole weights of a trained module as another engine takes them over, and what they score.

Rounded to bf16, weights lose a part of a small update: of what is smaller than half a step of bf16,
most. So what an engine should answer is computed with the rounded weights, in fp32.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor, nn
from transformers.core_model_loading import revert_weight_conversion

from assay.models.lora import adapter_free, low_rank
from assay.models.plain_forward import causal_of, padded_moments, score_padded
from assay.models.scoring import Moments, evaluating, score_actions, score_moments
from assay.models.supported import why_plain
from assay.models.weight_files import renamed_in_files, whole_state

State = dict[str, Tensor]


def whole_weights(module: nn.Module, dtype: torch.dtype) -> State:
    """The weights by the plain model's names, tied ones under each of theirs, an adapter added in
    fp32; `module` stays as it is."""
    causal = causal_of(module)
    state = whole_state(causal)
    if isinstance(module, PeftModel):
        plain = {name: tensor for name, tensor in state.items() if ".lora_" not in name}
        state = {name.replace(".base_layer.", "."): tensor for name, tensor in plain.items()}
        for name, part in causal.named_modules():
            if hasattr(part, "lora_A") and part.active_adapters:
                own = low_rank(part)
                weight = state[f"{name}.weight"] + own.scaling * (own.up_OR @ own.down_RD)
                lengths_O = own.lengths_O
                state[f"{name}.weight"] = (
                    weight if lengths_O is None else weight * lengths_O[:, None]
                )
    state = {name: tensor.detach().to(dtype).contiguous() for name, tensor in state.items()}
    ties = causal.get_expanded_tied_weights_keys(all_submodels=True)
    return state | {tied: state[name].clone() for tied, name in ties.items() if name in state}


def by_file_names(module: nn.Module, state: State) -> State:
    """The same under the names of the family's files."""
    causal = causal_of(module)
    return revert_weight_conversion(causal, state) if renamed_in_files(causal) else state


@contextmanager
def rounded(module: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """Inside, the weights are as after rounding to `dtype`; then bit for bit what they were.

    Holds a copy of them meanwhile. Nothing is done where the weights are of that type.
    """
    parameters = [p for p in module.parameters() if p.dtype != dtype]
    kept = [parameter.detach().clone() for parameter in parameters]
    try:
        with torch.no_grad():
            for parameter in parameters:
                parameter.copy_(parameter.to(dtype))
        yield
    finally:
        with torch.no_grad():
            for parameter, tensor in zip(parameters, kept, strict=True):
                parameter.copy_(tensor)


@contextmanager
def bare(module: nn.Module) -> Iterator[bool]:
    """Inside, the module answers without its adapter; gives whether it has one."""
    if isinstance(module, PeftModel):
        with adapter_free(module):
            yield True
    else:
        yield False


def logps_of(
    module: nn.Module,
    contexts: list[list[int]],
    actions: list[list[int]],
    temperature: float = 1.0,
) -> Tensor:
    """Log-probs (S, float64, on the CPU) of actions after their contexts, in the type of the
    weights, without gradient and dropout."""
    score: Any = score_padded if why_plain(causal_of(module).config) else score_actions
    with torch.no_grad(), evaluating(module):
        logps_S, _ = score(module, *laid_out(contexts, actions), temperature=temperature)
    return logps_S.double().cpu()


def drawn_moments(
    module: nn.Module, contexts: list[list[int]], actions: list[list[int]], temperature: float
) -> Moments:
    """The same with entropies and variances (`scoring.score_moments`)."""
    score: Any = padded_moments if why_plain(causal_of(module).config) else score_moments
    with evaluating(module):
        found = score(module, *laid_out(contexts, actions), temperature)
    return tuple(each_S.double().cpu() for each_S in found)


def laid_out(
    contexts: list[list[int]], actions: list[list[int]]
) -> tuple[list[tuple[int, ...]], Tensor, Tensor]:
    """Contexts, actions (S) and offsets (N + 1)."""
    actions_S = torch.tensor([token for tail in actions for token in tail])
    return [*map(tuple, contexts)], actions_S, torch.tensor([0, *map(len, actions)]).cumsum(0)
