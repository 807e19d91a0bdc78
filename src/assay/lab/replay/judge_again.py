"""Judges a stored step again: what another reward, advantage or group filter would have changed.

Samples, trains and writes nothing. A replay may change how completions are judged and weighted,
never how they were sampled; `reward=NAME` is short for `stage.STAGE.reward=NAME`. The step is first
judged under its own settings, and every difference from the record is a finding.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from assay.data.episode import Reward
from assay.errors import Finding, InputError
from assay.experiment.experiment import Experiment
from assay.experiment.overrides import parse_override, place
from assay.experiment.read_file import read_experiment
from assay.experiment.stage_tables import GrpoStage, StageSpec
from assay.judge.confounds import Confound, differences
from assay.judge.judgement_changes import (
    Bin,
    Distribution,
    Turn,
    distribution,
    histogram,
    turn,
)
from assay.lab.monitor.observer import Observer
from assay.lab.replay.side import (
    PULLS,
    Bench,
    SampledStage,
    Side,
    StoredStep,
    Weights,
    choose_stage,
    judge_side,
    needs_weights,
    read_step,
    score,
    set_up,
    shaped,
)
from assay.lab.setup.manifest import code_fingerprint, data_table, stage_table
from assay.lab.setup.session import Session
from assay.lab.setup.validate import check_names
from assay.rl.directions import Directions, directions
from assay.rl.signal import SignalStats
from assay.runs.history import History, Sample
from assay.runs.manifest_file import read_manifest
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import experiment_of
from assay.runs.status import stored_status
from assay.tasks.user_code import forget_changed_files
from assay.train.pair_choice import OVERLONG

SHOWN = 3
"""Causes and differences that are written out; the others are counted."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One sample that is judged or weighed differently now."""

    sample: str
    """Its address for `assay report`."""
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
    """Compare rewards given now, and advantages worked out now from the recorded rewards, with what
    the step recorded. Abstentions are compared as such; their words are not."""
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
        both = (f"abstained: {r.why}" if r.value is None else r.value for r in (then, now))
        return Difference(address, "abstention", *both)
    if then.value != now.value:
        return Difference(address, "reward", then.value, now.value)
    for name in dict.fromkeys([*then.parts, *now.parts]):
        if then.parts.get(name) != now.parts.get(name):
            return Difference(address, f"part {name}", then.parts.get(name), now.parts.get(name))
    return None


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


def findings(proof: Proof) -> Iterator[Finding]:
    """Findings of the self-check: the first differences, and what has changed since."""
    causes = [f"{cause.path} has changed since the run" for cause in proof.causes[:SHOWN]]
    if not causes:
        causes = ["nothing in the manifest has changed: the reward depends on time or chance"]
    for name, different in (("rewards", proof.rewards), ("advantages", proof.advantages)):
        if different:
            shown = [f"{d.sample}: {d.what} {d.recorded} -> {d.now}" for d in different[:SHOWN]]
            yield Finding(
                "warning",
                f"recorded {name} are not reproduced: {len(different)} of {proof.samples}",
                "; ".join([*shown, *causes]),
                "restore what changed, or read every change as one of the reward's source as well",
            )
    if proof.unasked:
        what = "recorded advantages were not worked out again"
        yield Finding("note", what, proof.unasked, "")


@dataclass(frozen=True, slots=True)
class SampleChange:
    """One completion before and after; None is an abstention, or a sample that was not drawn."""

    id: str
    """For `assay report`."""
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

    @classmethod
    def of(cls, before: Sequence[float | None], after: Sequence[float | None]) -> "Spreads":
        """The distributions of the values of both sides."""
        return cls(distribution(before), distribution(after), histogram(before, after))


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


JUDGING = (
    *("reward", "reward_deadline", "max_abstained_share", "overlong", "mask_truncated"),
    *("algorithm", "advantage", "loss", "aggregation", "clip", "kl", "entropy_coef", "updates"),
    *("drop_without_signal", "dynamic", "keep", "batch", "tau", "likelihood_temperature"),
    *("micro_tokens",),
)
"""Keys of a stage that do not affect sampling."""


def replayed_experiment(run: RunDirectory, stage: str, settings: Sequence[str]) -> Experiment:
    """The run's experiment with these settings of one stage. Raises InputError."""
    forget_changed_files()
    before = experiment_of(run)
    overrides = [whole_path(text, stage, before.stage[stage]) for text in settings]
    after = read_experiment(run.spec, overrides)
    check_names(after, run.spec, overrides, run.root)
    return after


def whole_path(text: str, name: str, stage: StageSpec) -> str:
    """A setting with its path from the top of the file. Raises InputError."""
    path = tuple(map(str, parse_override(text).path))
    inner = path[2:] if path[0] == "stage" else path
    if path[0] == "stage" and path[1:2] != (name,):
        fix = f"write stage.{name}.KEY, or name another stage with --stage"
        raise InputError(f"only {name!r} is replayed", file=place(text), fix=fix)
    own = type(stage).model_fields
    if not inner or (inner[0] not in JUDGING and inner[0] in {*own, *Experiment.model_fields}):
        problem = "only how samples are judged can be replayed, not how they came about"
        fix = "set " + ", ".join(key for key in JUDGING if key in own)
        raise InputError(problem, file=place(text), field=".".join(path), fix=fix)
    return text if path[0] == "stage" else f"stage.{name}.{text.strip()}"


