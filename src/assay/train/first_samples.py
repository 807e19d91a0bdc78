"""Looks at what a stage samples before it trains on it; the method itself goes on unchanged.

What is told of the first samples is the caller's business.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from assay.rl.policy import Policy
from assay.train.train_state import Batch, Method, Recorder, SampleRecord, TrainState


@dataclass
class FirstLook:
    """A `Method` whose first samples are told; a resumed stage has told them already."""

    method: Method
    tell: Callable[[Sequence[SampleRecord]], None]

    def collect(self, policy: Policy, state: TrainState, recorder: Recorder) -> Batch:
        """See `train_state.Method`."""
        batch = self.method.collect(policy, state, recorder)
        if state.step == 0:
            self.tell(batch.samples)
        return batch
