"""Reads a stored step of a run and weighs it under one set of settings: one side of a replay.

The training methods do the work; they get the stored groups in place of a sampler.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from assay.data.episode import Completion, Context, Episode, Reward, Turn
from assay.data.row import Row
from assay.errors import InputError, nearest
from assay.experiment.base_table import RenderingSettings
from assay.experiment.checkpoint_reference import checkpoint_name
from assay.experiment.experiment import Experiment
from assay.experiment.stage_tables import (
    DistillStage,
    GrpoStage,
    RceStage,
    RftStage,
    StageSpec,
    steps_of,
)
from assay.experiment.tables import EvaluateSpec
from assay.lab.setup.evaluation import Evaluation, encoded_evaluation
from assay.lab.setup.learner import first_context
from assay.lab.setup.manifest import check_base
from assay.lab.setup.prepare import find_order, find_part, prepare_set
from assay.lab.setup.reward_parts import reward_of
from assay.lab.setup.session import Session
from assay.lab.setup.stage_methods import build_grpo, build_method, largest_of
from assay.rl.aggregation import rce_shares
from assay.rl.objectives import Grpo as GrpoObjective
from assay.rl.packed import group_numbers
from assay.rl.policy import Policy
from assay.rl.signal import SignalStats, signal_stats
from assay.runs.checkpoints import check_checkpoint, step_name, steps_in
from assay.runs.history import History, Sample, read_description, samples_in
from assay.runs.records import DamagedRecord
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import stage_start
from assay.tasks.rendered_dialogue import dialogue_of
from assay.tasks.reward_table import RewardTable
from assay.tasks.task import RewardFunction
from assay.train.checkpoint import Batch, Journal, Method, Place
from assay.train.grpo import Grpo
from assay.train.likelihood import Rce, Rft
from assay.train.pair_choice import groups_that_teach, rewards_of
from assay.train.sampled_groups import StoredPrompts, value_of
from assay.train.update import MicroBatchSize, accumulate


def prompt_of(session: Session, line: dict[str, Any]) -> str:
    """The prompt that a line of `find_samples` answers, rendered again, control tokens included.
    Raises InputError where the data holds the row no longer."""
    file = session.run.path / line["file"]
    if file.is_relative_to(session.run.evaluations):
        rendering, context = _evaluation_prompt(session, file, line["item_id"])
    else:
        rendering, context = _training_prompt(session, file.parent.name, line["row_id"])
    return session.learner.encoder(rendering).text(context)


def evaluation_of(session: Session, folder: Path) -> Evaluation:
    """The evaluation whose records lie in `folder`, from what they say about themselves."""
    stored = read_description(folder / "evaluation.json")
    if stored.name in session.experiment.evaluate:
        return session.evaluations[stored.name]
    about = {"benchmark": stored.benchmark, "role": stored.role, "options": stored.options}
    spec = EvaluateSpec.model_validate({**about, "checkpoints": ("base",)})
    given = (stored.name, spec, session.task, {}, session.learner, session.seed)
    return encoded_evaluation(*given, root=session.run.root)


def _evaluation_prompt(
    session: Session, file: Path, item_id: str
) -> tuple[RenderingSettings, Context]:
    evaluation = evaluation_of(session, file.parent)
    ids = [item.id for item in evaluation.items]
    if item_id not in ids:
        raise InputError(f"{evaluation.spec.benchmark} has no item {item_id!r} any more")
    return evaluation.spec, evaluation.contexts[ids.index(item_id)]


def _training_prompt(
    session: Session, stage_name: str, row_id: str
) -> tuple[RenderingSettings, Context]:
    stage = session.experiment.stage[stage_name]
    for row in find_part(session.sets, stage.data):
        if row.id == row_id:
            encoder, task = session.learner.encoder(stage), session.task
            return stage, first_context(encoder, task, row, partial(dialogue_of, task))
    raise InputError(f"{stage.data} has no row {row_id!r} any more")


SampledStage = GrpoStage | RftStage | RceStage
"""The stages that sample completions and have them judged."""


@dataclass(frozen=True)
class StoredStep:
    """The completions of one step, in the order in which they were sampled."""

    run: RunDirectory
    stage: str
    step: int
    samples: tuple[Sample, ...]

    def address(self, sample: Sample) -> str:
        """The address of a sample for `assay report`."""
        return f"{self.run}:{sample.id}"


def choose_stage(run: RunDirectory, experiment: Experiment, name: str | None) -> str:
    """The stage whose samples are meant: the one named, else the only one that samples.

    Raises InputError for a stage that does not exist, samples nothing or learns from no reward, and
    where none is named of several.
    """
    able = [n for n, s in experiment.stage.items() if isinstance(s, SampledStage) and not s.stored]
    taught = [n for n, s in experiment.stage.items() if isinstance(s, DistillStage)]
    if name in taught or (taught and not able and name is None):
        problem = f"stage {name or taught[0]!r} (distill) learns from its teacher, not from rewards"
        fix = "take " + " or ".join(able) if able else "read its completions with assay report"
        raise InputError(problem, field="--stage" if name else None, fix=fix)
    if not able:
        raise InputError(f"{run} has no stage that samples completions")
    if name is None:
        if len(able) > 1:
            fix = "add --stage " + " or --stage ".join(able)
            raise InputError(f"{run} has {len(able)} stages that sample", field="--stage", fix=fix)
        return able[0]
    if name not in experiment.stage:
        fix = nearest(name, experiment.stage)
        raise InputError(f"{run} has no stage {name!r}", field="--stage", fix=fix)
    if name not in able:
        method = experiment.stage[name].method
        problem = f"stage {name!r} ({method}) samples nothing that could be judged again"
        raise InputError(problem, field="--stage", fix="take " + " or ".join(able))
    return name


def read_step(run: RunDirectory, stage: str, step: int, group: int) -> StoredStep:
    """The stored completions of a step, in groups of `group`. Raises InputError with the steps
    there are, DamagedRecord for a file that is not whole."""
    file = run.samples(stage, step)
    if not file.exists():
        raise InputError(f"{run} has no samples of step {step} of {stage!r}", fix=known(run, stage))
    found = tuple(samples_in(file, tokens=True))
    whole = [found[i : i + group] for i in range(0, len(found), group)]
    if not found or any(len(g) != group or len({x.row for x in g}) > 1 for g in whole):
        raise DamagedRecord(
            f"its lines are not groups of {group} completions of one row", file=file
        )
    return StoredStep(run, stage, step, found)


def known(run: RunDirectory, stage: str) -> str:
    """Which steps of a stage have samples, in words."""
    stretches: list[list[int]] = []
    for step in History(run).sampled(stage):
        if not stretches or step != stretches[-1][-1] + 1:
            stretches.append([])
        stretches[-1].append(step)
    pieces = [f"{s[0]} to {s[-1]}" if s[1:] else str(s[0]) for s in stretches]
    return "it has " + (", ".join(pieces) or "none yet")


def completion_of(sample: Sample) -> Completion:
    """The completion as the reward saw it."""
    return Completion(sample.text, sample.tokens, sample.ended, sample.messages)


def episode_of(sample: Sample, context: Context, reward: Reward) -> Episode:
    """The episode that a sample records, with a reward of one's own. `context` is the prompt of a
    single answer; turns of a conversation are stored with theirs."""
    name = f"{sample.row}#{sample.number}"
    if sample.conversation is not None:
        return Episode(name, sample.row, sample.turns, reward, completion_of(sample))
    actions = sample.tokens
    turn = Turn(context, actions, (True,) * len(actions), sample.logps or None, sample.ended)
    return Episode(name, sample.row, (turn,), reward)


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
    """The newest stored weights at or before the step's sampling, else the stage's start, with the
    run where that is another. Raises RunNotFound if it is gone."""
    before = [s for s in steps_in(session.run.checkpoints(name)) if s < step]
    if before:
        return Weights(f"{name}.{step_name(before[-1])}", step - 1 - before[-1])
    run, reference = stage_start(session.run, stage)
    start = checkpoint_name(reference)
    return Weights(start if run == session.run else f"{run}@{start}", step - 1)


def load_policy(
    session: Session, name: str, stage: StageSpec, weights: Weights, largest: MicroBatchSize
) -> Policy:
    """The stage's policy with these weights, its KL reference as `stage` says, and room for the
    largest micro-batch.

    Raises InputError where the run's base model is another than it was, CheckpointDamaged.
    """
    check_base(session)
    # A stage draws its adapter's first weights from this seed.
    torch.manual_seed(session.seed)
    opened = session.learner.policy(session.run, stage)
    opened.fit(largest)
    policy = opened.policy
    own, _, step = weights.checkpoint.partition(".")
    if own == name:  # else the stage's start, which the learner has opened
        folder = session.run.checkpoints(name) / step
        check_checkpoint(folder, "restore it, or name another step")
        policy.load(folder)
    return policy


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


PULLS = {"grpo": "advantage", "rft": "kept", "rce": "weight"}
"""Weight of each sample by method: its advantage; 1 if it is learned, else 0; its share in the
likelihood of its group."""


@dataclass(frozen=True)
class Bench:
    """The inputs that both sides of a replay share."""

    session: Session
    stored: StoredStep
    rows: Mapping[str, Row]
    """The rows of the step, by id."""
    contexts: Mapping[str, Context]
    steps: int
    """Steps of the whole stage."""

    @cached_property
    def kl_coef(self) -> float | None:
        """The KL coefficient that the step recorded, for one that adapts; None without a KL."""
        lines = History(self.session.run).lines(self.stored.stage)
        found = [line for line in lines if line["step"] == self.stored.step]
        return found[-1].get("kl_coef") if found else None

    @cached_property
    def weights(self) -> Weights:
        """The model that scores the step; loaded on first use."""
        stage = self.session.experiment.stage[self.stored.stage]
        return find_weights(self.session, self.stored.stage, stage, self.stored.step)


@dataclass(frozen=True)
class Side:
    """The step as one set of settings has it. Sequences run over the stored samples."""

    rewards: tuple[Reward, ...]
    """With the punishment of long completions, where that is set."""
    pulls: tuple[float | None, ...]
    """See `PULLS`; None for abstentions and for samples that would not have been drawn."""
    signal: SignalStats
    batch: Batch
    drawn: int
    """Samples up to the batch with which sampling would have ended."""
    passes: int
    """Times that the updates go over the samples."""
    short: bool
    """Whether these settings would have sampled more batches than are stored."""
    gradient: Mapping[str, Tensor] | None = None
    """Of the step's first pass, mean over its updates, by parameter."""
    gap: float | None = None
    """Mean absolute difference to the log-probs that the rollout recorded."""


