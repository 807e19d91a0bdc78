"""Numbers that move over the steps of a stage: the learning rate, and any setting with a schedule.

Each is a pure function of the step, so that a resumed stage goes on at the same value.
"""

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Schedule:
    """From `start` at the first step to `end` at the last of `steps`; it stays there."""

    start: float
    end: float
    steps: int
    shape: Literal["linear", "cosine"] = "linear"

    def at(self, step: int) -> float:
        """The value at `step`, counted from 0."""
        last = max(self.steps - 1, 1)
        if self.shape == "cosine":
            share = 0.5 * (1 - math.cos(math.pi * min(step, last) / last))
            return self.start + (self.end - self.start) * share
        return self.start + (self.end - self.start) * min(step, last) / last

    @property
    def most(self) -> float:
        """The greatest value of all."""
        return max(self.start, self.end)


def constant(value: float) -> Schedule:
    """A number that stays as it is."""
    return Schedule(value, value, 1)


@dataclass(frozen=True, slots=True)
class LearningRate:
    """Warm-up from 0 to `lr`, then one of three shapes down to `min_lr`."""

    lr: float
    steps: int
    shape: Literal["constant", "cosine", "linear"] = "constant"
    warmup: float = 0.0
    """Share of the steps over which the rate rises linearly, reaching `lr` at their end."""
    min_lr: float = 0.0

    def at(self, step: int) -> float:
        """The rate of update `step`, counted from 0; the first is never at 0.

        The step after the last would be at `min_lr`, as in Transformers' schedulers.
        """
        rising = round(self.steps * self.warmup)
        if step < rising:
            return self.lr * ((step + 1) / rising)
        share = (step - rising) / max(self.steps - rising, 1)
        if self.shape == "cosine":
            return self.min_lr + (self.lr - self.min_lr) * (0.5 * (1 + math.cos(math.pi * share)))
        if self.shape == "linear":
            return self.min_lr + (self.lr - self.min_lr) * (1 - share)
        return self.lr
