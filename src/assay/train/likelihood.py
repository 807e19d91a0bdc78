"""The methods that train by likelihood: SFT from stored episodes, RFT and RCE from rewarded groups.

SFT gives each trained token the same weight. RFT samples groups and does the same with the rewarded
episodes. RCE weighs all members of a group by softmax(reward / tau). All three use the objective
`Nll`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from assay.data.episode import Episode
from assay.data.row_order import RowOrder, visits
from assay.models.lora import begin_masks
from assay.models.scoring import evaluating
from assay.rl.aggregation import rce_weights, sft_weights
from assay.rl.objectives import Nll
from assay.rl.packed import Packed, group_numbers, pack
from assay.rl.policy import Policy
from assay.train.sampled_groups import (
    GroupStream,
    sample_records,
    sampling_metrics,
    value_of,
)
from assay.train.schedules import Schedule
from assay.train.train_state import Batch, Journal, Place
from assay.train.update import micro_batches

NLL = Nll()


def likelihood_batch(episodes: Sequence[Episode], temperature: float = 1.0) -> Packed:
    """Episodes packed so that each trained token of the batch weighs the same."""
    packed = pack(episodes, temperature)
    return packed.with_tokens(weight_S=sft_weights(packed.mask_S, packed.episode_S))


@dataclass(frozen=True)
class Sft:
    """See `train_state.Method`."""

    episodes: tuple[Episode, ...]
    batch: int
    """Episodes per optimizer update."""
    seed: int
    order: RowOrder | None = None
    """None: the episodes are shuffled anew each epoch."""

    def collect(self, policy: Policy, place: Place, journal: Journal) -> Batch:
        """The next `batch` episodes of the stream; their masks, where there is dropout."""
        begin_masks(policy.module, self.seed, place.step)
        stream = visits(self.episodes, self.seed, place.cursor, self.batch, self.order)
        chosen = [episode for _, episode in stream]
        packed = likelihood_batch(chosen)
        metrics = {"rows": float(len(chosen)), "tokens": float(packed.mask_S.sum())}
        return Batch((packed,), NLL, metrics, consumed=self.batch)


@dataclass(frozen=True)
class Validation:
    """Held-out episodes whose loss is measured after some steps; nothing is chosen by it."""

    episodes: tuple[Episode, ...]
    due: frozenset[int]
    """The steps after which it is measured."""
    micro_tokens: int

    def look(self, policy: Policy, step: int) -> dict[str, float]:
        """The metric of a step; none where no measurement is due."""
        return {"validation_loss": self.loss(policy)} if step in self.due else {}

    def loss(self, policy: Policy) -> float:
        """Mean negative log-likelihood per trained token, as a step's metric `nll`, but with every
        dropout off. Draws no random number."""
        packed = likelihood_batch(self.episodes)
        tokens = total = 0.0
        with torch.no_grad(), evaluating(policy.module):
            for micro in micro_batches(policy, packed, NLL.atom, self.micro_tokens):
                sums = NLL(policy.score(micro), micro).sums
                tokens += float(sums["tokens"])
                total += float(sums["nll"])
        return total / tokens


@dataclass(frozen=True)
class Rft:
    """See `train_state.Method`."""

    prompts: GroupStream
    keep: float
    """Completions with at least this reward are learned."""
    batch: int
    """Kept completions per optimizer update."""
    temperature: float
    """At which likelihoods are taken; 1 is maximum likelihood."""
    decode: Callable[[Sequence[int]], str]

    def collect(self, policy: Policy, place: Place, journal: Journal) -> Batch:
        """One round of sampling and judging, and its batch."""
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
            "kept_share": len(kept) / len(episodes),
            "tokens": float(sum(int(packed.mask_S.sum()) for packed in updates)),
        }
        records = sample_records(episodes, {}, self.decode)
        return Batch(updates, NLL, metrics, tuple(records), self.prompts.prompts)

    def weighed(self, kept: Sequence[Episode]) -> Packed:
        """One minibatch, in proportion to its completions."""
        packed = likelihood_batch(kept, self.temperature)
        return packed.with_tokens(weight_S=packed.weight_S * (len(kept) / self.batch))


@dataclass(frozen=True)
class Rce:
    """See `train_state.Method`."""

    groups: GroupStream
    tau: Schedule
    temperature: float
    """At which likelihoods are taken; 1 is maximum likelihood."""
    decode: Callable[[Sequence[int]], str]

    def collect(self, policy: Policy, place: Place, journal: Journal) -> Batch:
        """The next groups, sampled and judged or stored, and their batch."""
        groups = self.groups.next(policy, place, journal)
        return self.batch(groups, self.tau.at(place.step))

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
