"""Asks a check about the first batch that a stage trains on, before it is trained on.

What is checked is the caller's business: a policy without a second way of computing has none.
A resumed stage asks again, because machine and versions may be others.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from assay.rl.objectives import Objective
from assay.rl.packed import Packed
from assay.rl.policy import Policy
from assay.train.train_state import Batch, Journal, Method, Place

Check = Callable[[Policy, Packed, Objective], Mapping[str, float]]
"""Raises a RunFailure, or returns metrics; leaves policy and random numbers as they were."""


@dataclass
class SelfChecked:
    """A `Method` whose first update is checked; the step's metrics say what was found."""

    method: Method
    check: Check
    done: bool = False

    def collect(self, policy: Policy, place: Place, journal: Journal) -> Batch:
        """See `train_state.Method`. A batch without updates is passed on unchecked."""
        batch = self.method.collect(policy, place, journal)
        if self.done or not batch.updates:
            return batch
        started = time.perf_counter()
        found = self.check(policy, batch.updates[0], batch.objective)
        self.done = True
        seconds = time.perf_counter() - started
        return replace(batch, metrics={**batch.metrics, **found, "self_check_seconds": seconds})
