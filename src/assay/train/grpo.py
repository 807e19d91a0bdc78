"""GRPO and its variants: groups of completions, relative advantages, clipped updates.

Samples and judges until enough groups carry signal, then makes a batch: advantages and every
denominator over its groups. `pair_choice` chooses the groups; `rl.presets` defines an algorithm's
estimator, loss and aggregation.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, pstdev
from typing import Any, TypeVar

import torch
from torch import Tensor

from assay.data.episode import Episode, Reward, tokens_of
from assay.errors import InputError, look_up
from assay.experiment.base_table import SpecTable
from assay.experiment.stage_tables import GrpoStage
from assay.experiment.training_settings import ScheduleSpec
from assay.rl.advantages import (
    ADVANTAGES,
    AdvantageInput,
    Estimator,
    may_drop,
    normalised_rewards,
    signal_stats,
)
from assay.rl.aggregation import Dropped, Importance, constant_scale, token_weights
from assay.rl.kl import kl_rewards
from assay.rl.objectives import GrpoObjective, high_entropy_mask
from assay.rl.packed import Packed, pack
from assay.rl.policy import Policy
from assay.rl.presets import PRESETS, Preset
from assay.rl.thought import Thinking, Thought, ends_open, find_thought
from assay.train.checkpoint import Batch, Journal, Place
from assay.train.pair_choice import (
    OVERLONG,
    Group,
    GroupChoice,
    choose,
    groups_that_teach,
    overlong_punishment,
    rewards_of,
)
from assay.train.sampled_groups import (
    GroupStream,
    curriculum_metrics,
    is_stored,
    is_truncated,
    sample_records,
    sampling_metrics,
    share,
    value_of,
)
from assay.train.update import Schedule, Spread, constant, micro_batches


@dataclass(frozen=True)
class Grpo:
    """See `checkpoint.Method`."""

    prompts: GroupStream
    stage: GrpoStage
    """The table, with schedules that `at` takes the values of."""
    objective: GrpoObjective
    """See `objective_of`."""
    decode: Callable[[Sequence[int]], str]
    thinking: Thinking | None = None
    """How chains of thought are found, for estimators that look at them."""
    part_weights: Mapping[str, float] = field(default_factory=dict)
    """Parts of the reward and their weights, for estimators that look at them."""
    steps: int = 1
    """Of the stage."""

    def collect(self, policy: Policy, place: Place, journal: Journal) -> Batch:
        """Sample and judge one step, or take stored groups, and make its batch."""
        now = self.at(place.step)
        if self.stage.kl.adaptive is not None and place.kl_coef is not None:
            now = replace(now, objective=replace(now.objective, kl_coef=place.kl_coef))
        groups, batches = now.judged_groups(policy, place, journal)
        return now.batch(policy, groups, batches)

    def at(self, step: int) -> "Grpo":
        """The method with its scheduled settings as they are at `step`, counted from 0."""
        now = at_step(self.stage, step, self.steps)
        if now is self.stage:
            return self
        objective = objective_of(now)
        now = now.model_copy(update={"drop_without_signal": self.drop})
        return replace(self, stage=now, objective=objective)

    @property
    def algorithm(self) -> Preset:
        """See `algorithm_of`."""
        return algorithm_of(self.stage)

    @property
    def estimator(self) -> Estimator:
        """The advantage estimator. Raises InputError."""
        return look_up(ADVANTAGES, self.algorithm.advantage, "advantage")

    @property
    def drop(self) -> bool:
        """Whether groups of equal rewards are left out before any forward."""
        stage = self.stage
        if stage.drop_without_signal != "auto":
            return stage.drop_without_signal
        return may_drop(
            advantage=self.algorithm.advantage,
            kl_coef=most(stage.kl.coef),
            entropy_coef=stage.entropy_coef,
            lone=self.algorithm.advantage_options.lone,
        )

    @property
    def kl_in_reward(self) -> float:
        """Coefficient of the KL estimate that is subtracted from the reward at every token."""
        return first(self.stage.kl.coef) if self.stage.kl.where == "reward" else 0.0

    @property
    def reads_weights(self) -> bool:
        """Whether advantages or the tokens that count depend on the model's scores."""
        return self.reads_entropies or self.kl_in_reward != 0

    @property
    def reads_entropies(self) -> bool:
        """Whether advantages or the tokens that count depend on entropies."""
        return self.estimator.thought or self.stage.top_entropy_share not in (None, 1)

    def batch(self, policy: Policy, sampled: Sequence[Group], batches: int) -> Batch:
        """The updates, metrics and records of judged groups; `batches` of prompts were sampled.

        Scores with `policy` where advantages or the objective need log-probs or entropies.
        """
        judged = [[e for e in group if value_of(e) is not None] for group in sampled]
        choice = choose(
            judged,
            self.prompts.prompts,
            drop=self.drop,
            count=self.algorithm.keep_dropped_in_denominator,
        )
        updates, advantages, extra = self.updates(policy, judged, choice)
        rewards_E, group_E = rewards_of(judged)
        metrics = {
            **sampling_metrics(sampled),
            **({} if is_stored(sampled) else {"entropy": entropy_estimate(sampled)}),
            "signal_share": signal_stats(rewards_E, group_E).signal_share,
            "groups": float(len(sampled)),
            "groups_dropped": float(len(sampled) - len(choice.trained)),
            "sampled_batches": float(batches),
            **self.own_parts(sampled),
            **advantage_spread([advantages.get(e.id, 0.0) for g in judged for e in g]),
            **extra,
        }
        everything = [e for group in sampled for e in group]
        records = sample_records(everything, advantages, self.decode)
        records = [] if is_stored(sampled) else records
        return Batch(
            updates,
            self.objective,
            metrics,
            tuple(records),
            consumed=batches * self.prompts.prompts,
            adaptive_kl=self.stage.kl.adaptive,
        )

    def own_parts(self, sampled: Sequence[Group]) -> dict[str, float]:
        """What the parts that are set did in a step: groups sampled in place of those that teach
        nothing, the share of completions masked, and that of stored candidates left out."""
        metrics = curriculum_metrics(self.prompts, sampled)
        if self.most_batches > 1:
            metrics["groups_replaced"] = float(len(sampled) - self.prompts.prompts)
        if self.stage.mask_truncated:
            metrics["masked_share"] = share(is_truncated(e) for group in sampled for e in group)
        return metrics

    @property
    def most_batches(self) -> int:
        """Batches of prompts that are sampled at most for one step."""
        return self.stage.dynamic.max_batches if self.stage.dynamic else 1

    def judged_groups(
        self, policy: Policy, place: Place, journal: Journal
    ) -> tuple[list[list[Episode]], int]:
        """Judged groups of one step, and how many batches of prompts were sampled for them.

        With dynamic sampling, batches are added until enough groups carry signal or the limit is
        reached; then the step goes on with what there is.
        """
        groups: list[list[Episode]] = []
        batches = 0
        while batches < self.most_batches:
            here = replace(place, cursor=place.cursor + batches * self.prompts.prompts)
            batches += 1
            groups += [self.shaped(g) for g in self.prompts.next(policy, here, journal)]
            judged = [[e for e in group if value_of(e) is not None] for group in groups]
            if len(groups_that_teach(judged)) >= self.prompts.prompts:
                break
        return groups, batches

    def shaped(self, group: Group) -> list[Episode]:
        """The group with long completions punished and truncated ones masked, as set."""
        overlong, shaped = self.stage.overlong, []
        for episode in group:
            if overlong is not None:
                # The limit is a turn's, so of several turns the longest is looked at.
                length = max((len(turn.actions) for turn in episode.turns), default=0)
                limit = self.stage.sampling.max_tokens
                punishment = overlong_punishment(length, limit, overlong.buffer, overlong.factor)
                episode = replace(episode, reward=punished(episode.reward, punishment))
            if self.stage.mask_truncated and is_truncated(episode):
                silent = tuple(
                    replace(t, loss_mask=(False,) * len(t.actions)) for t in episode.turns
                )
                episode = replace(episode, turns=silent)
            shaped.append(episode)
        return shaped

    def updates(
        self, policy: Policy, judged: Sequence[Group], choice: GroupChoice
    ) -> tuple[tuple[Packed, ...], Mapping[str, float], dict[str, float]]:
        """The optimizer updates of the step, the advantage of each episode, and metrics."""
        episodes = [e for g in choice.trained for e in judged[g]]
        packed = pack(episodes, first(self.stage.sampling.temperature))
        if not bool(packed.mask_S.any()):
            return (), {}, {}
        if not self.stage.sampling.is_full:
            # Told log-probs are of another distribution: they neither correct nor measure.
            packed = packed.with_tokens(behaviour_S=None)
        counted = [judged[g] for g in choice.counted]
        packed, advantages, metrics = self.weighed(policy, packed, episodes, counted)
        batches = self.minibatches(packed, judged, choice)
        return tuple(batches) * self.stage.updates.epochs, advantages, metrics

    def weighed(
        self,
        policy: Policy,
        packed: Packed,
        episodes: Sequence[Episode],
        counted: Sequence[Group] = (),
    ) -> tuple[Packed, Mapping[str, float], dict[str, float]]:
        """The batch with old and reference log-probs where needed, and its advantages."""
        stage, estimator, entropy_S = self.stage, self.estimator, None
        options = self.algorithm.advantage_options
        # Of stored candidates ratios are taken to the weights at the stage's start.
        needs_old = self.objective.needs.old and not stage.stored
        if needs_old or self.reads_weights:
            old_S, entropy_S = score_all(policy, packed, stage.micro_tokens, self.reads_entropies)
            packed = packed.with_tokens(old_S=old_S)
        if (share_ := stage.top_entropy_share or 1) < 1:
            assert entropy_S is not None
            mask_S = high_entropy_mask(entropy_S, packed.mask_S, share_)
            packed = packed.with_tokens(policy_mask_S=mask_S)
        if self.objective.needs.reference or self.kl_in_reward or stage.stored:
            with policy.reference():
                reference_S, _ = score_all(policy, packed, stage.micro_tokens, False)
            packed = packed.with_tokens(reference_S=reference_S)
        if stage.stored:
            # Told log-probs are of other weights than these.
            packed = packed.with_tokens(old_S=packed.reference_S, excess_S=None)
        thought = self.thought(packed) if estimator.thought else None
        cot_mask_S = None if thought is None else self.with_bonus(packed, thought)
        batch = self.advantage_input(packed, episodes, entropy_S, cot_mask_S)
        advantage_S = estimator(beside(batch, counted), options)
        metrics = estimator.diagnose(batch, options)
        if packed.policy_mask_S is not None:
            heard = packed.policy_mask_S.sum() / packed.mask_S.sum()
            metrics["entropy_cut_share"] = 1 - heard.item()
        if thought is not None:
            unclosed = packed.episode_N[thought.unclosed_N].unique()
            metrics["share_cot_unclosed"] = len(unclosed) / len(episodes)
        return (
            packed.with_tokens(advantage_S=advantage_S),
            by_episode(batch, advantage_S, episodes),
            metrics,
        )

    def advantage_input(
        self,
        packed: Packed,
        episodes: Sequence[Episode],
        entropy_S: Tensor | None,
        cot_mask_S: Tensor | None,
    ) -> AdvantageInput:
        """What the estimator reads."""
        rewards_E, _ = rewards_of([episodes])
        group_E = torch.zeros(len(episodes), dtype=torch.long)
        group_E[packed.episode_N] = packed.group_N
        if self.stage.rewards == "normalised":
            rewards_E = normalised_rewards(rewards_E, group_E)
        token_rewards_S = None
        if self.kl_in_reward:
            assert packed.old_S is not None and packed.reference_S is not None
            logps = packed.old_S, packed.reference_S
            penalty_S = kl_rewards(self.stage.kl.estimator, *logps, self.kl_in_reward)
            token_rewards_S = torch.where(packed.mask_S, penalty_S, 0.0)
        return AdvantageInput(
            rewards_E=rewards_E,
            group_E=group_E,
            episode_S=packed.episode_S,
            mask_S=packed.mask_S,
            token_rewards_S=token_rewards_S,
            entropy_S=entropy_S,
            cot_mask_S=cot_mask_S,
            **self.reward_parts(episodes),
        )

    def reward_parts(self, episodes: Sequence[Episode]) -> dict[str, Tensor]:
        """`parts_EK` and `part_weights_K`, where the estimator reads them.

        Raises InputError where a reward lacks a part.
        """
        if not self.estimator.parts or not self.part_weights:
            return {}
        weights = dict(self.part_weights)
        if self.stage.overlong is not None:
            weights[OVERLONG] = 1.0
        rows = []
        for episode in episodes:
            parts = episode.reward.parts if episode.reward else {}
            missing = [name for name in weights if name not in parts]
            if missing:
                problem = f"the reward of {episode.id} has no part {missing[0]!r}"
                raise InputError(problem, fix="give every reward all parts")
            rows.append([parts[name] for name in weights])
        return {
            "parts_EK": torch.tensor(rows, dtype=torch.float64),
            "part_weights_K": torch.tensor(list(weights.values()), dtype=torch.float64),
        }

    def thought(self, packed: Packed) -> Thought | None:
        """Chain-of-thought tokens; a context that ends inside an open one starts with thought."""
        thinking = self.thinking
        if thinking is None:
            return None
        opened_N = torch.tensor([ends_open(tokens_of(c), thinking) for c in packed.contexts])
        return find_thought(packed.actions_S, packed.offsets_N1, opened_N, thinking)

    def with_bonus(self, packed: Packed, thought: Thought) -> Tensor:
        """Tokens (S) of thoughts that the estimator gives a bonus for."""
        if not self.estimator.closed:
            return thought.mask_S
        return thought.mask_S & ~thought.unclosed_N[packed.turn_S]

    def minibatches(
        self, packed: Packed, judged: Sequence[Group], choice: GroupChoice
    ) -> list[Packed]:
        """One packed batch per optimizer update, with the denominators of that update.

        Counted groups have their place among the others, so that updates are made of the same
        groups as if all were trained on.
        """
        parts = self.stage.updates.minibatches
        number = {g: n for n, g in enumerate(choice.trained)}
        batches = []
        for part in range(parts):
            groups = choice.step[part::parts]
            here = {number[g] for g in groups if g in number}
            turns = [n for n, g in enumerate(packed.group_N.tolist()) if g in here]
            if not turns:
                continue
            batch = packed.take(turns)
            counted = [judged[g] for g in groups if g not in number]
            batches.append(batch.with_tokens(weight_S=self.weights(batch, counted)))
        return batches

    def weights(self, batch: Packed, counted: Sequence[Group]) -> Tensor:
        """Weights of one update's tokens, averaged over its own and the counted groups'."""
        gone = [e for group in counted for e in group]
        tokens = [sum(sum(turn.loss_mask) for turn in e.turns) for e in gone]
        episodes = len(batch.episode_N.unique()) + len(gone)
        return token_weights(
            self.algorithm.aggregation,
            batch.mask_S,
            batch.episode_S,
            scale=constant_scale(episodes, self.stage.sampling.max_tokens),
            # An episode without a trained token is no episode to a mean over sequences.
            dropped=Dropped(tokens=sum(tokens), episodes=sum(n > 0 for n in tokens)),
        )


