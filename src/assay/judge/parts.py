"""The parts of a run that fairness looks at one by one, and which of them differ.

Sorts the differences that `confounds` found; it looks for none itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assay.judge.confounds import Confound, Kind

PARTS: Mapping[str, tuple[str, ...]] = {
    "base weights": ("base_weights",),
    "split": ("data.*.split",),
    "rows": ("data.*.train", "data.*.dev", "data.*.take", "data.*.dropped"),
    "prompt rendering": (
        "data.*.prompts_sha256",
        "stages.*.rendering",
        "evaluation.*.rendering",
        "evaluation.*.prompts_sha256",
    ),
    "data": ("data",),
    "reward": ("stages.*.reward", "stages.*.reward_deadline"),
    "estimator": tuple(
        f"stages.*.{name}"
        for name in (
            *("algorithm", "advantage", "loss", "aggregation", "clip", "kl", "entropy_coef"),
            *("drop_without_signal", "dynamic", "overlong", "tau", "keep"),
        )
    ),
    "sampling": ("stages.*.sampling", "evaluation.*.sampling", "evaluation.*.repeats"),
    "hyper-parameters": ("stages", "seed", "as_reported", "task"),
    "checker": ("evaluation.*.checker", "evaluation.*.reward"),
    "items": ("evaluation",),
    "code": ("code",),
    "packages and machine": ("packages", "machine"),
}
"""Part -> prefixes of its paths; the first part with a prefix that fits has the path. `*` is any
one name."""

OTHER = "other"
RANK: tuple[Kind, ...] = ("confound", "allowed", "declared", "follows", "note")
"""Worst first."""


@dataclass(frozen=True, slots=True)
class PartState:
    """One part of two runs: the same, or in which values it differs."""

    part: str
    differences: tuple[Confound, ...]

    @property
    def kind(self) -> Kind | None:
        """The worst that a difference of the part counts as; None where nothing differs."""
        kinds = {difference.kind for difference in self.differences}
        return next((kind for kind in RANK if kind in kinds), None)


def part_of(path: str) -> str:
    """The part that a dotted path of a manifest belongs to; OTHER for none."""
    found = path.split(".")
    for part, prefixes in PARTS.items():
        if any(_begins(found, prefix.split(".")) for prefix in prefixes):
            return part
    return OTHER


def by_part(differences: Sequence[Confound]) -> list[PartState]:
    """Every part in the order of PARTS with its differences; OTHER only where it has some."""
    found: dict[str, list[Confound]] = {part: [] for part in PARTS}
    for difference in differences:
        found.setdefault(part_of(difference.path), []).append(difference)
    return [PartState(part, tuple(those)) for part, those in found.items()]


def _begins(path: Sequence[str], prefix: Sequence[str]) -> bool:
    pairs = zip(prefix, path, strict=False)
    return len(path) >= len(prefix) and all(want in ("*", have) for want, have in pairs)
