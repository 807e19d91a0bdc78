"""How far the checkpoints of a comparison pick the same demonstrations, and what lies behind it.

For records of selectors, whose answers are lists of picks. The first arm is paired with every
other, and each with the one before it. Figures are those of `judge.selection_agreement`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from assay.compare.arm import Arm, Key, Provenance
from assay.data.files import Damage, recorded_checksums
from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.judge.selection_agreement import (
    Picks,
    SelectionAgreement,
    SelectionUse,
    agree,
    selections_in,
    used,
)
from assay.models.same_weights import WeightDifference, compare_weights
from assay.runs.checkpoints import check_checkpoint
from assay.runs.manifest_file import read_manifest
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import located

BASE = "base"
Weights = tuple[bool | None, float | None]
"""Whether two checkpoints have the same weights, and the share that differs; None: not known."""


def weights(one: Provenance, other: Provenance) -> Weights:
    """Whether two checkpoints have the same weights, by fingerprint or value by value.

    Raises DamagedFile.
    """
    bases = base_weights(one, other)
    if one.checkpoint == other.checkpoint == BASE:
        return (bases[0] == bases[1] if None not in bases else None), None
    found = weight_difference(one, other)
    if found is None:
        return None, None
    # An adapter is a difference to its base: the same adapter on another base is another model.
    return found.changed == 0 and bases[0] == bases[1], found.share


def recorded_weights(run: RunDirectory, checkpoint: str) -> Mapping[str, str]:
    """The fingerprint of each file of weights of a checkpoint as it was recorded, nothing read
    again; empty where none was, and for a checkpoint that is gone."""
    reference = parse_checkpoint(checkpoint)
    if reference is None or reference.stage is None:
        base = read_manifest(run).get("base_weights", {}).get("sha256")
        return {BASE: base} if base else {}
    if not reference.step:
        return {}
    recorded = recorded_checksums(run.checkpoint(reference.stage, reference.step))
    if recorded is None or isinstance(recorded, Damage):
        return {}
    return {name: sha for name, sha in recorded.items() if name.endswith(".safetensors")}


def same_weights(one: Provenance, other: Provenance) -> bool:
    """Whether two checkpoints are recorded with the same weights; an adapter on another base is
    another model."""
    left, right = (recorded_weights(each.run, each.checkpoint) for each in (one, other))
    bases = base_weights(one, other)
    return bool(left) and left == right and bases[0] == bases[1]


def base_weights(*origins: Provenance) -> list[str | None]:
    """The fingerprint of the model that each run began with; None where it is not recorded."""
    return [origin.manifest.get("base_weights", {}).get("sha256") for origin in origins]


def weight_difference(one: Provenance, other: Provenance) -> WeightDifference | None:
    """Two trained checkpoints value by value; None where one is not there or they do not fit.

    Raises DamagedFile.
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


@dataclass(frozen=True, slots=True)
class SelectionPair:
    """Two checkpoints, their picks and their weights."""

    control: str
    other: str
    agreement: SelectionAgreement
    changed: float | None
    """Share of the weights that differ; None where one of them is not there."""
    moved: float | None
    """Mean absolute difference of the weights."""


@dataclass(frozen=True, slots=True)
class PickedTable:
    """The picks of all checkpoints of a comparison."""

    pairs: tuple[SelectionPair, ...]
    uses: Mapping[str, SelectionUse]
    """By checkpoint, or by run and checkpoint."""


def picked(arms: Sequence[Arm]) -> PickedTable | None:
    """The picks of arms; None where the answers of one are no selections."""
    found: dict[str, Mapping[Key, Picks]] = {}
    for arm in arms:
        selections = selections_in(arm.outputs) if arm.outputs else None
        if selections is None:
            return None
        found[arm.name] = selections
    control, *others = arms
    wanted = dict.fromkeys([*((control.name, each.name) for each in others), *_neighbours(arms)])
    named = {arm.name: arm for arm in arms}
    pairs = [
        _pair(named[one], named[two], both)
        for one, two in wanted
        if (both := agree(found[one], found[two])) is not None
    ]
    return PickedTable(tuple(pairs), {name: used(each) for name, each in found.items()})


def _neighbours(arms: Sequence[Arm]) -> list[tuple[str, str]]:
    return [(one.name, two.name) for one, two in pairwise(arms)]


def _pair(control: Arm, other: Arm, agreement: SelectionAgreement) -> SelectionPair:
    weights = None
    if control.provenance is not None and other.provenance is not None:
        weights = weight_difference(control.provenance, other.provenance)
    changed, moved = (None, None) if weights is None else (weights.share, weights.mean)
    return SelectionPair(control.name, other.name, agreement, changed, moved)