def algorithm_of(stage: GrpoStage) -> Preset:
    """The stage's preset with the stage's own in its place, schedules as they start. Raises
    InputError."""
    preset = look_up(PRESETS, stage.algorithm, "algorithm")
    table = stage.advantage_options
    options = table.model_dump(exclude_none=True) if table else {}
    bounds = {name: first(value) for name, value in stage.clip if value is not None}
    own = {name: getattr(stage, name) for name in ("advantage", "loss", "aggregation")}
    return replace(
        preset,
        advantage_options=replace(preset.advantage_options, **options),
        clip=replace(preset.clip, **bounds),
        **{name: value for name, value in own.items() if value is not None},
    )


def objective_of(stage: GrpoStage) -> GrpoObjective:
    """The objective of a stage at its first step."""
    algorithm = algorithm_of(stage)
    correction = stage.importance.model_dump() if stage.importance else {}
    return GrpoObjective(
        loss=algorithm.loss,
        clip=algorithm.clip,
        kl_coef=first(stage.kl.coef) if stage.kl.where == "loss" else 0.0,
        kl_estimator=stage.kl.estimator,
        entropy_coef=stage.entropy_coef,
        importance=Importance(**correction),
        several_updates=stage.updates.minibatches * stage.updates.epochs > 1 or stage.stored,
    )


