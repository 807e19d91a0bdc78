"""One side of a replay: a stored step, judged and weighted under one set of settings.

The training methods do the work; they get the stored groups in place of a sampler.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import cast

import torch
from torch import Tensor

from assay.data.episode import Context, Episode, Reward
from assay.data.row import Row
from assay.experiment.stage_tables import GrpoStage, RceStage, RftStage, StageSpec, steps_of
from assay.lab.replay.step import (
    SampledStage,
    StoredStep,
    Weights,
    accumulate_pass,
    completion_of,
    episode_of,
    find_weights,
    in_groups,
    load_policy,
    take_gradient,
)
from assay.lab.setup.learner import first_context
from assay.lab.setup.prepare import find_part, prepare_set, rows_per_epoch
from assay.lab.setup.reward_parts import reward_of
from assay.lab.setup.session import Session
from assay.lab.setup.stage_methods import build_grpo, build_method, largest_of
from assay.rl.aggregation import rce_shares
from assay.rl.objectives import Grpo as GrpoObjective
from assay.rl.packed import group_numbers
from assay.rl.policy import Policy
from assay.rl.signal import SignalStats, signal_stats
from assay.runs.history import History, SampleNotFound
from assay.tasks.rendered_dialogue import dialogue_of
from assay.tasks.reward_table import RewardTable
from assay.tasks.task import RewardFunction
from assay.train.group_choice import groups_that_teach, rewards_of
from assay.train.grpo import Grpo
from assay.train.likelihood import Rce, Rft
from assay.train.sampled_groups import StoredPrompts, value_of
from assay.train.train_state import Batch, Journal, Method, Place

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
    """Read the rows of a step and render their prompts again.

    Raises SampleNotFound where the data holds one of them no longer.
    """
    stage = session.experiment.stage[stored.stage]
    name = stage.data.partition(".")[0]
    given = (session.task, session.learner.encoder, session.run.root)
    made = prepare_set(session.experiment, name, *given)
    part = find_part({name: made}, stage.data)
    known = {row.id: row for row in part}
    for sample in stored.samples:
        if sample.row not in known:
            raise SampleNotFound(f"{stage.data} has no row {sample.row!r} any more")
    rows = {sample.row: known[sample.row] for sample in stored.samples}
    encoder = session.learner.encoder(stage)
    dialogue = partial(dialogue_of, session.task)
    contexts = {i: first_context(encoder, session.task, r, dialogue) for i, r in rows.items()}
    steps = steps_of(stage, rows_per_epoch({name: made}, stage.data))
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
    """The stored completions as the stage's method weights them, with these rewards.

    Scores with the bench's weights only for a gradient, or if advantages depend on them.
    """
    method, groups = stored_method(bench, stage, rewards)
    policy, place = None, Place(step=bench.stored.step - 1, kl_coef=bench.kl_coef)
    if isinstance(method, Grpo):
        method = replace(method.at(place.step), schedules={})
    if gradient or reads_weights(method):
        largest = largest_of(stage, method, bench.session.learner.encoder(stage))
        policy = load_policy(bench.session, bench.stored.stage, stage, bench.weights, largest)
    if not gradient and isinstance(method, Grpo):
        # Advantages need neither the loss nor what the loss reads.
        method = replace(method, objective=GrpoObjective(), adaptive_kl=None)
    # Stored groups ask neither a policy for samples nor a recorder for rewards.
    batch = method.collect(cast(Policy, policy), place, cast(Journal, None))
    drawn = min(batch.consumed * stage.group, len(rewards))
    found = episodes_of(groups)
    side = Side(
        rewards=tuple(e.reward or Reward(None) for e in found),
        pulls=tuple(pulls_of(stage, batch, found)),
        signal=signal_of(groups),
        batch=batch,
        drawn=drawn,
        passes=passes_of(stage),
        short=runs_short(stage, groups),
    )
    if gradient and policy is not None and batch.updates:
        gap = accumulate_pass(policy, batch, side.passes, stage.micro_tokens)
        return replace(side, gradient=take_gradient(policy), gap=gap)
    return side


def stored_method(
    bench: Bench, stage: SampledStage, rewards: Sequence[Reward]
) -> tuple[Method, list[list[Episode]]]:
    """The stage's method over the stored groups, and these as it shapes them."""
    episodes = [
        episode_of(each, bench.contexts[each.row], reward)
        for each, reward in zip(bench.stored.samples, rewards, strict=True)
    ]
    groups = in_groups(episodes, stage.group)
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


def passes_of(stage: SampledStage) -> int:
    """Times that the updates of a step go over its samples."""
    return stage.updates.epochs if isinstance(stage, GrpoStage) else 1


def shaped(bench: Bench, stage: SampledStage, rewards: Sequence[Reward]) -> list[Reward]:
    """The rewards with the punishment of long completions, where that is set."""
    _, groups = stored_method(bench, stage, rewards)
    return [e.reward or Reward(None) for e in episodes_of(groups)]


def needs_weights(bench: Bench, stage: SampledStage) -> bool:
    """Whether the stage's advantages cannot be known without its model."""
    recorded = [Reward(None) for _ in bench.stored.samples]
    return reads_weights(stored_method(bench, stage, recorded)[0])


def reads_weights(method: Method) -> bool:
    """Whether advantages depend on the model's log-probs of the samples."""
    return isinstance(method, Grpo) and method.reads_weights


def runs_short(stage: StageSpec, groups: Sequence[Sequence[Episode]]) -> bool:
    """Whether dynamic sampling would have gone on behind the last stored group."""
    if not isinstance(stage, GrpoStage) or stage.dynamic is None:
        return False
    left = stage.dynamic.max_batches * stage.prompts > len(groups)
    judged = [[e for e in g if value_of(e) is not None] for g in groups]
    return left and len(groups_that_teach(judged)) < stage.prompts


def signal_of(groups: Sequence[Sequence[Episode]]) -> SignalStats:
    """Share of the groups with a training signal, abstentions left out."""
    return signal_stats(*rewards_of([[e for e in g if value_of(e) is not None] for g in groups]))


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


def episodes_of(groups: Sequence[Sequence[Episode]]) -> list[Episode]:
    """All episodes, in order."""
    return [episode for group in groups for episode in group]
