"""The methods that train by likelihood: SFT from stored episodes, RFT and RCE from rewarded groups.

SFT gives each trained token the same weight. RFT samples groups and does the same with the rewarded
episodes. RCE weighs all members of a group by softmax(reward / tau). All three use the objective
`NllObjective`.

`Distill` (GKD, arXiv 2306.13649) learns the student's completions, and stored answers, by their
divergence from a teacher's distributions: of the visits to prompts a share `lmbda` is answered by
the student. The teacher is asked about a step's completions before its update, which computes
nothing of it but its head.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from assay.data.episode import Episode, Turn, tokens_of
from assay.data.splits import RowOrder, visits
from assay.models.distilling import Teacher
from assay.models.lora import begin_masks
from assay.models.scoring import evaluating
from assay.rl.advantages import normalised_rewards
from assay.rl.aggregation import rce_weights, sft_weights
from assay.rl.objectives import DistillObjective, NllObjective
from assay.rl.packed import Packed, group_numbers, pack
from assay.rl.policy import Policy, SampleKey
from assay.rl.preference import Preference, Scoring, pair_weights, preference_factors
from assay.rollout.token_choice import key_state, uniforms
from assay.tasks.helper_model import NextWords
from assay.train.checkpoint import Batch, Journal, Place
from assay.train.grpo import score_all
from assay.train.pair_choice import Pair, with_signal
from assay.train.sampled_groups import (
    GroupStream,
    Job,
    PromptStream,
    best_of,
    is_stored,
    sample_records,
    sampling_metrics,
    value_of,
)
from assay.train.update import Schedule, micro_batches


@dataclass(frozen=True)
class Dpo:
    """See `checkpoint.Method`."""

    pairs: tuple[Pair, ...]
    batch: int
    """Pairs per optimizer update."""
    seed: int
    objective: Preference
    scoring: Scoring
    micro_tokens: int
    groups: int
    """Of the stage's rows."""
    telling: int
    """Groups that give a pair; the others' scores are equal, or abstained."""
    order: RowOrder | None = None
    """None: the pairs are shuffled anew each epoch."""

    def collect(self, policy: Policy, place: Place, journal: Journal) -> Batch:
        """The next `batch` pairs of the stream with the log-probs of the reference."""
        begin_masks(policy.module, self.seed, place.step)
        chosen = visits(self.pairs, self.seed, place.cursor, self.batch, self.order)
        packed = pair_batch([pair for _, pair in chosen], self.scoring)
        with policy.reference():
            inputs = policy, packed, self.micro_tokens
            reference_S, _ = score_all(*inputs, entropy=False, atom=self.objective.atom)
        metrics = {
            "pairs": float(len(chosen)),
            "tokens": float(packed.mask_S.sum()),
            "score_gap": sum(pair.gap for _, pair in chosen) / len(chosen),
            "signal_share": self.telling / max(self.groups, 1),
        }
        update = packed.with_tokens(reference_S=reference_S)
        return Batch((update,), self.objective, metrics, consumed=self.batch)


def pair_batch(pairs: Sequence[Pair], scoring: Scoring) -> Packed:
    """Pairs packed side by side, each a group of its own, with the weights of their mean."""
    sides = [
        (replace(episode, group=f"{n}", visit=0), factor)
        for n, pair in enumerate(pairs)
        for episode, factor in zip(
            (pair.chosen, pair.rejected), preference_factors(scoring, *pair.scores), strict=True
        )
    ]
    packed = pack([episode for episode, _ in sides])
    factor_E = torch.tensor([factor for _, factor in sides], dtype=torch.float64)
    packed = packed.with_tokens(preference_S=factor_E[packed.episode_S], behaviour_S=None)
    return packed.with_tokens(weight_S=pair_weights(packed))


NLL = NllObjective()


