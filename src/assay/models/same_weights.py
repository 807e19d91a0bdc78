"""Compares the weights of two checkpoints: whether they are the same, how many differ, by how much.

Reads safetensors files tensor by tensor, without torch; builds no model.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from assay.models.folder import ADAPTER, MODULE, check_whole, weight_files

TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4"}
TYPES |= {"I16": "<i2", "I8": "i1", "U8": "u1", "BOOL": "?"}
"""NumPy's types by the format's names; it has none for bf16, the upper half of an fp32."""


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
    other shapes, a type that NumPy cannot read. Raises InputError where a folder has no
    weights.
    """
    left, right = _places(control), _places(other)
    if left.keys() != right.keys():
        return None
    values, changed, moved = 0, 0, 0.0
    for name in left:
        one, two = _tensor(left[name], name), _tensor(right[name], name)
        if one is None or two is None or one.shape != two.shape:
            return None
        values += one.size
        changed += int((one != two).sum())
        moved += float(np.abs(one.astype(np.float64) - two.astype(np.float64)).sum())
    return WeightDifference(values, changed, moved)


def _places(folder: Path) -> Mapping[str, Path]:
    """The file of every tensor: an adapter's or a module's where there is one, else the model's."""
    alone = [folder / name for name in (ADAPTER, MODULE) if (folder / name).is_file()]
    files = alone or weight_files(folder)
    found = {}
    for file in files:
        check_whole(file)
        with safe_open(file, framework="np") as weights:
            found |= dict.fromkeys(weights.keys(), file)
    return found


def _tensor(file: Path, name: str) -> NDArray[np.generic] | None:
    """A tensor's values, mapped from the file (eight bytes of the header's length, the header as
    JSON, the data); None for a type that NumPy lacks."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        entry = json.loads(stream.read(length))[name]
    kind, shape = TYPES.get(entry["dtype"]), tuple(entry["shape"])
    if kind is None:
        return None
    if 0 in shape:
        return np.zeros(shape, kind)
    begin = 8 + length + entry["data_offsets"][0]
    values = np.memmap(file, kind, "r", begin, shape)
    if entry["dtype"] != "BF16":
        return values
    return (values.astype(np.uint32) << 16).view(np.float32)
