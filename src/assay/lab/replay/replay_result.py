"""The result of a replay as plain data: the step before and after, by sample and in total.

Lists every difference between the recorded judgement and the same judgement made now, and what has
changed in between. Judges nothing.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.data.episode import Reward
from assay.experiment.stage_tables import GrpoStage, StageSpec
from assay.judge.confounds import Confound, differences
from assay.judge.findings import Finding
from assay.judge.judgement_changes import (
    Bin,
    Distribution,
    Turn,
    distribution,
    histogram,
    turn,
)
from assay.lab.replay.side import Side
from assay.lab.replay.step import StoredStep, Weights
from assay.lab.setup.manifest import code_fingerprint, data_table, stage_table
from assay.lab.setup.session import Session
from assay.rl.directions import Directions, directions
from assay.rl.signal import SignalStats
from assay.runs.history import Sample
from assay.runs.manifest_file import read_manifest

SHOWN = 3
"""Causes and differences that are written out; the others are counted."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One sample that is judged or weighed differently now."""

    sample: str
    """Its address for `assay show`."""
    what: str
    """`reward`, `abstention`, `advantage`, or the part's name as `part NAME`."""
    recorded: Any
    now: Any


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of judging the step again under its own settings."""

    samples: int
    rewards: tuple[Difference, ...]
    advantages: tuple[Difference, ...]
    """From the recorded rewards, so that only how these are weighed is asked."""
    unasked: str
    """Why advantages could not be worked out again; "" where they were."""
    causes: tuple[Confound, ...]
    """Differences between the run's manifest and now; searched only if judgements differ."""

    @property
    def exact(self) -> bool:
        """Whether rewards, parts and advantages are what was recorded, to the last bit."""
        return not (self.rewards or self.advantages)


def prove(
    session: Session,
    stored: StoredStep,
    rewards: Sequence[Reward],
    advantages: Sequence[float | None],
    unasked: str,
) -> Proof:
    """Compare rewards given now, and advantages worked out now from the recorded rewards, with
    what the step recorded. Abstentions are compared as such; their words are not.
    """
    stage = session.experiment.stage[stored.stage]
    both = zip(stored.samples, rewards, strict=True)
    changed = [d for s, now in both if (d := reward_difference(stored.address(s), s, now))]
    weighed = []
    if isinstance(stage, GrpoStage) and not unasked:
        weighed = [
            Difference(stored.address(each), "advantage", each.advantage, now)
            for each, now in zip(stored.samples, advantages, strict=True)
            if each.reward is not None and each.advantage != now
        ]
    causes = changes_since(session, stored.stage, stage) if changed or weighed else []
    return Proof(len(stored.samples), tuple(changed), tuple(weighed), unasked, tuple(causes))


def reward_difference(address: str, sample: Sample, now: Reward) -> Difference | None:
    """The first thing that differs between a recorded reward and the same one given now."""
    then = sample.judgement
    if (then.value is None) != (now.value is None):
        return Difference(address, "abstention", shown(then), shown(now))
    if then.value != now.value:
        return Difference(address, "reward", then.value, now.value)
    for name in dict.fromkeys([*then.parts, *now.parts]):
        if then.parts.get(name) != now.parts.get(name):
            return Difference(address, f"part {name}", then.parts.get(name), now.parts.get(name))
    return None


def shown(reward: Reward) -> str | float:
    """The value, or why there is none."""
    return f"abstained: {reward.why}" if reward.value is None else reward.value


def changes_since(session: Session, name: str, stage: StageSpec) -> list[Confound]:
    """Differences between the run's manifest and now that affect rewards and advantages."""
    data = stage.data.partition(".")[0]
    stored = read_manifest(session.run)
    now = {
        "data": {data: data_table(session, data, session.experiment.data[data])},
        "stages": {name: stage_table(session, stage)},
        "code": code_fingerprint(),
    }
    then = {
        "data": {data: stored.get("data", {}).get(data, {})},
        "stages": {name: stored.get("stages", {}).get(name, {})},
        "code": stored.get("code", {}),
    }
    return differences(then, json.loads(json.dumps(now)))


def findings(proof: Proof) -> list[Finding]:
    """Findings of the self-check."""
    found = []
    if proof.rewards:
        found.append(finding("recorded rewards are not reproduced", proof.rewards, proof))
    if proof.advantages:
        found.append(finding("recorded advantages are not reproduced", proof.advantages, proof))
    if proof.unasked:
        what = "recorded advantages were not worked out again"
        found.append(Finding("note", what, proof.unasked, ""))
    return found


def finding(what: str, different: Sequence[Difference], proof: Proof) -> Finding:
    """A warning that names the first differences, and what has changed since."""
    shown = [f"{d.sample}: {d.what} {d.recorded} -> {d.now}" for d in different[:SHOWN]]
    causes = [f"{cause.path} has changed since the run" for cause in proof.causes[:SHOWN]]
    if not causes:
        causes = ["nothing in the manifest has changed: the reward depends on time or chance"]
    what = f"{what}: {len(different)} of {proof.samples}"
    fix = "restore what changed, or read every change as one of the reward's source as well"
    return Finding("warning", what, "; ".join([*shown, *causes]), fix)


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
    """The change of the sign of the pull."""


@dataclass(frozen=True, slots=True)
class Spreads:
    """Values before and after."""

    before: Distribution
    after: Distribution
    bins: tuple[Bin, ...]


@dataclass(frozen=True, slots=True)
class Update:
    """The update that a side would have made."""

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
    """The norm in the run's metrics: the mean over the step's updates, before clipping."""
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
    """Kind of the samples' pulls: advantage, kept or weight."""
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
    """The distributions of the values of both sides."""
    return Spreads(distribution(before), distribution(after), histogram(before, after))


def update_of(side: Side) -> Update:
    """The update that a side would have made."""
    packed = side.batch.updates[: len(side.batch.updates) // side.passes]
    contexts = {id(context): None for update in packed for context in update.contexts}
    tokens = sum(int(update.mask_S.sum()) for update in packed)
    share = side.signal.signal_share
    return Update(side.signal, share, len(contexts), tokens, side.drawn)


def sample_changes(
    stored: StoredStep, recorded: Sequence[Reward], past: Side, other: Side
) -> tuple[SampleChange, ...]:
    """Every stored sample before and after, in order."""
    columns = (stored.samples, recorded, past.pulls, other.rewards, other.pulls)
    return tuple(
        SampleChange(
            id=stored.address(sample),
            reward_before=then.value,
            reward_after=now.value,
            why_before=then.why,
            why_after=now.why,
            pull_before=pull,
            pull_after=pulled,
            turn=turn(pull, pulled),
        )
        for sample, then, pull, now, pulled in zip(*columns, strict=True)
    )


def gradients_of(
    past: Side, other: Side, weights: Weights, metrics: Sequence[Mapping[str, Any]], step: int
) -> Gradients:
    """Compares both gradients, and the first with its recorded norm."""
    norms = [line.get("grad_norm") for line in metrics if line["step"] == step]
    found = directions(past.gradient or {}, other.gradient or {})
    return Gradients(weights, found, norms[-1] if norms else None, past.gap)