def likelihood_batch(episodes: Sequence[Episode], temperature: float = 1.0) -> Packed:
    """Episodes packed so that each trained token of the batch weighs the same."""
    packed = pack(episodes, temperature)
    return packed.with_tokens(weight_S=sft_weights(packed.mask_S, packed.episode_S))


@dataclass(frozen=True)
class Sft:
    """See `checkpoint.Method`."""

    episodes: Sequence[Episode]
    batch: int
    """Episodes per optimizer update."""
    seed: int
    order: RowOrder | None = None
    """None: the episodes, or packs, are shuffled anew each epoch."""
    packs: tuple[tuple[int, ...], ...] = ()
    """Places of episodes that are taken together; then `batch` counts packs."""

    def collect(self, policy: Policy, place: Place, journal: Journal) -> Batch:
        """The next `batch` episodes of the stream; their masks, where there is dropout."""
        begin_masks(policy.module, self.seed, place.step)
        units = self.packs or [(place,) for place in range(len(self.episodes))]
        stream = visits(units, self.seed, place.cursor, self.batch, self.order)
        chosen = [self.episodes[place] for _, unit in stream for place in unit]
        packed = likelihood_batch(chosen)
        metrics = {"rows": float(len(chosen)), "tokens": float(packed.mask_S.sum())}
        return Batch((packed,), NLL, metrics, consumed=self.batch)


@dataclass(frozen=True)
class Validation:
    """Held-out episodes whose loss is measured after some steps; nothing is chosen by it."""

    packed: Packed
    due: frozenset[int]
    """The steps after which it is measured."""
    micro_tokens: int
    groups: bool = False
    """Whether these are judged groups whose rewards differ, weighed by RCE with the raw rewards and
    tau 1 (Lever-Plus)."""

    def look(self, policy: Policy, step: int) -> dict[str, float]:
        """The metric of a step; none where no measurement is due."""
        return {"validation_loss": self.loss(policy)} if step in self.due else {}

    def loss(self, policy: Policy) -> float:
        """Mean negative log-likelihood per trained token, as a step's metric `nll`; of groups the
        mean of sum_b softmax(R)_b * -log p(b). Every dropout is off, no random number drawn."""
        tokens = total = weighed = 0.0
        with torch.no_grad(), evaluating(policy.module):
            for micro in micro_batches(policy, self.packed, NLL.atom, self.micro_tokens):
                nll = NLL(policy.score(micro), micro)
                tokens += float(nll.sums["tokens"])
                total += float(nll.sums["nll"])
                weighed += float(nll.parts["nll_loss"])
        return weighed if self.groups else total / tokens


@dataclass(frozen=True)
class Rft:
    """See `checkpoint.Method`."""

    prompts: GroupStream
    keep: float
    """Completions with at least this reward are learned."""
    batch: int
    """Kept completions per optimizer update."""
    temperature: float
    """At which likelihoods are taken; 1 is maximum likelihood."""
    decode: Callable[[Sequence[int]], str]

    def collect(self, policy: Policy, place: Place, journal: Journal) -> Batch:
        """One round of sampling and judging, or stored groups, and its batch."""
        return self.round_batch(self.prompts.next(policy, place, journal))

    def round_batch(self, groups: Sequence[Sequence[Episode]]) -> Batch:
        """The updates of judged groups; none where nothing was kept."""
        episodes = [e for group in groups for e in group]
        kept = [e for e in episodes if (v := value_of(e)) is not None and v >= self.keep]
        updates = tuple(
            self.weighed(kept[i : i + self.batch]) for i in range(0, len(kept), self.batch)
        )
        metrics = {
            **sampling_metrics(groups),
            "kept_share": len(kept) / max(len(episodes), 1),
            "tokens": float(sum(int(packed.mask_S.sum()) for packed in updates)),
        }
        records = [] if is_stored(groups) else sample_records(episodes, {}, self.decode)
        return Batch(updates, NLL, metrics, tuple(records), self.prompts.prompts)

    def weighed(self, kept: Sequence[Episode]) -> Packed:
        """One minibatch, in proportion to its completions."""
        packed = likelihood_batch(kept, self.temperature)
        return packed.with_tokens(weight_S=packed.weight_S * (len(kept) / self.batch))


