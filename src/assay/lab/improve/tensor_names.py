"""Compares which tensors two checkpoints of a run hold, by name and shape; reads no values."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors import safe_open

from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.runs.run_directory import RunDirectory

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class LostTensors:
    """In what two checkpoints differ that should hold the same tensors."""

    missing: tuple[str, ...]
    """Of the start, and not in the later one, or there in another shape."""
    unexpected: tuple[str, ...]
    """In the later one alone."""
    share: float
    """Share of the start's values that the missing ones hold; of the later one's where none is."""


def lost_tensors(run: RunDirectory, start: str, last: str) -> LostTensors | None:
    """The tensors that two checkpoints do not share; None where one is not there, or where they are
    stored differently: an adapter beside a whole model."""
    before, after = _shapes(run, start), _shapes(run, last)
    if before is None or after is None or before.keys() != after.keys():
        return None
    return differing(
        {k: v for each in before.values() for k, v in each.items()},
        {k: v for each in after.values() for k, v in each.items()},
    )


def differing(before: Shapes, after: Shapes) -> LostTensors:
    """In what two sets of shapes differ."""
    missing = tuple(name for name in before if before[name] != after.get(name))
    unexpected = tuple(name for name in after if name not in before)
    names, of = (missing, before) if missing else (unexpected, after)
    total = sum(map(math.prod, of.values()))
    lost = sum(math.prod(of[name]) for name in names)
    return LostTensors(missing, unexpected, lost / total if total else 0.0)


def _shapes(run: RunDirectory, checkpoint: str) -> dict[str, Shapes] | None:
    """The shapes of a trained checkpoint's tensors by the kind of file."""
    reference = parse_checkpoint(checkpoint)
    if reference is None or reference.stage is None or not reference.step:
        return None
    folder = run.checkpoint(reference.stage, reference.step)
    files = sorted(folder.glob("*.safetensors"))
    return {_kind(file): _read(file) for file in files} or None


def _kind(file: Path) -> str:
    """The name of a file without the number of its part."""
    return file.name.partition("-")[0].removesuffix(".safetensors")


def _read(file: Path) -> Shapes:
    with safe_open(file, framework="np") as tensors:
        return {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
