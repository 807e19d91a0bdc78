"""Reads a stored step of a run: its completions as sampled and judged, and its weights.

Judges nothing again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from assay.data.episode import Completion, Context, Episode, Reward, Turn
from assay.errors import InputError, nearest
from assay.experiment.checkpoint_reference import checkpoint_name
from assay.experiment.experiment import Experiment
from assay.experiment.stage_tables import GrpoStage, RceStage, RftStage, StageSpec
from assay.lab.setup.manifest import check_base
from assay.lab.setup.session import Session
from assay.rl.policy import Policy
from assay.runs.checkpoints import check_checkpoint, step_name, steps_in
from assay.runs.history import History, Sample, samples_in
from assay.runs.records import DamagedRecord
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import stage_start
from assay.train.train_state import Batch
from assay.train.update import MicroBatchSize, accumulate

SampledStage = GrpoStage | RftStage | RceStage
"""The stages that sample completions and have them judged."""


class NoSamples(InputError):
    """A stage or a step without stored completions."""


@dataclass(frozen=True)
class StoredStep:
    """The completions of one step, in the order in which they were sampled."""

    run: RunDirectory
    stage: str
    step: int
    samples: tuple[Sample, ...]

    def address(self, sample: Sample) -> str:
        """The address of a sample for `assay show`."""
        return f"{self.run}:{sample.id}"


def choose_stage(run: RunDirectory, experiment: Experiment, name: str | None) -> str:
    """The stage whose samples are meant: the one named, else the only one that samples.

    Raises NoSamples for a stage that does not exist or samples nothing, and where none is named of
    several.
    """
    able = [n for n, stage in experiment.stage.items() if samples(stage)]
    if not able:
        raise NoSamples(f"{run} has no stage that samples completions")
    if name is None:
        if len(able) > 1:
            fix = "add --stage " + " or --stage ".join(able)
            raise NoSamples(f"{run} has {len(able)} stages that sample", field="--stage", fix=fix)
        return able[0]
    if name not in experiment.stage:
        fix = nearest(name, experiment.stage)
        raise NoSamples(f"{run} has no stage {name!r}", field="--stage", fix=fix)
    if name not in able:
        method = experiment.stage[name].method
        problem = f"stage {name!r} ({method}) samples nothing that could be judged again"
        raise NoSamples(problem, field="--stage", fix="take " + " or ".join(able))
    return name


def samples(stage: object) -> bool:
    """Whether a stage samples completions and has them judged; not so where they were stored."""
    return isinstance(stage, SampledStage) and not stage.stored


def read_step(run: RunDirectory, stage: str, step: int, group: int) -> StoredStep:
    """The stored completions of a step, in groups of `group`.

    Raises NoSamples with the steps there are, DamagedRecord for a file that is not whole.
    """
    file = run.samples(stage, step)
    if not file.exists():
        raise NoSamples(f"{run} has no samples of step {step} of {stage!r}", fix=known(run, stage))
    found = tuple(samples_in(file, tokens=True))
    whole = [found[i : i + group] for i in range(0, len(found), group)]
    if not found or any(len(g) != group or len({x.row for x in g}) > 1 for g in whole):
        raise DamagedRecord(
            f"its lines are not groups of {group} completions of one row", file=file
        )
    return StoredStep(run, stage, step, found)


def known(run: RunDirectory, stage: str) -> str:
    """Which steps of a stage have samples, in words."""
    steps = History(run).sampled(stage)
    if not steps:
        return "it has none yet"
    pieces = [f"{a} to {b}" if b > a else str(a) for a, b in spans(steps)]
    return "it has " + ", ".join(pieces)


def spans(steps: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of each unbroken stretch of ascending numbers."""
    found: list[tuple[int, int]] = []
    for step in steps:
        if found and step == found[-1][1] + 1:
            found[-1] = (found[-1][0], step)
        else:
            found.append((step, step))
    return found


def completion_of(sample: Sample) -> Completion:
    """The completion as the reward saw it."""
    return Completion(sample.text, sample.tokens, sample.ended, sample.messages)