def set_up(session: Session, stored: StoredStep) -> Bench:
    """Read the rows of a step and render their prompts again. Raises InputError where the data
    holds one of them no longer."""
    stage = session.experiment.stage[stored.stage]
    name = stage.data.partition(".")[0]
    given = (session.task, session.learner.encoder, session.run.root)
    made = prepare_set(session.experiment, name, *given)
    part = find_part({name: made}, stage.data)
    known = {row.id: row for row in part}
    for sample in stored.samples:
        if sample.row not in known:
            raise InputError(f"{stage.data} has no row {sample.row!r} any more")
    rows = {sample.row: known[sample.row] for sample in stored.samples}
    encoder = session.learner.encoder(stage)
    dialogue = partial(dialogue_of, session.task)
    contexts = {i: first_context(encoder, session.task, r, dialogue) for i, r in rows.items()}
    steps = steps_of(stage, find_order({name: made}, stage.data).count)
    return Bench(session, stored, rows, contexts, steps)


def score(bench: Bench, stage: SampledStage) -> list[Reward]:
    """The stored completions judged now by the reward of a stage, in order, nothing added."""
    judge = judge_of(bench, stage)
    pairs = [(bench.rows[each.row], completion_of(each)) for each in bench.stored.samples]
    with bench.session.reward_runner(judge, stage) as runner:
        return runner.score(pairs)


