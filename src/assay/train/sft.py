"""Supervised fine-tuning: the likelihood of stored episodes, each trained token alike.

Beside it the loss of episodes that are held out, measured as training computes it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from assay.data.episode import Episode
from assay.models.lora import begin_masks
from assay.rl.policy import Policy
from assay.train.likelihood import NLL, likelihood_batch
from assay.train.microbatch import micro_batches
from assay.train.row_order import visits
from assay.train.train_state import Batch, Journal, Place


@dataclass(frozen=True)
class Sft:
    """See `train_state.Method`."""

    episodes: tuple[Episode, ...]
    batch: int
    """Episodes per optimizer update."""
    seed: int

    def collect(self, policy: Policy, place: Place, journal: Journal) -> Batch:
        """The next `batch` episodes of the shuffled stream; their masks, where there is dropout."""
        begin_masks(policy.module, self.seed, place.step)
        chosen = [e for _, e in visits(self.episodes, self.seed, place.cursor, self.batch)]
        packed = likelihood_batch(chosen)
        metrics = {"rows": float(len(chosen)), "tokens": float(packed.mask_S.sum())}
        return Batch((packed,), NLL, metrics, consumed=self.batch)


@dataclass(frozen=True)
class Validation:
    """Held-out episodes that are measured after some steps; they change and choose nothing."""

    episodes: tuple[Episode, ...]
    every: int | None
    """Steps between two measurements; None measures after the last step only."""
    steps: int
    """Steps of the whole stage."""
    micro_tokens: int

    def look(self, policy: Policy, step: int) -> dict[str, float]:
        """The metric of a step; none where no measurement is due."""
        due = step == self.steps or (self.every is not None and step % self.every == 0)
        return {"validation_loss": self.loss(policy)} if due else {}

    def loss(self, policy: Policy) -> float:
        """Mean negative log-likelihood per trained token, what `nll` is of a step's batch, with
        every dropout off. Draws no random number."""
        packed = likelihood_batch(self.episodes)
        tokens = total = 0.0
        with torch.no_grad(), answering(policy.module):
            for micro in micro_batches(policy, packed, NLL.atom, self.micro_tokens):
                sums = NLL(policy.score(micro), micro).sums
                tokens += float(sums["tokens"])
                total += float(sums["nll"])
        return total / tokens


@contextmanager
def answering(module: torch.nn.Module) -> Iterator[None]:
    """Inside, the module computes as it does when it answers; afterwards as it did before."""
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True