def episode_of(sample: Sample, context: Context, reward: Reward) -> Episode:
    """The episode that a sample records, with a reward of one's own.

    `context` is the prompt of a single answer; turns of a conversation are stored with theirs.
    """
    name = f"{sample.row}#{sample.number}"
    if sample.conversation is not None:
        return Episode(name, sample.row, sample.turns, reward, completion_of(sample))
    actions = sample.tokens
    turn = Turn(context, actions, (True,) * len(actions), sample.logps or None, sample.ended)
    return Episode(name, sample.row, (turn,), reward)


def in_groups(episodes: Sequence[Episode], group: int) -> list[list[Episode]]:
    """Episodes in groups of `group`, in order, each with the visit to its row that it is of."""
    visits = [replace(e, visit=int(e.id.rpartition("#")[2]) // group) for e in episodes]
    return [visits[i : i + group] for i in range(0, len(visits), group)]


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights that a step is scored with."""

    checkpoint: str
    """`base`, or `STAGE.step-N` as records name it."""
    behind: int
    """Steps of the stage between these weights and those that sampled."""

    @property
    def exact(self) -> bool:
        """Whether these weights sampled the step."""
        return self.behind == 0


def find_weights(session: Session, name: str, stage: StageSpec, step: int) -> Weights:
    """The newest stored weights at or before the step's sampling."""
    before = [s for s in steps_in(session.run.checkpoints(name)) if s < step]
    if before:
        return Weights(f"{name}.{step_name(before[-1])}", step - 1 - before[-1])
    return Weights(start_name(session, stage), step - 1)


def start_name(session: Session, stage: StageSpec) -> str:
    """The stage's start, by its step, with the run where that is another. Raises RunNotFound if it
    is gone."""
    run, reference = stage_start(session.run, stage)
    name = checkpoint_name(reference)
    return name if run == session.run else f"{run}@{name}"


def load_policy(
    session: Session, name: str, stage: StageSpec, weights: Weights, largest: MicroBatchSize
) -> Policy:
    """The stage's policy with these weights, its KL reference as `stage` says, and room for the
    largest micro-batch.

    Raises BaseChanged where the run's base model is another than it was, CheckpointDamaged.
    """
    check_base(session)
    # A stage draws its adapter's first weights from this seed.
    torch.manual_seed(session.seed)
    opened = session.learner.policy(session.run, stage)
    opened.fit(largest)
    policy = opened.policy
    folder = checkpoint_folder(session, name, weights)
    if folder is not None:
        check_checkpoint(folder, "restore it, or name another step")
        policy.load(folder)
    return policy


def checkpoint_folder(session: Session, name: str, weights: Weights) -> Path | None:
    """The folder of a checkpoint of the stage itself; None where the stage's start is meant."""
    own, _, step = weights.checkpoint.partition(".")
    return session.run.checkpoints(name) / step if own == name else None


def accumulate_pass(policy: Policy, batch: Batch, passes: int, micro_tokens: int) -> float | None:
    """Leave the mean gradient of the updates of the first of `passes` at the parameters.

    All at the same weights, while a later update of a real step begins where the one before led.
    Returns the mean absolute difference to the log-probs of the rollout, if the objective has it.
    """
    first = batch.updates[: len(batch.updates) // passes]
    found = [accumulate(policy, packed, batch.objective, micro_tokens) for packed in first]
    for parameter in policy.module.parameters():
        if parameter.grad is not None:
            parameter.grad /= len(first)
    sums = [totals.sums for totals in found]
    gaps = [each["rollout_gap_mean"] for each in sums if "rollout_gap_mean" in each]
    return sum(gaps) / sum(each["tokens"] for each in sums) if gaps else None


def take_gradient(policy: Policy) -> dict[str, Tensor]:
    """The gradients that lie at the parameters, on the CPU; they are there no longer."""
    found = {
        name: parameter.grad.cpu()
        for name, parameter in policy.module.named_parameters()
        if parameter.grad is not None
    }
    policy.module.zero_grad(set_to_none=True)
    return found
