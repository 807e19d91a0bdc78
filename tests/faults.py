"""Faults put into the shared path of a live model: what it sees or where it stands is wrong.

The plain path goes through Transformers' own layers, which they leave alone.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from pytest import MonkeyPatch
from torch import Tensor

from assay.models import layers, scoring


class Leaking:
    """Every token of the packed row sees all before it: siblings and other prompts too."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        repeat = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(repeat, 1), value.repeat_interleave(repeat, 1)
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale)


def leak(given: dict[str, Any]) -> None:
    """The mask between completions is gone."""
    given["plan"] = Leaking()


def run_on(given: dict[str, Any]) -> None:
    """Positions count along the row instead of starting again at the prompt's end."""
    given["positions_T"] = torch.arange(len(given["positions_T"]))


@contextmanager
def fault(change: Callable[[dict[str, Any]], None]) -> Iterator[None]:
    """Inside, packed rows run through the layers with other positions or another plan."""
    right = scoring.run_layers

    def wrong(base: Any, hidden_TD: Tensor, positions_T: Tensor, plan: Any, keep_K: Tensor) -> Any:
        given = {"positions_T": positions_T, "plan": plan}
        change(given)
        return right(base, hidden_TD, **given, keep_K=keep_K)

    with MonkeyPatch.context() as patch:
        patch.setattr(scoring, "run_layers", wrong)
        yield


@contextmanager
def scaled_activation(factor: float) -> Iterator[None]:
    """Inside, packed rows leave the gated activation of every layer multiplied by `factor`."""
    right = layers.gated
    with MonkeyPatch.context() as patch:
        patch.setattr(layers, "gated", lambda *given: right(*given) * factor)
        yield