Settings = TypeVar("Settings", bound=SpecTable)


def at_step(table: Settings, step: int, steps: int) -> Settings:
    """The table with the schedules in it as they are at a step of so many."""
    changes: dict[str, Any] = {}
    for key, value in table:
        if isinstance(value, ScheduleSpec):
            changes[key] = schedule_of(value, steps).at(step)
        elif isinstance(value, SpecTable) and (inner := at_step(value, step, steps)) is not value:
            changes[key] = inner
    return table.model_copy(update=changes) if changes else table


def schedule_of(value: float | ScheduleSpec, steps: int) -> Schedule:
    """A number or a schedule of the stage's table, over the `steps` of the stage."""
    if not isinstance(value, ScheduleSpec):
        return constant(value)
    end = value.start if value.end is None else value.end
    return Schedule(value.start, end, value.steps or steps, value.shape or "linear")


def most(value: float | ScheduleSpec) -> float:
    """A setting at its greatest."""
    return schedule_of(value, 1).most


def first(value: float | ScheduleSpec) -> float:
    """A setting at the first step."""
    return value.start if isinstance(value, ScheduleSpec) else value


def beside(batch: AdvantageInput, counted: Sequence[Group]) -> AdvantageInput:
    """The batch with the rewards of the counted groups added, without their tokens: an estimator
    may read statistics over all groups of a step."""
    rewards_E, group_E = rewards_of(counted)
    first = int(batch.group_E.max()) + 1
    return replace(
        batch,
        rewards_E=torch.cat([batch.rewards_E, rewards_E]),
        group_E=torch.cat([batch.group_E, group_E + first]),
    )


