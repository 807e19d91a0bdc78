"""Supervised fine-tuning: the likelihood of stored episodes, each trained token alike."""

from dataclasses import dataclass

from assay.data.episode import Episode
from assay.rl.policy import Policy
from assay.train.likelihood import NLL, likelihood_batch
from assay.train.order import visits
from assay.train.state import Batch, Recorder, TrainState


@dataclass(frozen=True)
class Sft:
    """See `train.state.Method`."""

    episodes: tuple[Episode, ...]
    batch: int
    """Episodes per optimizer update."""
    seed: int

    def collect(self, policy: Policy, state: TrainState, recorder: Recorder) -> Batch:
        """The next `batch` episodes of the shuffled stream."""
        chosen = [e for _, e in visits(self.episodes, self.seed, state.cursor, self.batch)]
        state.cursor += self.batch
        packed = likelihood_batch(chosen)
        metrics = {"rows": float(len(chosen)), "tokens": float(packed.mask_S.sum())}
        return Batch((packed,), NLL, metrics)
