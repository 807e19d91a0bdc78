"""RCE, reward-weighted cross-entropy: softmax(reward / tau) inside a group weighs the likelihood.

Groups are sampled from the policy, or stored candidates that carry their rewards. A group of
equal rewards imitates all its members alike.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from assay.data.episode import Episode
from assay.rl.aggregation import rce_tau, rce_weights
from assay.rl.packed import Packed, group_numbers, pack
from assay.rl.policy import Policy
from assay.train.likelihood import NLL
from assay.train.sampled_groups import GroupStream, sample_records, sampling_metrics, value_of
from assay.train.train_state import Batch, Journal, Place


@dataclass(frozen=True)
class Rce:
    """See `train_state.Method`."""

    groups: GroupStream
    steps: int
    tau_start: float
    tau_end: float
    temperature: float
    """At which likelihoods are taken; 1 is maximum likelihood."""
    decode: Callable[[Sequence[int]], str]

    def collect(self, policy: Policy, place: Place, journal: Journal) -> Batch:
        """The next groups, sampled and judged or stored, and their batch."""
        tau = rce_tau(place.step, self.steps, self.tau_start, self.tau_end)
        return self.batch(self.groups.next(policy, place, journal), tau)

    def batch(self, groups: Sequence[Sequence[Episode]], tau: float) -> Batch:
        """One update over judged groups; abstained episodes take no part."""
        judged = [e for group in groups for e in group if value_of(e) is not None]
        updates = (weighted_batch(judged, tau, self.temperature),) if judged else ()
        everything = [e for group in groups for e in group]
        metrics = {**sampling_metrics(groups), "tau": tau}
        sampled = all(t.ended != "stored" for e in everything for t in e.turns)
        records = sample_records(everything, {}, self.decode) if sampled else []
        return Batch(updates, NLL, metrics, tuple(records), self.groups.prompts)


def weighted_batch(episodes: Sequence[Episode], tau: float, temperature: float) -> Packed:
    """Judged episodes packed with RCE's weights."""
    packed = pack(episodes, temperature)
    group_E = torch.tensor(group_numbers(episodes))
    rewards_E = torch.tensor([value_of(e) for e in episodes], dtype=torch.float64)
    weight_S = rce_weights(packed.mask_S, packed.episode_S, rewards_E, group_E, tau)
    return packed.with_tokens(weight_S=weight_S)
