"""How far the checkpoints of a comparison pick the same demonstrations, and have the same weights.

For records of selectors, whose answers are lists of picks. The first arm is paired with every
other, and each with the one before it.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from assay.compare.arm import Arm, Key, Provenance
from assay.data.files import Damage, recorded_checksums
from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.models.folder import WeightDifference, compare_weights
from assay.runs.run_directory import RunDirectory, check_checkpoint, read_manifest
from assay.runs.run_names import located

BASE = "base"
Picks = tuple[int, ...]
Weights = tuple[bool | None, float | None]
"""Whether two checkpoints have the same weights, and the share that differs; None: not known."""


def weights(one: Provenance, other: Provenance) -> Weights:
    """Whether two checkpoints have the same weights, by fingerprint or value by value.

    Raises DamagedFile.
    """
    bases = base_weights(one, other)
    if one.checkpoint == other.checkpoint == BASE:
        return (bases[0] == bases[1] if None not in bases else None), None
    difference = weight_difference(one, other)
    if difference is None:
        return None, None
    # An adapter is a difference to its base: the same adapter on another base is another model.
    return difference.changed == 0 and bases[0] == bases[1], difference.share


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
    run, reference = origin.run, parse_checkpoint(origin.checkpoint)
    if reference is not None and reference.step == 0:  # the start of a stage, in another run
        run, reference = located(run, reference)
    if reference is None or reference.stage is None or reference.step is None:
        return None
    folder = run.checkpoint(reference.stage, reference.step)
    return folder if folder.is_dir() else None


@dataclass(frozen=True, slots=True)
class SelectionPair:
    """How two checkpoints pick for the queries that both were asked, and their weights."""

    control: str
    other: str
    queries: int
    same_order: int
    """Queries with the same demonstrations in the same order: the same prompt for the frozen model,
    on which scores cannot differ."""
    same_set: int
    """Queries with the same demonstrations in any order."""
    jaccard: float
    """Mean over queries of the shared among all demonstrations of the two; 1 for two empty ones."""


def picked(arms: Sequence[Arm]) -> tuple[SelectionPair, ...]:
    """How far arms pick alike; nothing where the answers of one are no selections."""
    by_name: dict[str, Mapping[Key, Picks]] = {}
    for arm in arms:
        selections = selections_in(arm.outputs)
        if selections is None:
            return ()
        by_name[arm.name] = selections
    names = list(by_name)
    wanted = dict.fromkeys([*((names[0], each) for each in names[1:]), *pairwise(names)])
    pairs = (agree(one, two, by_name[one], by_name[two]) for one, two in wanted)
    return tuple(pair for pair in pairs if pair is not None)


def selections_in(outputs: Mapping[Any, str]) -> dict[Any, Picks] | None:
    """The picks of each answer; None where one is no list of different whole numbers, or all are
    empty."""
    selections = {}
    for key, text in outputs.items():
        try:
            picks: Any = json.loads(text)
        except ValueError:
            return None
        whole = isinstance(picks, list) and all(type(pick) is int for pick in picks)
        if not whole or len({*picks}) < len(picks):
            return None
        selections[key] = tuple(picks)
    return selections if any(selections.values()) else None


def agree(
    control: str, other: str, one: Mapping[Any, Picks], two: Mapping[Any, Picks]
) -> SelectionPair | None:
    """How two checkpoints agree on the queries of both; None where they share none."""
    pairs = [(picks, two[key]) for key, picks in one.items() if key in two]
    if not pairs:
        return None
    sets = [({*mine}, {*theirs}) for mine, theirs in pairs]
    jaccards = [len(a & b) / len(a | b) if a | b else 1.0 for a, b in sets]
    order, alike = (sum(a == b for a, b in both) for both in (pairs, sets))
    mean = math.fsum(jaccards) / len(pairs)
    return SelectionPair(control, other, len(pairs), order, alike, mean)
