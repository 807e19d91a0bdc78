"""Whether TRL and Assay compute the same loss and gradients from the same rollout.

TRL samples, judges and weighs a rollout as in training; its own loss gives loss and gradients.
Assay gets the sampled tokens, works out rewards, advantages and weights itself, and its loss and
gradients must equal TRL's: in fp32 the loss and every advantage within 1e-5 and each parameter's
gradient within 1e-4 of its norm. In bf16, where both round, the differences are only reported.
Prompts are cut to `shapes.CHECK_PROMPT` tokens and completions to `CHECK_COMPLETION`: the check is
of the mathematics, and it would cost as much as a step at the full length.
"""

from pathlib import Path
from typing import Any

import torch
from shapes import Cell
from workers import Worker

LOSS_TOLERANCE = 1e-5
GRADIENT_TOLERANCE = 1e-4


class NotEqual(Exception):
    """The two sides do not compute the same thing; a comparison would mean nothing."""


def check_equality(cell: Cell, assay: Worker, trl: Worker, folder: Path) -> dict[str, Any]:
    """The differences as a result holds them; raises NotEqual in fp32 above a tolerance."""
    adapter = ""
    if cell.lora:
        adapter = str(folder / "adapter.pt")
        assay.ask("adapter", file=adapter)
    theirs = trl.ask("check", gradients=str(folder / "trl.pt"), adapter=adapter)
    ours = assay.ask("check", completions=theirs["completions"], gradients=str(folder / "assay.pt"))
    errors = gradient_errors(folder / "trl.pt", folder / "assay.pt")
    worst = max(errors, key=errors.__getitem__)
    found = {
        "loss": theirs["loss"],
        "loss_difference": abs(theirs["loss"] - ours["loss"]),
        "advantage_difference": largest(theirs["advantages"], ours["advantages"]),
        "gradient_error": errors[worst],
        "worst_parameter": worst,
        "parameters": len(errors),
    }
    if cell.dtype == "fp32":
        assert_equal(found)
    return found


def gradient_errors(theirs: Path, ours: Path) -> dict[str, float]:
    """Norm of the difference over the norm of TRL's gradient, by parameter."""
    expected, found = (torch.load(file) for file in (theirs, ours))
    if set(expected) != set(found):
        raise NotEqual(f"gradients of other parameters: {sorted(set(expected) ^ set(found))[:4]}")
    return {
        name: float((found[name] - gradient).norm() / gradient.norm().clamp(min=1e-30))
        for name, gradient in expected.items()
    }


def largest(first: list[float], second: list[float]) -> float:
    """The largest absolute difference of two lists."""
    return max(abs(a - b) for a, b in zip(first, second, strict=True))


def assert_equal(found: dict[str, Any]) -> None:
    """Raise NotEqual where a difference is above its tolerance."""
    loss = max(found["loss_difference"], found["advantage_difference"])
    if not loss <= LOSS_TOLERANCE or not found["gradient_error"] <= GRADIENT_TOLERANCE:
        raise NotEqual(str(found))
