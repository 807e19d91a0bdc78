"""Lays the weights of two recorded checkpoints side by side, in whichever runs they lie.

What equal weights mean is said in `judge.identity`.
"""

from pathlib import Path

from assay.compare.arm import Provenance
from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.models.same_weights import WeightDifference, compare_weights
from assay.runs.checkpoints import check_checkpoint
from assay.runs.run_names import located

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
