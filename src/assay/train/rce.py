"""RCE, reward-weighted cross-entropy: softmax(reward / tau) inside a group weighs the likelihood.

Groups are sampled from the policy, or stored candidates that carry their rewards. A group of
equal rewards imitates all its members alike.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from assay.data.episode import Episode
from assay.rl.aggregation import rce_tau, rce_weights
from assay.rl.objectives import Nll
from assay.rl.packed import Packed, group_numbers, pack
from assay.rl.policy import Policy
from assay.train.row_order import visits
from assay.train.sampled_groups import sample_records, sampling_metrics, value_of
from assay.train.train_state import Batch, Recorder, TrainState


class Groups(Protocol):
    """Where groups come from: `sampled_groups.Prompts`, or `StoredGroups`."""

    def next(self, policy: Policy, state: TrainState, recorder: Recorder) -> list[list[Episode]]:
        """The next groups of judged episodes; moves `state.cursor`."""
        ...


@dataclass(frozen=True)
class StoredGroups:
    """Candidates collected earlier, each group with its rewards."""

    groups: tuple[tuple[Episode, ...], ...]
    per_step: int
    seed: int

    def next(self, policy: Policy, state: TrainState, recorder: Recorder) -> list[list[Episode]]:
        """The next `per_step` groups of the shuffled stream."""
        chosen = visits(self.groups, self.seed, state.cursor, self.per_step)
        state.cursor += self.per_step
        return [[replace(e, visit=epoch) for e in group] for epoch, group in chosen]


@dataclass(frozen=True)
class Rce:
    """See `train_state.Method`."""

    groups: Groups
    steps: int
    tau_start: float
    tau_end: float
    temperature: float
    """At which likelihoods are taken; 1 is maximum likelihood."""
    decode: Callable[[Sequence[int]], str]

    def collect(self, policy: Policy, state: TrainState, recorder: Recorder) -> Batch:
        """One update over the next groups; abstained episodes take no part."""
        groups = self.groups.next(policy, state, recorder)
        tau = rce_tau(state.step, self.steps, self.tau_start, self.tau_end)
        judged = [e for group in groups for e in group if value_of(e) is not None]
        updates = (weighted_batch(judged, tau, self.temperature),) if judged else ()
        everything = [e for group in groups for e in group]
        metrics = {**sampling_metrics(groups), "tau": tau}
        sampled = all(t.ended != "stored" for e in everything for t in e.turns)
        records = sample_records(everything, {}, self.decode) if sampled else []
        return Batch(updates, Nll(), metrics, tuple(records))


def weighted_batch(episodes: Sequence[Episode], tau: float, temperature: float) -> Packed:
    """Judged episodes packed with RCE's weights."""
    packed = pack(episodes, temperature)
    group_E = torch.tensor(group_numbers(episodes))
    rewards_E = torch.tensor([value_of(e) for e in episodes], dtype=torch.float64)
    weight_S = rce_weights(packed.mask_S, packed.episode_S, rewards_E, group_E, tau)
    return packed.with_tokens(weight_S=weight_S)