def judge_of(bench: Bench, stage: SampledStage) -> RewardFunction | RewardTable:
    """The reward of a stage that `choose_stage` has found to have one."""
    assert stage.reward is not None
    return reward_of(bench.session.task, stage.reward, bench.session.run.root)


def judge_side(
    bench: Bench, stage: SampledStage, rewards: Sequence[Reward], *, gradient: bool
) -> Side:
    """The stored completions as the stage's method weights them, with these rewards. Scores with
    the bench's weights only for a gradient, or if advantages depend on them."""
    method, groups = stored_method(bench, stage, rewards)
    policy, place = None, Place(step=bench.stored.step - 1, kl_coef=bench.kl_coef)
    if isinstance(method, Grpo):
        method = replace(method.at(place.step), schedules={})
    if gradient or (isinstance(method, Grpo) and method.reads_weights):
        largest = largest_of(stage, method, bench.session.learner.encoder(stage))
        policy = load_policy(bench.session, bench.stored.stage, stage, bench.weights, largest)
    if not gradient and isinstance(method, Grpo):
        # Advantages need neither the loss nor what the loss reads.
        method = replace(method, objective=GrpoObjective(), adaptive_kl=None)
    # Stored groups ask neither a policy for samples nor a recorder for rewards.
    batch = method.collect(cast(Policy, policy), place, cast(Journal, None))
    drawn = min(batch.consumed * stage.group, len(rewards))
    found = [episode for group in groups for episode in group]
    judged = [[e for e in g if value_of(e) is not None] for g in groups]
    short = False
    if isinstance(stage, GrpoStage) and stage.dynamic is not None:
        # Dynamic sampling would have gone on behind the last stored group.
        left = stage.dynamic.max_batches * stage.prompts > len(judged)
        short = left and len(groups_that_teach(judged)) < stage.prompts
    side = Side(
        rewards=tuple(e.reward or Reward(None) for e in found),
        pulls=tuple(pulls_of(stage, batch, found)),
        signal=signal_stats(*rewards_of(judged)),
        batch=batch,
        drawn=drawn,
        passes=stage.updates.epochs if isinstance(stage, GrpoStage) else 1,
        short=short,
    )
    if gradient and policy is not None and batch.updates:
        gap = accumulate_pass(policy, batch, side.passes, stage.micro_tokens)
        parameters = policy.module.named_parameters()
        found_at = {name: p.grad.cpu() for name, p in parameters if p.grad is not None}
        policy.module.zero_grad(set_to_none=True)
        return replace(side, gradient=found_at, gap=gap)
    return side


