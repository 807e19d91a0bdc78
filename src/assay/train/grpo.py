"""GRPO and its variants: groups of completions, relative advantages, clipped updates.

Samples and judges until enough groups carry signal, then makes a batch: advantages and every
denominator over its groups. `pair_choice` chooses the groups; `rl.presets` defines an algorithm's
estimator, loss and aggregation.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, pstdev

import torch
from torch import Tensor

from assay.data.episode import Episode, Reward, tokens_of
from assay.errors import InputError, look_up
from assay.rl.advantages import (
    ADVANTAGES,
    AdvantageInput,
    AdvantageOptions,
    Estimator,
    normalised_rewards,
)
from assay.rl.aggregation import Dropped, constant_scale, token_weights
from assay.rl.kl import AdaptiveKl, kl_rewards
from assay.rl.objectives import Grpo as GrpoObjective
from assay.rl.objectives import high_entropy_mask
from assay.rl.packed import Packed, pack
from assay.rl.policy import Policy
from assay.rl.signal import signal_stats
from assay.rl.thought import Thinking, Thought, ends_open, find_thought
from assay.train.checkpoint import Batch, Journal, Place
from assay.train.pair_choice import (
    OVERLONG,
    Choice,
    Group,
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
from assay.train.update import Schedule, Spread, micro_batches


@dataclass(frozen=True, slots=True)
class GrpoSettings:
    """How one step's groups become updates."""

    advantage: str = "grpo"
    advantage_options: AdvantageOptions = AdvantageOptions()
    aggregation: str = "token_mean"
    keep_dropped_in_denominator: bool = True
    """Whether groups that are dropped and not replaced count in the averages."""
    drop: bool = True
    """Leave groups of equal rewards out before any forward."""
    max_batches: int = 1
    """Dynamic sampling: batches of prompts sampled at most for one step."""
    minibatches: int = 1
    epochs: int = 1
    mask_truncated: bool = False
    overlong_buffer: int = 0
    """Tokens before the limit over which length is punished; 0 for none."""
    overlong_factor: float = 1.0
    kl_in_reward: float = 0.0
    """Coefficient of the KL estimate that is subtracted from the reward at every token."""
    kl_reward_estimator: str = "k1"
    temperature: float = 1.0
    max_tokens: int = 256
    micro_tokens: int = 2048
    top_entropy_share: float = 1.0
    """Share of the step's tokens, those of highest entropy, at which the policy loss counts."""
    part_weights: Mapping[str, float] = field(default_factory=dict)
    """Parts of the reward and their weights, for estimators that look at them."""
    thinking: Thinking | None = None
    """How chains of thought are found, for estimators that look at them."""
    old_at_start: bool = False
    """Ratios are taken to the reference, the weights at the stage's start; else to the weights
    before the step's first update."""
    normalise: bool = False
    """Standardise rewards inside their group before the estimator does so again (as reported)."""
    full_softmax: bool = True
    """False: words were cut off, by top-p and the like (as reported). The rollout's log-probs are
    then of another distribution: they neither correct the loss nor measure the gap."""


