"""Settings of `grpo` stages alone: updates, KL penalty, sampling of groups, clip.

Only the accepted values are defined here; `rl` and `train` use them.
"""

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, Strict, model_validator
from pydantic_core import PydanticCustomError

from assay.experiment.base_table import Count, Few, Positive, Share, Table, raise_all, refused
from assay.experiment.training_settings import Schedule, between


class Updates(Table):
    """How one rollout is used."""

    minibatches: Few = 1
    """Optimizer steps per pass over the rollout."""
    epochs: Few = 1
    """Passes over the rollout."""


class AdaptiveKl(Table):
    """Moves the KL coefficient after each step, by the step's KL."""

    above: Positive = 0.1
    """A larger KL multiplies the coefficient by `factor`."""
    below: Positive = 0.01
    """A smaller KL divides it."""
    factor: Annotated[float, Field(gt=1)] = 1.5
    """How far it moves at once."""
    least: Positive = 0.001
    """It never falls below."""
    most: Positive = 10.0
    """It never rises above."""

    @model_validator(mode="after")
    def _bounds_in_order(self) -> Self:
        for low, high in (("below", "above"), ("least", "most")):
            if getattr(self, low) > getattr(self, high):
                raise refused(low, f"is more than {high!r}", f"lower it, or raise {high}")
        return self

    def next(self, coef: float, kl: float) -> float:
        """The coefficient after a step whose KL term was `kl`, without its coefficient."""
        if kl > self.above:
            coef *= self.factor
        elif kl < self.below:
            coef /= self.factor
        return min(max(coef, self.least), self.most)


class Kl(Table):
    """Penalty for moving away from a reference."""

    coef: Annotated[Annotated[float, Field(ge=0, le=1e6)] | Schedule, between(0, 1e6)] = 0.0
    """Weight of the penalty."""
    estimator: str = "k3"
    """`k2`, `k3` and others; `k1` in the reward only. Of whole completions: `k3_sequence` (new
    || reference) and `k3_sequence_reverse` (reference || new; reports 002 and 004)."""
    where: Literal["loss", "reward"] = "loss"
    """Added to the loss, or subtracted from the reward."""
    reference: Literal["stage_start", "base"] = "stage_start"
    """The weights the stage started from, or the experiment's model."""
    adaptive: AdaptiveKl | None = None
    """Moves `coef` after each step, `{}` as Lever-Plus does."""

    @model_validator(mode="after")
    def _can_adapt(self) -> Self:
        if self.adaptive is None:
            return self
        if isinstance(self.coef, Schedule):
            raise refused("adaptive", "coef follows a schedule", "write a number")
        if not self.coef or self.where == "reward":
            raise refused("adaptive", "there is no KL in the loss", "write coef, the first value")
        return self


class Dynamic(Table):
    """Dynamic sampling: groups that teach nothing are replaced by groups of new prompts."""

    max_batches: Few
    """Most batches of prompts for one step."""


class Overlong(Table):
    """Soft punishment of long completions (DAPO)."""

    buffer: Count
    """The punishment rises linearly over so many tokens before `max_tokens`."""
    factor: Positive = 1.0
    """The punishment at `max_tokens`."""


Bound = Annotated[Positive | Schedule, between(1e-9, 1e6)]


class Clip(Table):
    """Bounds of the probability ratio; omitted ones come from the preset."""

    low: Bound | None = None
    """Ratios below 1 - low are clipped."""
    high: Bound | None = None
    """Ratios above 1 + high are clipped."""
    dual: Annotated[float, Field(gt=1)] | None = None
    """Bound on the ratio where the advantage is negative (`ppo_clip`)."""
    tau_positive: Positive | None = None
    """`sapo`: steepness of the gate where the advantage is positive; omitted: 1."""
    tau_negative: Positive | None = None
    """`sapo`: steepness of the gate elsewhere; omitted: 1.05."""


class AdvantageOptions(Table):
    """Numbers of the advantage estimator; omitted ones come from the preset."""

    ddof: Annotated[int, Field(ge=0, le=1)] | None = None
    """Deviation in a group: 1 unbiased (default), 0 biased."""
    epsilon: Annotated[float, Field(gt=0, le=1)] | None = None
    """Added to the deviation; omitted: 1e-6."""
    least_std: Positive | None = None
    """A smaller deviation counts as this; omitted: none."""
    limit: Positive | None = None
    """Advantages are held between minus this and this; omitted: none."""
    lone: Literal["zero", "reward"] | None = None
    """Advantage of a completion alone in its group: zero (default), or its reward as in verl."""
    scale_by_std: bool | None = None
    """`pass_at_k`: divide by the group's deviation (default)."""
    gamma: Share | None = None
    """`reinforce_pp`: discount per token; omitted: 1."""
    f_norm: Positive | None = None
    """`gpg`: divides the advantage; omitted: 1."""
    egpo_lambda: Annotated[float, Field(ge=0, le=1e6)] | None = None
    """`egpo`: entropy in nats to advantage; omitted: 0.4."""
    egpo_alpha: Annotated[float, Field(gt=1, le=1e6)] | None = None
    """`egpo`: the bonus stays under |advantage| / alpha; omitted: 2."""


class Importance(Table):
    """Each token's policy loss times its probability in training over that in the rollout."""

    mode: Literal["token", "sequence"] = "token"
    """One ratio a token, or their product over a completion."""
    how: Literal["truncate", "mask", "off"] = "truncate"
    """Hold ratios at the bounds, give those beyond no weight, or nothing."""
    low: Annotated[float, Field(gt=0, le=1)] | None = None
    """Lower bound; omitted: none."""
    high: Annotated[float, Field(ge=1, le=1e6)] = 2.0
    """Upper bound."""

    @model_validator(mode="after")
    def _has_no_bound_when_off(self) -> Self:
        if self.how == "off" and self.low is not None:
            raise refused("low", "nothing is corrected, so that there is nothing to bound")
        return self


Range = Annotated[tuple[float, float], Strict(False)]


class Pairs(Table):
    """The pairs of stored groups; omitted: every two candidates of a group whose scores differ."""

    total: Count | None = None
    """Pairs drawn over all groups, with replacement, by (better - worse)^`power` (ScoreFlow:
    2000)."""
    per_group: Few | None = None
    """Pairs drawn so from each group."""
    power: Annotated[float, Field(ge=0, le=100)] | None = None
    """Larger prefers wide gaps; omitted: 3, as ScoreFlow."""
    least_gap: Positive | None = None
    """Smaller gaps make no pair."""

    @model_validator(mode="after")
    def _draws_once(self) -> Self:
        raise_all(self._conflicts())
        return self

    def _conflicts(self) -> Iterator[PydanticCustomError]:
        if self.total is not None and self.per_group is not None:
            yield refused("total", "both of 'total' and 'per_group' given", "write one of them")
        if self.power is not None and self.total is None and self.per_group is None:
            yield refused("power", "no pair is drawn", "write total or per_group, or remove it")
