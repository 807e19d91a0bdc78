"""Looks into checkpoints that answered the same, and at answers that contradict themselves.

Gathers what `judge.identity` judges: how many different answers there are, whether the weights are
the same, whether decoding is deterministic.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.compare.measured_arm import Measured, identical
from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.judge.findings import Finding, worst_first
from assay.judge.identity import Twins, contradictory_answers, same_answers
from assay.runs.checkpoints import check_checkpoint
from assay.runs.manifest_file import read_manifest
from assay.runs.records import EvaluationRecord
from assay.runs.run_directory import RunDirectory

Weights = tuple[bool | None, float | None]
"""Whether two checkpoints have the same weights, and the share that differs; None: not known."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a measured checkpoint comes from."""

    run: RunDirectory
    checkpoint: str


def identity_findings(
    record: EvaluationRecord, measured: Sequence[Measured], places: Mapping[str, Place]
) -> list[Finding]:
    """What the identity rules find in the arms of one table, worst first."""
    greedy = record.sampling.get("temperature") == 0
    found = [
        same_answers(_twins(one, other, greedy, weights(places[one.name], places[other.name])))
        for one, other in identical(measured)
    ]
    for each in measured:
        found += contradictory_answers(each.name, each.answers)
    return worst_first(found)


def _twins(one: Measured, other: Measured, greedy: bool, known: Weights) -> Twins:
    return Twins(
        control=one.name,
        other=other.name,
        items=len(one.scores.item_ids),
        answers=len(one.outputs),
        distinct=len(set(one.outputs.values())),
        same_weights=known[0],
        changed_share=known[1],
        greedy=greedy,
    )


def weights(one: Place, other: Place) -> Weights:
    """Whether two checkpoints have the same weights, by fingerprint or value by value.

    Raises CheckpointDamaged.
    """
    left, right = (_folder(place) for place in (one, other))
    bases = [read_manifest(p.run).get("base_weights", {}).get("sha256") for p in (one, other)]
    if left is None and right is None:
        both_base = one.checkpoint == other.checkpoint == "base"
        same = bases[0] == bases[1] if both_base and None not in bases else None
        return same, None
    if left is None or right is None:
        return None, None
    from assay.models.same_weights import compare_weights  # loads torch, which a table does without

    for folder in (left, right):
        check_checkpoint(folder, "restore it: whether the weights are the same cannot be told")
    found = compare_weights(left, right)
    if found is None:
        return None, None
    # An adapter is a difference to its base: the same adapter on another base is another model.
    return found.changed == 0 and bases[0] == bases[1], found.share


def _folder(place: Place) -> Path | None:
    """The folder of a trained checkpoint; None for the base and for one that was deleted."""
    reference = parse_checkpoint(place.checkpoint)
    if reference is None or reference.stage is None or reference.step is None:
        return None
    folder = place.run.checkpoint(reference.stage, reference.step)
    return folder if folder.is_dir() else None