def notes(stage: SampledStage, other: Side, gradients: Gradients | None) -> Iterator[Finding]:
    """Findings on a run that would have continued differently with these settings, and on
    gradients."""
    reasons = [reward.why for reward in other.rewards if reward.value is None]
    if len(reasons) > stage.max_abstained_share * len(other.rewards):
        common = max(set(reasons), key=reasons.count)
        yield Finding(
            "warning",
            "with these settings the run would have stopped at this step",
            f"{len(reasons)} of {len(other.rewards)} rewards abstain, more than "
            f"{stage.max_abstained_share:.0%}; most often: {common}",
            "correct the reward, or raise max_abstained_share",
        )
    if other.drawn != len(other.rewards):
        evidence = f"{other.drawn} of {len(other.rewards)} completions would have been sampled"
        yield Finding("note", "sampling would have ended earlier", evidence, "")
    if other.short:
        what = "with these settings more completions would have been sampled than are stored"
        evidence = f"{other.signal.signal_groups} groups carry signal"
        yield Finding("warning", what, evidence, "read the update as that of the stored ones alone")
    if gradients is not None:
        yield from gradient_notes(stage, gradients)


def gradient_notes(stage: SampledStage, gradients: Gradients) -> Iterator[Finding]:
    """Findings on gradients that are not those of the step, and on sides without one."""
    weights, gap = gradients.weights, gradients.rollout_gap
    if not weights.exact:
        yield Finding(
            "note",
            f"the gradients are taken at {weights.checkpoint}, {weights.behind} steps before the "
            "weights that sampled",
            "those are not stored",
            "a smaller checkpoint_every keeps more of them",
        )
    limit = stage.max_rollout_gap if isinstance(stage, GrpoStage) else float("inf")
    if weights.exact and gap is not None and gap > limit:
        yield Finding(
            "warning",
            "prompts or weights are not those that sampled",
            f"log-probs differ from the recorded ones by {gap:.3f} on average, more than {limit}",
            "look for what has changed: data, template, model",
        )
    whole = gradients.directions.whole
    empty = [side for side, norm in (("before", whole.before), ("after", whole.after)) if not norm]
    if empty:
        yield Finding("note", f"no gradient {' and '.join(empty)}", "nothing carries signal", "")


def replay(
    run: RunDirectory,
    step: int,
    settings: Sequence[str] = (),
    *,
    stage: str | None = None,
    gradient: bool = False,
    observer: Observer,
) -> Replay:
    """Judge the stored completions of a step again, as `settings` (PATH=VALUE) say. Raises
    InputError for what does not exist or cannot be replayed."""
    experiment = experiment_of(run)
    name = choose_stage(run, experiment, stage)
    before = experiment.stage[name]
    after = replayed_experiment(run, name, settings).stage[name]
    assert isinstance(before, SampledStage)
    assert isinstance(after, SampledStage)
    stored = read_step(run, name, step, before.group)
    session = Session(experiment, run, stored_status(run.path).seed, observer)
    bench = set_up(session, stored)
    return compare_sides(bench, before, after, gradient)


def compare_sides(
    bench: Bench, before: SampledStage, after: SampledStage, gradient: bool
) -> Replay:
    """Both sides of the replay, and the self-check."""
    stored = bench.stored
    recorded = [sample.judgement for sample in stored.samples]
    again = shaped(bench, before, score(bench, before))
    past = judge_side(bench, before, recorded, gradient=gradient)
    other = judge_side(bench, after, rewards_after(bench, before, after), gradient=gradient)
    proof = prove(bench.session, stored, again, past.pulls, unasked(bench, before))
    if isinstance(before, GrpoStage):  # the other methods record none
        kept = [None if each.reward is None else each.advantage for each in stored.samples]
        past = replace(past, pulls=tuple(kept))
    gradients = None
    if gradient:
        lines = History(stored.run).lines(stored.stage)
        norms = [line.get("grad_norm") for line in lines if line["step"] == stored.step]
        turned = directions(past.gradient or {}, other.gradient or {})
        gradients = Gradients(bench.weights, turned, norms[-1] if norms else None, past.gap)
    own, set_ = (each.model_dump(mode="json", exclude_none=True) for each in (before, after))
    values = ([reward.value for reward in side] for side in (recorded, other.rewards))
    return Replay(
        run=str(stored.run),
        stage=stored.stage,
        method=before.method,
        step=stored.step,
        pull=PULLS[before.method],
        settings=tuple(differences(own, set_)),
        proof=proof,
        rewards=Spreads.of(*values),
        pulls=Spreads.of(past.pulls, other.pulls),
        before=update_of(past),
        after=update_of(other),
        samples=sample_changes(stored, recorded, past, other),
        gradients=gradients,
        findings=(*findings(proof), *notes(after, other, gradients)),
    )


def rewards_after(bench: Bench, before: SampledStage, after: SampledStage) -> list[Reward]:
    """The recorded rewards if the same reward judges, else those of the other one. Recorded rewards
    are kept, because a deadline may pass one time and not another."""
    judging = [(each.reward, each.reward_deadline) for each in (before, after)]
    if judging[0] != judging[1]:
        return score(bench, after)
    recorded = [sample.judgement for sample in bench.stored.samples]
    punishments = [getattr(stage, "overlong", None) for stage in (before, after)]
    if punishments[0] == punishments[1]:
        return recorded
    bare = []
    for reward in recorded:  # without its punishment for length, to the last rounding of the sum
        if reward.value is not None and OVERLONG in reward.parts:
            parts = {name: value for name, value in reward.parts.items() if name != OVERLONG}
            reward = Reward(reward.value - reward.parts[OVERLONG], parts, reward.why)
        bare.append(reward)
    return bare


def unasked(bench: Bench, stage: SampledStage) -> str:
    """Why the run's advantages cannot be worked out again; "" where they can."""
    if not needs_weights(bench, stage) or bench.weights.exact:
        return ""
    return (
        "they depend on the weights that sampled, which are not stored; the nearest before are "
        f"{bench.weights.checkpoint}"
    )
