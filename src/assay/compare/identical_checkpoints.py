"""Explains arms that gave the same answers, and finds answers that contradict themselves.

Gathers what `judge.identity` judges: how many different answers there are, whether the weights are
the same, whether decoding is deterministic.
"""

from collections.abc import Sequence
from pathlib import Path

from assay.compare.arm import Arm, Provenance, identical
from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.judge.findings import Finding, worst_first
from assay.judge.identity import Twins, contradictory_answers, same_answers
from assay.runs.checkpoints import check_checkpoint

Weights = tuple[bool | None, float | None]
"""Whether two checkpoints have the same weights, and the share that differs; None: not known."""


def identity_findings(arms: Sequence[Arm]) -> list[Finding]:
    """What the identity rules find in the arms of one table, worst first."""
    control = arms[0].provenance
    greedy = control is None or control.record.sampling.get("temperature") == 0
    found = [same_answers(_twins(one, other, greedy)) for one, other in identical(arms)]
    for arm in arms:
        found += contradictory_answers(arm.name, arm.answers)
    return worst_first(found)


def _twins(one: Arm, other: Arm, greedy: bool) -> Twins:
    same, share = None, None
    if one.provenance is not None and other.provenance is not None:
        same, share = weights(one.provenance, other.provenance)
    return Twins(
        control=one.name,
        other=other.name,
        items=len(one.scores.item_ids),
        answers=len(one.outputs),
        distinct=len(set(one.outputs.values())),
        same_weights=same,
        changed_share=share,
        greedy=greedy,
    )


def weights(one: Provenance, other: Provenance) -> Weights:
    """Whether two checkpoints have the same weights, by fingerprint or value by value.

    Raises CheckpointDamaged.
    """
    left, right = (_folder(origin) for origin in (one, other))
    bases = [o.manifest.get("base_weights", {}).get("sha256") for o in (one, other)]
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


def _folder(origin: Provenance) -> Path | None:
    """The folder of a trained checkpoint; None for the base and for one that was deleted."""
    reference = parse_checkpoint(origin.checkpoint)
    if reference is None or reference.stage is None or reference.step is None:
        return None
    folder = origin.run.checkpoint(reference.stage, reference.step)
    return folder if folder.is_dir() else None
