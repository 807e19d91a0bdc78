"""Faults put into the shared path of a live model: what it sees or where it stands is wrong.

They act on forward passes that bring a plan, which the plain path does not.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from peft import PeftModel
from torch import Tensor, nn


class Leaking:
    """Every token of the packed row sees all before it: siblings and other prompts too."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        repeat = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(repeat, 1), value.repeat_interleave(repeat, 1)
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale)


def leak(keywords: dict[str, Any]) -> None:
    """The mask between completions is gone."""
    keywords["plan"] = Leaking()


def run_on(keywords: dict[str, Any]) -> None:
    """Positions count along the row instead of starting again at the prompt's end."""
    ids_1T = keywords["position_ids"]
    keywords["position_ids"] = torch.arange(ids_1T.shape[1], device=ids_1T.device)[None]


@contextmanager
def fault(module: nn.Module, change: Callable[[dict[str, Any]], None]) -> Iterator[None]:
    """Inside, passes with a plan run with changed keywords."""
    base: Any = module.get_base_model() if isinstance(module, PeftModel) else module

    def hook(decoder: nn.Module, given: Any, keywords: dict[str, Any]) -> Any:
        if keywords.get("plan") is not None:
            change(keywords)
        return given, keywords

    handle = base.get_decoder().register_forward_pre_hook(hook, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def scaled_where_planned(module: nn.Module, sublayer: str, factor: float) -> Iterator[None]:
    """Inside, the output of one sublayer is multiplied by `factor` when attention is planned."""
    base: Any = module.get_base_model() if isinstance(module, PeftModel) else module

    def hook(part: nn.Module, given: Any, output: Any) -> Any:
        return output * factor if base.config._attn_implementation == "assay" else output

    handle = base.get_submodule(sublayer).register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()
