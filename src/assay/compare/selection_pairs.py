"""How far the checkpoints of a comparison pick the same demonstrations, and what lies behind it.

For records of selectors, whose answers are lists of picks. The first arm is paired with every
other, and each with the one before it. Figures are those of `judge.selection_agreement`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from assay.compare.arm import Arm, Key
from assay.compare.checkpoint_weights import weight_difference
from assay.judge.selection_agreement import (
    Picks,
    SelectionAgreement,
    SelectionUse,
    agree,
    selections_in,
    used,
)


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