def stored_method(
    bench: Bench, stage: SampledStage, rewards: Sequence[Reward]
) -> tuple[Method, list[list[Episode]]]:
    """The stage's method over the stored groups, and these as it shapes them."""
    episodes = [
        episode_of(each, bench.contexts[each.row], reward)
        for each, reward in zip(bench.stored.samples, rewards, strict=True)
    ]
    size = stage.group
    visits = [replace(e, visit=int(e.id.rpartition("#")[2]) // size) for e in episodes]
    groups = [visits[i : i + size] for i in range(0, len(visits), size)]
    session = bench.session
    runner = session.reward_runner(judge_of(bench, stage), stage)
    given = session.stage_input(stage, list(bench.rows.values()), runner.score)
    if isinstance(stage, GrpoStage):
        made = build_grpo(stage, given, bench.steps).at(bench.stored.step - 1)
        groups = [made.shaped(group) for group in groups]
        prompts = StoredPrompts(groups, stage.prompts)
        most = min(made.settings.max_batches, prompts.batches)
        return replace(
            made, prompts=prompts, settings=replace(made.settings, max_batches=most)
        ), groups
    method = build_method(stage, given, bench.steps)
    prompts = StoredPrompts(groups, stage.prompts)
    if isinstance(method, Rft):
        return replace(method, prompts=prompts), groups
    assert isinstance(method, Rce)
    return replace(method, groups=prompts), groups


def shaped(bench: Bench, stage: SampledStage, rewards: Sequence[Reward]) -> list[Reward]:
    """The rewards with the punishment of long completions, where that is set."""
    _, groups = stored_method(bench, stage, rewards)
    return [e.reward or Reward(None) for group in groups for e in group]


def needs_weights(bench: Bench, stage: SampledStage) -> bool:
    """Whether the stage's advantages depend on its model's log-probs of the samples."""
    recorded = [Reward(None) for _ in bench.stored.samples]
    method, _ = stored_method(bench, stage, recorded)
    return isinstance(method, Grpo) and method.reads_weights


def pulls_of(stage: SampledStage, batch: Batch, episodes: Sequence[Episode]) -> list[float | None]:
    """The weight of each episode (`PULLS`); None if it cannot have one."""
    judged = [e for e in episodes if value_of(e) is not None]
    given = {f"{r.row_id}#{r.sample}": r.advantage for r in batch.samples}
    if isinstance(stage, RftStage):
        given = {e.id: float(cast(float, value_of(e)) >= stage.keep) for e in judged}
    if isinstance(stage, RceStage) and judged:
        group_E = torch.tensor(group_numbers(judged))
        shares_E = rce_shares(rewards_of([judged])[0], group_E, batch.metrics["tau"])
        given = dict(zip((e.id for e in judged), shares_E.tolist(), strict=True))
    return [given.get(e.id) if value_of(e) is not None else None for e in episodes]
