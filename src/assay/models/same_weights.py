"""Compares the weights of two checkpoints: whether they are the same, how many differ, by how much.

Reads safetensors files tensor by tensor; builds no model.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open

from assay.models.folder import ADAPTER, MODULE, weight_files


@dataclass(frozen=True, slots=True)
class WeightDifference:
    """How two sets of weights with the same names and shapes differ."""

    values: int
    changed: int
    moved: float
    """Sum of the absolute differences."""

    @property
    def share(self) -> float:
        """Share of the values that differ."""
        return self.changed / self.values

    @property
    def mean(self) -> float:
        """Mean absolute difference over all values, those that did not change too."""
        return self.moved / self.values


def compare_weights(control: Path, other: Path) -> WeightDifference | None:
    """The values that differ between two checkpoint folders.

    None where they cannot be laid side by side: an adapter beside a whole model, other names,
    other shapes. Raises ModelFolderError where a folder has no weights.
    """
    left, right = _places(control), _places(other)
    if left.keys() != right.keys():
        return None
    values, changed, moved = 0, 0, 0.0
    for name in left:
        one, two = _tensor(left[name], name), _tensor(right[name], name)
        if one.shape != two.shape:
            return None
        values += one.numel()
        changed += int((one != two).sum())
        moved += float((one.double() - two.double()).abs().sum())
    return WeightDifference(values, changed, moved)


def _places(folder: Path) -> Mapping[str, Path]:
    """The file of every tensor: an adapter's or a module's where there is one, else the model's."""
    alone = [folder / name for name in (ADAPTER, MODULE) if (folder / name).is_file()]
    files = alone or weight_files(folder)
    found = {}
    for file in files:
        with safe_open(file, framework="pt") as weights:
            found |= dict.fromkeys(weights.keys(), file)
    return found


def _tensor(file: Path, name: str) -> torch.Tensor:
    with safe_open(file, framework="pt") as weights:
        return weights.get_tensor(name)
