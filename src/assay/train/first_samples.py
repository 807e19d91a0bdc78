"""Looks at what a stage samples before it trains on it; the method itself goes on unchanged.

What is told of the first samples is the caller's business.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from assay.rl.policy import Policy
from assay.train.train_state import Batch, Journal, Method, Place, SampleRecord


@dataclass
class FirstLook:
    """A `Method` that reports its first samples; a resumed stage has reported them already."""

    method: Method
    report: Callable[[Sequence[SampleRecord]], None]

    def collect(self, policy: Policy, place: Place, journal: Journal) -> Batch:
        """See `train_state.Method`."""
        batch = self.method.collect(policy, place, journal)
        if place.step == 0:
            self.report(batch.samples)
        return batch