def punished(reward: Reward | None, punishment: float) -> Reward | None:
    """The reward with a length punishment added as a part of its own; abstentions stay.

    So does a reward that has the part already: a journal keeps rewards as they were shaped.
    """
    if reward is None or reward.value is None or OVERLONG in reward.parts:
        return reward
    parts = {**reward.parts, OVERLONG: punishment}
    return replace(reward, value=reward.value + punishment, parts=parts)


def score_all(
    policy: Policy, packed: Packed, budget: int, entropy: bool, atom: str = "turn"
) -> tuple[Tensor, Tensor | None]:
    """Log-probs (S) and entropies (S) of the whole batch, without gradient, in its own order.

    The turns of an atom stand side by side in the batch.
    """
    if isinstance(policy, Spread):
        return policy.score_all(packed, budget, entropy, atom)
    return score_each(policy, micro_batches(policy, packed, atom, budget), entropy)


def score_each(
    policy: Policy, micros: Iterable[Packed], entropy: bool
) -> tuple[Tensor, Tensor | None]:
    """Log-probs (S) and entropies (S) of micro-batches, one after the other, without gradient."""
    logps, entropies = [torch.zeros(0)], [torch.zeros(0)]
    with torch.no_grad():
        for micro in micros:
            scores = policy.score(micro, entropy=entropy)
            logps.append(scores.logps_S)
            if scores.entropy_S is not None:
                entropies.append(scores.entropy_S)
    return torch.cat(logps), torch.cat(entropies) if entropy else None


