"""Where two ways of computing a model part: the first sublayer whose outputs are not the same.

Both ways run without gradient and in the weights' own type. Rows are matched by value and not by
place, so nothing need be known of how the shared path lays tokens out: every row that it computes
must occur in some sequence of the plain path.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from assay.models.plain import score_plainly
from assay.models.scoring import score_actions

NOTICEABLE = 1e-3
"""Distance of a row from its nearest, relative to its norm; fp32 rounding stays below 1e-4."""

See = Callable[[str, Tensor], None]


def first_difference(
    model: Any, contexts: Sequence[tuple[int, ...]], actions_S: Tensor, offsets_N1: Tensor
) -> str | None:
    """Name of the first sublayer, in the order they run, that computes other rows; else None."""
    rows: dict[str, Tensor] = {}
    nearest: dict[str, Tensor] = {}

    def keep(name: str, output_TD: Tensor) -> None:
        rows[name] = output_TD

    def match(name: str, output_TD: Tensor) -> None:
        if name in rows:
            distance_T = distances(rows[name], output_TD)
            nearest[name] = torch.minimum(nearest.get(name, distance_T), distance_T)

    with torch.no_grad(), seen(model, keep):
        score_actions(model, contexts, actions_S, offsets_N1)
    with torch.no_grad(), seen(model, match):
        score_plainly(model, contexts, actions_S, offsets_N1)
    apart = (name for name, found_T in nearest.items() if not float(found_T.max()) <= NOTICEABLE)
    return next(apart, None)


@contextmanager
def seen(model: nn.Module, see: See) -> Iterator[None]:
    """Inside, `see` is told the name and the output (T, D) of every sublayer that runs."""
    hooks = [module.register_forward_hook(hook_of(name, see)) for name, module in sublayers(model)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def hook_of(name: str, see: See) -> Callable[[nn.Module, Any, Any], None]:
    """A forward hook that flattens the output of one row of T tokens."""

    def hook(module: nn.Module, inputs: Any, output: Any) -> None:
        first = output[0] if isinstance(output, tuple) else output
        see(name, first[0].flatten(1))

    return hook


def sublayers(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The direct parts of every decoder layer: its attention, its MLP, its norms."""
    for name, module in model.named_modules():
        if name.rpartition(".")[0].rpartition(".")[2].isdigit():
            yield name, module


def distances(rows_TD: Tensor, others_RD: Tensor) -> Tensor:
    """Distance (T) of each row to the nearest of the others, relative to the row's norm."""
    # The faster way by matrix products loses half of the digits.
    exact = "donot_use_mm_for_euclid_dist"
    distance_TR = torch.cdist(rows_TD.double(), others_RD.double(), compute_mode=exact)
    return distance_TR.amin(dim=1) / rows_TD.double().norm(dim=1).clamp(min=1e-30)
