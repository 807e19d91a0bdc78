"""What a replay found, as plain data: the step before and after, sample by sample and in sum."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.data.episode import Reward
from assay.judge.confounds import Confound
from assay.judge.findings import Finding
from assay.judge.judgement_changes import (
    Bin,
    Distribution,
    Turn,
    distribution,
    histogram,
    turn,
)
from assay.lab.replay.proof import Proof
from assay.lab.replay.side import Side
from assay.lab.replay.step import StoredStep
from assay.lab.replay.step_weights import Weights
from assay.rl.directions import Directions, directions
from assay.rl.signal import SignalStats


@dataclass(frozen=True, slots=True)
class SampleChange:
    """One completion before and after; None is an abstention, or a sample that was not drawn."""

    id: str
    """For `assay show`."""
    reward_before: float | None
    reward_after: float | None
    why_before: str
    why_after: str
    pull_before: float | None
    pull_after: float | None
    turn: Turn
    """What became of the sign of the pull."""


@dataclass(frozen=True, slots=True)
class Spreads:
    """Values before and after."""

    before: Distribution
    after: Distribution
    bins: tuple[Bin, ...]


@dataclass(frozen=True, slots=True)
class Update:
    """What a side would have trained on."""

    signal: SignalStats
    signal_share: float
    prompts: int
    """Different prompts in the update."""
    tokens: int
    """Trained tokens in the update's first pass."""
    drawn: int
    """Samples up to the batch with which sampling would have ended."""


@dataclass(frozen=True, slots=True)
class Gradients:
    """The gradients of both sides at the same weights."""

    weights: Weights
    directions: Directions
    recorded_norm: float | None
    """What the run's metrics have for the step: the mean over its updates, before clipping."""
    rollout_gap: float | None
    """Mean absolute difference between log-probs at these weights and those of the rollout."""


@dataclass(frozen=True, slots=True)
class Replay:
    """A step before and after; before is what was recorded."""

    run: str
    stage: str
    method: str
    step: int
    pull: str
    """What the pulls of samples are: advantage, kept or weight."""
    settings: tuple[Confound, ...]
    """Every value of the stage that was set otherwise."""
    proof: Proof
    rewards: Spreads
    pulls: Spreads
    before: Update
    after: Update
    samples: tuple[SampleChange, ...]
    gradients: Gradients | None
    findings: tuple[Finding, ...]


def spreads(before: Sequence[float | None], after: Sequence[float | None]) -> Spreads:
    """How the values of both sides are spread."""
    return Spreads(distribution(before), distribution(after), histogram(before, after))


def update_of(side: Side) -> Update:
    """What a side would have trained on."""
    packed = side.batch.updates[: len(side.batch.updates) // side.passes]
    contexts = {id(context): None for update in packed for context in update.contexts}
    tokens = sum(int(update.mask_S.sum()) for update in packed)
    share = side.signal.signal_share
    return Update(side.signal, share, len(contexts), tokens, side.drawn)


def sample_changes(
    stored: StoredStep, recorded: Sequence[Reward], past: Side, other: Side
) -> tuple[SampleChange, ...]:
    """Every stored sample before and after, in order."""
    columns = (stored.lines, recorded, past.pulls, other.rewards, other.pulls)
    return tuple(
        SampleChange(
            id=stored.address(line),
            reward_before=then.value,
            reward_after=now.value,
            why_before=then.why,
            why_after=now.why,
            pull_before=pull,
            pull_after=pulled,
            turn=turn(pull, pulled),
        )
        for line, then, pull, now, pulled in zip(*columns, strict=True)
    )


def gradients_of(
    past: Side, other: Side, weights: Weights, metrics: Sequence[Mapping[str, Any]], step: int
) -> Gradients:
    """Both gradients held against each other, and the first against what was recorded of it."""
    norms = [line.get("grad_norm") for line in metrics if line["step"] == step]
    found = directions(past.gradient or {}, other.gradient or {})
    return Gradients(weights, found, norms[-1] if norms else None, past.gap)