def by_episode(
    batch: AdvantageInput, advantage_S: Tensor, episodes: Sequence[Episode]
) -> dict[str, float]:
    """The mean advantage over each episode's trained tokens, by episode id."""
    total_E = torch.zeros(len(episodes)).index_add(0, batch.episode_S, advantage_S)
    count_E = torch.zeros(len(episodes)).index_add(0, batch.episode_S, batch.mask_S.float())
    means = (total_E / count_E.clamp(min=1)).tolist()
    return {episode.id: value for episode, value in zip(episodes, means, strict=True)}


def advantage_spread(advantages: Sequence[float]) -> dict[str, float]:
    """Mean, deviation (population), least and greatest advantage of the judged completions, 0 where
    their group was left out; nothing where there is none."""
    if not advantages:
        return {}
    return {
        "advantage_mean": fmean(advantages),
        "advantage_std": pstdev(advantages),
        "advantage_min": min(advantages),
        "advantage_max": max(advantages),
    }


def entropy_estimate(groups: Sequence[Group]) -> float:
    """Mean of -log p over the sampled tokens: an unbiased estimate of the sampling entropy."""
    logps = [x for group in groups for e in group for t in e.turns for x in t.behaviour_logps or ()]
    return -sum(logps) / len(logps) if logps else 0.0