@dataclass(frozen=True)
class Rce:
    """See `checkpoint.Method`."""

    groups: GroupStream
    tau: Schedule
    temperature: float
    """At which likelihoods are taken; 1 is maximum likelihood."""
    decode: Callable[[Sequence[int]], str]
    best: tuple[int, ...] = ()
    """See `best_of`."""
    normalise: bool = False
    """Standardise rewards inside their group before they become weights."""
    imitate: bool = False
    """Imitate all members of a group of equal rewards alike; else it is left out."""

    def collect(self, policy: Policy, place: Place, journal: Journal) -> Batch:
        """The next groups, sampled and judged or stored, and their batch."""
        groups = self.groups.next(policy, place, journal)
        return self.batch(groups, self.tau.at(place.step))

    def batch(self, groups: Sequence[Sequence[Episode]], tau: float) -> Batch:
        """One update over judged groups; abstained episodes take no part."""
        learned = self.learned(groups)
        settings = tau, self.temperature, self.normalise
        updates = (weighted_batch(learned, *settings),) if learned else ()
        metrics = {**sampling_metrics(groups), **signal_metrics(groups), "tau": tau}
        if self.best and (judged := [group for group in judged_members(groups) if group]):
            kept = sum(len(best_of(group, self.best, group[0].visit)) for group in judged)
            metrics["left_out_share"] = 1 - kept / sum(map(len, judged))
        everything = [e for group in groups for e in group]
        records = [] if is_stored(groups) else sample_records(everything, {}, self.decode)
        return Batch(updates, NLL, metrics, tuple(records), self.groups.prompts)

    def learned(self, groups: Sequence[Sequence[Episode]]) -> list[Episode]:
        """The episodes that are learned. Whether rewards are equal is asked of the whole group,
        before its best members are taken."""
        judged = judged_members(groups)
        kept = range(len(judged)) if self.imitate else sorted(with_signal(judged))
        members = [best_of(judged[g], self.best, judged[g][0].visit) for g in kept if judged[g]]
        return [e for group in members for e in group]


def judged_members(groups: Sequence[Sequence[Episode]]) -> list[list[Episode]]:
    """The groups without the episodes whose reward abstained."""
    return [[e for e in group if value_of(e) is not None] for group in groups]


def telling_batch(groups: Sequence[Sequence[Episode]]) -> Packed | None:
    """The groups whose rewards differ, packed with RCE's weights; None where there is none."""
    judged = judged_members(groups)
    kept = [e for g in sorted(with_signal(judged)) for e in judged[g]]
    return weighted_batch(kept, 1.0, 1.0) if kept else None


def signal_metrics(groups: Sequence[Sequence[Episode]]) -> dict[str, float]:
    """How many groups there are, and the share of them whose rewards differ."""
    share = len(with_signal(judged_members(groups))) / max(len(groups), 1)
    return {"groups": float(len(groups)), "signal_share": share}


def weighted_batch(
    episodes: Sequence[Episode], tau: float, temperature: float, normalise: bool = False
) -> Packed:
    """Judged episodes packed with RCE's weights."""
    packed = pack(episodes, temperature)
    group_E = torch.tensor(group_numbers(episodes))
    rewards_E = torch.tensor([value_of(e) for e in episodes], dtype=torch.float64)
    if normalise:
        rewards_E = normalised_rewards(rewards_E, group_E)
    weight_S = rce_weights(packed.mask_S, packed.episode_S, rewards_E, group_E, tau)
    return packed.with_tokens(weight_S=weight_S)


OBJECTIVE = DistillObjective()
UNJUDGED = ("reward_mean", "reward_std", "abstained_share")
"""Metrics that say nothing of completions that nothing judges."""