@dataclass(frozen=True)
class Grpo:
    """See `checkpoint.Method`."""

    prompts: GroupStream
    settings: GrpoSettings
    objective: GrpoObjective
    decode: Callable[[Sequence[int]], str]
    schedules: Mapping[str, Schedule] = field(default_factory=dict)
    """Settings that move over the steps, of `SCHEDULED`."""
    adaptive_kl: AdaptiveKl | None = None
    """Moves the KL coefficient, from the objective's on."""

    def collect(self, policy: Policy, place: Place, journal: Journal) -> Batch:
        """Sample and judge one step, or take stored groups, and make its batch."""
        now = self.at(place.step)
        if self.adaptive_kl is not None and place.kl_coef is not None:
            now = SCHEDULED["kl_coef"](now, place.kl_coef)
        groups, batches = now.judged_groups(policy, place, journal)
        return now.batch(policy, groups, batches)

    def at(self, step: int) -> "Grpo":
        """The method with its scheduled settings as they are at `step`, counted from 0."""
        now = self
        for name, schedule in self.schedules.items():
            now = SCHEDULED[name](now, schedule.at(step))
        return now

    @property
    def estimator(self) -> Estimator:
        """The advantage estimator. Raises UnknownName."""
        return look_up(ADVANTAGES, self.settings.advantage, "advantage")

    @property
    def reads_weights(self) -> bool:
        """Whether advantages or the tokens that count depend on the model's scores."""
        settings = self.settings
        entropies = self.estimator.thought or settings.top_entropy_share < 1
        return entropies or settings.kl_in_reward != 0

    def batch(self, policy: Policy, sampled: Sequence[Group], batches: int) -> Batch:
        """The updates, metrics and records of judged groups; `batches` of prompts were sampled.

        Scores with `policy` where advantages or the objective need log-probs or entropies.
        """
        judged = [[e for e in group if value_of(e) is not None] for group in sampled]
        choice = choose(
            judged,
            self.prompts.prompts,
            drop=self.settings.drop,
            count=self.settings.keep_dropped_in_denominator,
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
            adaptive_kl=self.adaptive_kl,
        )

    def own_parts(self, sampled: Sequence[Group]) -> dict[str, float]:
        """What the parts that are set did in a step: groups sampled in place of those that teach
        nothing, the share of completions masked, and that of stored candidates left out."""
        found = curriculum_metrics(self.prompts, sampled)
        if self.settings.max_batches > 1:
            found["groups_replaced"] = float(len(sampled) - self.prompts.prompts)
        if self.settings.mask_truncated:
            found["masked_share"] = share(is_truncated(e) for group in sampled for e in group)
        return found

    def judged_groups(
        self, policy: Policy, place: Place, journal: Journal
    ) -> tuple[list[list[Episode]], int]:
        """Judged groups of one step, and how many batches of prompts were sampled for them.

        With dynamic sampling, batches are added until enough groups carry signal or the limit is
        reached; then the step goes on with what there is.
        """
        groups: list[list[Episode]] = []
        batches = 0
        while batches < self.settings.max_batches:
            here = replace(place, cursor=place.cursor + batches * self.prompts.prompts)
            batches += 1
            groups += [self.shaped(g) for g in self.prompts.next(policy, here, journal)]
            judged = [[e for e in group if value_of(e) is not None] for group in groups]
            if len(groups_that_teach(judged)) >= self.prompts.prompts:
                break
        return groups, batches

    def shaped(self, group: Group) -> list[Episode]:
        """The group with long completions punished and truncated ones masked, as set."""
        settings = self.settings
        shaped = []
        for episode in group:
            if settings.overlong_buffer:
                # The limit is a turn's, so of several turns the longest is looked at.
                length = max((len(turn.actions) for turn in episode.turns), default=0)
                punishment = overlong_punishment(
                    length, settings.max_tokens, settings.overlong_buffer, settings.overlong_factor
                )
                episode = replace(episode, reward=punished(episode.reward, punishment))
            if settings.mask_truncated and is_truncated(episode):
                silent = tuple(
                    replace(t, loss_mask=(False,) * len(t.actions)) for t in episode.turns
                )
                episode = replace(episode, turns=silent)
            shaped.append(episode)
        return shaped

    def updates(
        self, policy: Policy, judged: Sequence[Group], choice: Choice
    ) -> tuple[tuple[Packed, ...], Mapping[str, float], dict[str, float]]:
        """The optimizer updates of the step, the advantage of each episode, and metrics."""
        episodes = [e for g in choice.trained for e in judged[g]]
        packed = pack(episodes, self.settings.temperature)
        if not bool(packed.mask_S.any()):
            return (), {}, {}
        if not self.settings.full_softmax:
            packed = packed.with_tokens(behaviour_S=None)
        counted = [judged[g] for g in choice.counted]
        packed, advantages, metrics = self.weighed(policy, packed, episodes, counted)
        batches = self.minibatches(packed, judged, choice)
        return tuple(batches) * self.settings.epochs, advantages, metrics

    def weighed(
        self,
        policy: Policy,
        packed: Packed,
        episodes: Sequence[Episode],
        counted: Sequence[Group] = (),
    ) -> tuple[Packed, Mapping[str, float], dict[str, float]]:
        """The batch with old and reference log-probs where needed, and its advantages."""
        settings = self.settings
        estimator = self.estimator
        with_bonus = estimator.thought
        with_entropy = with_bonus or settings.top_entropy_share < 1
        entropy_S = None
        needs_old = self.objective.needs.old and not settings.old_at_start
        if needs_old or with_entropy or settings.kl_in_reward:
            old_S, entropy_S = score_all(policy, packed, settings.micro_tokens, with_entropy)
            packed = packed.with_tokens(old_S=old_S)
        if settings.top_entropy_share < 1:
            assert entropy_S is not None
            mask_S = high_entropy_mask(entropy_S, packed.mask_S, settings.top_entropy_share)
            packed = packed.with_tokens(policy_mask_S=mask_S)
        if self.objective.needs.reference or settings.kl_in_reward or settings.old_at_start:
            with policy.reference():
                reference_S, _ = score_all(policy, packed, settings.micro_tokens, False)
            packed = packed.with_tokens(reference_S=reference_S)
        if settings.old_at_start:
            # Told log-probs are of other weights than these.
            packed = packed.with_tokens(old_S=packed.reference_S, excess_S=None)
        thought = self.thought(packed) if with_bonus else None
        cot_mask_S = None if thought is None else self.with_bonus(packed, thought)
        batch = self.advantage_input(packed, episodes, entropy_S, cot_mask_S)
        advantage_S = estimator(beside(batch, counted), settings.advantage_options)
        metrics = estimator.diagnose(batch, settings.advantage_options)
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
        if self.settings.normalise:
            rewards_E = normalised_rewards(rewards_E, group_E)
        token_rewards_S = None
        if self.settings.kl_in_reward:
            assert packed.old_S is not None and packed.reference_S is not None
            penalty_S = kl_rewards(
                self.settings.kl_reward_estimator,
                packed.old_S,
                packed.reference_S,
                self.settings.kl_in_reward,
            )
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
        if not self.estimator.parts or not self.settings.part_weights:
            return {}
        weights = dict(self.settings.part_weights)
        if self.settings.overlong_buffer:
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
        thinking = self.settings.thinking
        if thinking is None:
            return None
        opened_N = torch.tensor([ends_open(tokens_of(c), thinking) for c in packed.contexts])
        return find_thought(packed.actions_S, packed.offsets_N1, opened_N, thinking)

    def with_bonus(self, packed: Packed, thought: Thought) -> Tensor:
        """Tokens (S) of thoughts that the estimator gives a bonus for."""
        if not self.estimator.closed:
            return thought.mask_S
        return thought.mask_S & ~thought.unclosed_N[packed.turn_S]

    def minibatches(self, packed: Packed, judged: Sequence[Group], choice: Choice) -> list[Packed]:
        """One packed batch per optimizer update, with the denominators of that update.

        Counted groups have their place among the others, so that updates are made of the same
        groups as if all were trained on.
        """
        parts = self.settings.minibatches
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
            self.settings.aggregation,
            batch.mask_S,
            batch.episode_S,
            scale=constant_scale(episodes, self.settings.max_tokens),
            # An episode without a trained token is no episode to a mean over sequences.
            dropped=Dropped(tokens=sum(tokens), episodes=sum(n > 0 for n in tokens)),
        )


def _with_clip(method: Grpo, **bounds: float) -> Grpo:
    objective = method.objective
    return replace(method, objective=replace(objective, clip=replace(objective.clip, **bounds)))


SCHEDULED: Mapping[str, Callable[[Grpo, float], Grpo]] = {
    "temperature": lambda method, value: replace(
        method, settings=replace(method.settings, temperature=value)
    ),
    "kl_coef": lambda method, value: replace(
        method, objective=replace(method.objective, kl_coef=value)
    ),
    "kl_reward_coef": lambda method, value: replace(
        method, settings=replace(method.settings, kl_in_reward=value)
    ),
    "clip_low": lambda method, value: _with_clip(method, low=value),
    "clip_high": lambda method, value: _with_clip(method, high=value),
}
"""How a scheduled setting is put into a method, by the metric that holds its value."""


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
