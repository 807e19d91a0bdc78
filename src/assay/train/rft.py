"""Rejection fine-tuning: sample groups, keep what was rewarded, learn its likelihood.

The last minibatch of a round, which may have fewer completions than the others, is weighed by how
many it has.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from assay.data.episode import Episode
from assay.rl.packed import Packed
from assay.rl.policy import Policy
from assay.train.likelihood import NLL, likelihood_batch
from assay.train.sampled_groups import GroupStream, sample_records, sampling_metrics, value_of
from assay.train.train_state import Batch, Journal, Place


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