Tell = Callable[[Sequence[tuple[int, ...]], Sequence[tuple[int, ...]]], NextWords]
"""Asks a teacher about answers after their contexts, in order."""


@dataclass(frozen=True)
class Distill:
    """See `checkpoint.Method`."""

    prompts: PromptStream
    stored: Mapping[str, Episode]
    """The answer to each row; none is read where `lmbda` is 1."""
    lmbda: float
    """Share of the visits that the student answers itself."""
    teacher: Teacher
    """Without its head, which it tells with its answers."""
    tell: Tell
    decode: Callable[[Sequence[int]], str]
    temperature: Schedule
    """At which the student samples; 0 takes the likeliest words."""
    full_softmax: bool = True
    """See `GrpoSettings`."""
    judged: bool = True
    """Whether completions have rewards."""

    def collect(self, policy: Policy, place: Place, journal: Journal) -> Batch:
        """Sample where the student answers, take stored answers elsewhere, and ask the teacher."""
        jobs = self.prompts.jobs(place.cursor)
        own = [job for job in jobs if self.samples(job)]
        groups = self.prompts.groups_of(own, policy, place, journal)
        sampled = [episode for group in groups for episode in group]
        firsts = [job for job in jobs if job[1] % self.prompts.group == 0]
        taken = [self.stored[row.id] for row, n in firsts if not self.samples((row, n))]
        episodes = [e for e in [*sampled, *taken] if e.turns]
        packed = packed_batch(episodes, self.temperature.at(place.step) or 1.0)
        if not self.full_softmax:
            packed = packed.with_tokens(behaviour_S=None)
        metrics = {"rows": float(len(firsts)), "tokens": float(packed.mask_S.sum())}
        if sampled:
            metrics = {**sampling_metrics(groups), **metrics}
        if not self.judged:
            metrics = {n: v for n, v in metrics.items() if n not in UNJUDGED}
        updates = (with_teacher(packed, self.teacher, self.tell),) if packed.mask_S.any() else ()
        records = sample_records(sampled, {}, self.decode)
        return Batch(updates, OBJECTIVE, metrics, tuple(records), consumed=self.prompts.prompts)

    def samples(self, job: Job) -> bool:
        """Whether the student answers this visit to a row itself."""
        row, number = job
        key = SampleKey(self.prompts.seed, f"lmbda {row.id}", number // self.prompts.group)
        state_1 = np.array([key_state(key)], dtype=np.uint64)
        return float(uniforms(state_1, np.array([0]))[0]) < self.lmbda


def packed_batch(episodes: Sequence[Episode], temperature: float) -> Packed:
    """Episodes packed so that each trained token weighs the same, those of the student marked."""
    known = [replace(e, turns=tuple(map(with_logps, e.turns))) for e in episodes]
    packed = likelihood_batch(known, temperature)
    own = [turn.ended != "stored" for episode in episodes for turn in episode.turns]
    own_S = torch.tensor(own, dtype=torch.bool)[packed.turn_S]
    return packed.with_tokens(own_S=own_S & packed.mask_S)


def with_logps(turn: Turn) -> Turn:
    """The turn with some log-probs: of a stored one none are read."""
    return (
        turn if turn.behaviour_logps else replace(turn, behaviour_logps=(0.0,) * len(turn.actions))
    )


def with_teacher(packed: Packed, teacher: Teacher, tell: Tell) -> Packed:
    """The batch with what a teacher says of it."""
    contexts = [tokens_of(context) for context in packed.contexts]
    actions = packed.actions_S.split(packed.offsets_N1.diff().tolist())
    told = tell(contexts, [tuple(each.tolist()) for each in actions])
    return replace(
        packed,
        teacher=replace(teacher, words=told.words, size=told.size),
        teacher_SD=told.hidden_SD,
        told_SN=told.told_SN,
        told_logps_SN=told.logps_SN,
    )
