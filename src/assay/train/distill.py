"""On-policy distillation: the student's completions, and stored answers, as a teacher sees them.

GKD (arXiv 2306.13649): of the visits to prompts a share `lmbda` is answered by the student, the
others are stored answers; both are learned by the divergence from the teacher's distributions. The
teacher is asked about a step's completions before its update, which computes nothing of it but its
head. No reward is needed; one that is there is recorded.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from assay.data.episode import Episode, Turn, tokens_of
from assay.models.divergence import Teacher
from assay.rl.objectives import Distill as DistillObjective
from assay.rl.packed import Packed
from assay.rl.policy import Policy, SampleKey
from assay.rollout.token_choice import key_state, uniforms
from assay.tasks.helper_model import NextWords
from assay.train.checkpoint import Batch, Journal, Place
from assay.train.likelihood import likelihood_batch
from assay.train.sampled_groups import Job, Prompts, sample_records, sampling_metrics
from assay.train.update import Schedule

OBJECTIVE = DistillObjective()
UNJUDGED = ("reward_mean", "reward_std", "abstained_share")
"""Metrics that say nothing of completions that nothing judges."""


Tell = Callable[[Sequence[tuple[int, ...]], Sequence[tuple[int, ...]]], NextWords]
"""Asks a teacher about answers after their contexts, in order."""


@dataclass(frozen=True)
class Distill:
    """See `checkpoint.Method`."""

    prompts: Prompts
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
