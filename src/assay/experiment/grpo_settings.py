"""Settings of `grpo` stages alone: updates, KL penalty, sampling of groups, clip.

Only the accepted values are defined here; `rl` and `train` use them.
"""

from typing import Annotated, Literal

from pydantic import Field

from assay.experiment.base_table import Count, Few, Positive, Table


class Updates(Table):
    """How one rollout is used."""

    minibatches: Few = 1
    """Optimizer steps per pass over the rollout."""
    epochs: Few = 1
    """Passes over the rollout."""


class Kl(Table):
    """Penalty for moving away from a reference."""

    coef: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    """Weight of the penalty; 0 leaves it and its forward pass out."""
    estimator: str = "k3"
    """`k2`, `k3` and others; `k1` in the reward only: as a loss its gradient has mean zero."""
    where: Literal["loss", "reward"] = "loss"
    """Added to the loss, or subtracted from the reward."""
    reference: Literal["stage_start", "base"] = "stage_start"
    """The weights the stage started from, or the experiment's model."""


class Dynamic(Table):
    """Dynamic sampling: groups that teach nothing are replaced by groups of new prompts."""

    max_batches: Few
    """At most this many batches of prompts are sampled for one step."""


class Overlong(Table):
    """Soft punishment of long completions (DAPO)."""

    buffer: Count
    """The punishment rises linearly over the last `buffer` tokens before `max_tokens`."""
    factor: Positive = 1.0
    """The punishment at `max_tokens`."""


class Clip(Table):
    """Bounds of the probability ratio; what is left out comes from the preset."""

    low: Positive | None = None
    """Ratios below 1 - low are clipped."""
    high: Positive | None = None
    """Ratios above 1 + high are clipped."""
    dual: Annotated[float, Field(gt=1)] | None = None
    """Bound on the ratio where the advantage is negative."""
