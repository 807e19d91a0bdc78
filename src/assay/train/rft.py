"""Rejection fine-tuning: sample groups, keep what was rewarded, learn its likelihood."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from assay.rl.policy import Policy
from assay.train.groups import GroupStream, sample_records, sampling_metrics, value_of
from assay.train.likelihood import NLL, likelihood_batch
from assay.train.state import Batch, Recorder, TrainState


@dataclass(frozen=True)
class Rft:
    """See `train.state.Method`."""

    prompts: GroupStream
    keep: float
    """Completions with at least this reward are learned."""
    batch: int
    """Kept completions per optimizer update."""
    temperature: float
    decode: Callable[[Sequence[int]], str]

    def collect(self, policy: Policy, state: TrainState, recorder: Recorder) -> Batch:
        """One round of sampling; no update where nothing was kept."""
        groups = self.prompts.next(policy, state, recorder)
        episodes = [e for group in groups for e in group]
        kept = [e for e in episodes if (v := value_of(e)) is not None and v >= self.keep]
        updates = tuple(
            likelihood_batch(kept[i : i + self.batch], self.temperature)
            for i in range(0, len(kept), self.batch)
        )
        metrics = {
            **sampling_metrics(groups),
            "kept_share": len(kept) / len(episodes),
            "tokens": float(sum(int(packed.mask_S.sum()) for packed in updates)),
        }
        return Batch(updates, NLL, metrics, tuple(sample_records(episodes, {}, self.decode)))
