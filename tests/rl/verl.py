"""Reads verl's padded numeric fixtures as the flat tensors that `assay.rl` works on."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.json_lines import json_lines

CRITICS = {
    "compute_gae_advantage_return",
    "compute_value_loss",
    "compute_remax_outcome_advantage",
}


def rows(shared: Path, family: str) -> list[dict[str, Any]]:
    """The rows of one family, those that belong to critics left out."""
    every = json_lines(shared / "data" / "oracle" / "verl_numeric_fixtures.jsonl")
    return [r for r in every if r["family"] == family and r["function"] not in CRITICS]


def flat(values: Any) -> Tensor:
    """A (B, T) list as (B * T) float32; null is NaN."""
    array = torch.tensor(json.loads(json.dumps(values).replace("null", "NaN")))
    return array.float().flatten()


def flat_mask(mask: Any) -> Tensor:
    """A (B, T) list of 0 and 1 as (B * T) bool."""
    return torch.tensor(mask).bool().flatten()


def episodes(mask: list[list[int]]) -> Tensor:
    """The row that each flattened token came from."""
    return torch.arange(len(mask)).repeat_interleave(len(mask[0]))


def agree(actual: Tensor | float, expected: Any, row: dict[str, Any]) -> None:
    """Fails, naming the row, unless all values agree to the row's tolerance.

    The tolerance is absolute below 1 and relative above: expected values up to 327 are float32.
    """
    want = flat(expected) if isinstance(expected, list) else torch.tensor(float(expected))
    have = torch.as_tensor(actual, dtype=torch.float32).reshape(want.shape)
    excess = ((have - want).abs() - row["tol"] * want.abs().clamp(min=1.0)).max().item()
    assert excess <= 0, (row["id"], excess)
