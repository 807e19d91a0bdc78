"""What happened while a run trained: curves of metrics, rewards of the groups, dev scores.

Reads metrics lines and samples that were loaded before; draws and judges nothing.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.judge.intervals import Interval
from assay.runs.records import VISIT

CURVES = (
    "reward_mean",
    "signal_share",
    "grad_norm",
    "length_mean",
    "truncated_share",
    "entropy",
    "kl",
    "nll",
    "validation_loss",
    "clip_low_share",
    "clip_high_share",
    "rollout_gap_mean",
    "abstained_share",
    "learning_rate",
)
"""Metrics that get a curve, in the order of the page. A clipped surrogate is no measure of
learning and has none."""
ONLY_WHEN_NONZERO = frozenset({"kl", "clip_low_share", "clip_high_share", "abstained_share"})
ONLY_WHEN_MOVING = frozenset({"learning_rate"})


@dataclass(frozen=True, slots=True)
class Curve:
    """One metric of one stage. A value that was not finite is None."""

    metric: str
    steps: tuple[int, ...]
    values: tuple[float | None, ...]

    @property
    def points(self) -> list[tuple[int, float | None]]:
        """Steps with their values."""
        return list(zip(self.steps, self.values, strict=True))

    @property
    def last(self) -> float | None:
        """The value of the last step."""
        return self.values[-1]


@dataclass(frozen=True, slots=True)
class RewardStep:
    """The groups of one step, by the number of their completions with a reward above 0."""

    step: int
    group: int
    """Completions of the largest group."""
    counts: Mapping[int, int]
    """Number rewarded -> number of groups. Groups with an abstention are not among them."""
    abstained: int
    """Groups left out because a completion of theirs has no reward."""

    def share(self, rewarded: int) -> float:
        """Share of the counted groups with `rewarded` rewarded completions; 0 without groups."""
        total = sum(self.counts.values())
        return self.counts.get(rewarded, 0) / total if total else 0.0


@dataclass(frozen=True, slots=True)
class DevScore:
    """A checkpoint's score on the items that choose."""

    step: int
    score: float
    interval: Interval
    items: int
    chosen: bool


def by_stage(metrics: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Metrics lines of each stage, in the order of the file."""
    stages: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for line in metrics:
        stages[line["stage"]].append(line)
    return dict(stages)


def curves(metrics: Sequence[Mapping[str, Any]]) -> list[Curve]:
    """The curves that the lines of one stage give."""
    found = []
    for metric in CURVES:
        lines = [line for line in metrics if metric in line]
        values = tuple(_finite(line[metric]) for line in lines)
        present = {value for value in values if value is not None}
        dull = metric in ONLY_WHEN_NONZERO and present == {0.0}
        dull = dull or (metric in ONLY_WHEN_MOVING and len(present) == 1)
        if present and not dull:
            found.append(Curve(metric, tuple(line["step"] for line in lines), values))
    return found


def reward_step(step: int, samples: Iterable[Mapping[str, Any]]) -> RewardStep:
    """The groups of one step's samples."""
    groups: dict[tuple[str, int], list[float | None]] = defaultdict(list)
    for sample in samples:
        groups[sample["row_id"], sample.get(VISIT, 0)].append(sample["reward"])
    whole = [rewards for rewards in groups.values() if None not in rewards]
    counts = Counter(sum(r is not None and r > 0 for r in rewards) for rewards in whole)
    size = max(map(len, groups.values()))
    return RewardStep(step, size, dict(counts), len(groups) - len(whole))


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
