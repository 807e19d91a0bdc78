"""Lays the weights of two recorded checkpoints side by side, in whichever runs they lie.

What equal weights mean is said in `judge.identity`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from assay.compare.arm import Provenance
from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.models.folder import ADAPTER, MODULE, check_whole, weight_files
from assay.runs.checkpoints import check_checkpoint
from assay.runs.run_names import located

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
    other shapes, a type that NumPy cannot read. Raises ModelFolderError where a folder has no
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


BASE = "base"
Weights = tuple[bool | None, float | None]
"""Whether two checkpoints have the same weights, and the share that differs; None: not known."""


def weights(one: Provenance, other: Provenance) -> Weights:
    """Whether two checkpoints have the same weights, by fingerprint or value by value.

    Raises CheckpointDamaged.
    """
    bases = base_weights(one, other)
    if one.checkpoint == other.checkpoint == BASE:
        return (bases[0] == bases[1] if None not in bases else None), None
    found = weight_difference(one, other)
    if found is None:
        return None, None
    # An adapter is a difference to its base: the same adapter on another base is another model.
    return found.changed == 0 and bases[0] == bases[1], found.share


def base_weights(*origins: Provenance) -> list[str | None]:
    """The fingerprint of the model that each run began with; None where it is not recorded."""
    return [origin.manifest.get("base_weights", {}).get("sha256") for origin in origins]


def weight_difference(one: Provenance, other: Provenance) -> WeightDifference | None:
    """Two trained checkpoints value by value; None where one is not there or they do not fit.

    Raises CheckpointDamaged.
    """
    left, right = (_folder(origin) for origin in (one, other))
    if left is None or right is None:
        return None
    for folder in (left, right):
        check_checkpoint(folder, "restore it: whether the weights are the same cannot be told")
    return compare_weights(left, right)


def _folder(origin: Provenance) -> Path | None:
    """The folder of a trained checkpoint; None for the base and for one that was deleted."""
    reference = parse_checkpoint(origin.checkpoint)
    if reference is None or reference.stage is None or reference.step is None:
        return None
    run = origin.run
    if reference.step == 0:  # the start of a stage, in another run
        run, reference = located(run, reference)
    if reference.stage is None or reference.step is None:
        return None
    folder = run.checkpoint(reference.stage, reference.step)
    return folder if folder.is_dir() else None
