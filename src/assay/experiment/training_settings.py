"""The tables inside stages: optimizer, adaptation, sampling, schedules, and those of grpo alone.

Only the accepted values are defined here; `train`, `models` and `rollout` use them. The stages that
hold these tables are in `stage_tables`.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, Strict

from assay.experiment.base_table import (
    Count,
    Few,
    Many,
    Positive,
    Refusals,
    Share,
    SpecTable,
    Temperature,
    Tokens,
    none_for,
    refused,
)

Betas = Annotated[
    tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]], Strict(False)
]


class ScheduleSpec(SpecTable):
    """A number that moves over the steps of a stage."""

    start: float
    """At the first step."""
    end: float | None = None
    """At the last step; omitted: as `start`."""
    shape: Literal["linear", "cosine"] | None = None
    """A line (default), or half a cosine."""
    steps: Count | None = None
    """Steps until `end`, which then stays; omitted: all."""

    def _conflicts(self) -> Refusals:
        if self.end is None:
            yield from self._unread(("shape", "steps"), "there is no end to go to", "write end")


def between(low: float, high: float) -> AfterValidator:
    """Refuses a schedule that begins or ends outside `low` to `high`."""

    def check(value: float | ScheduleSpec) -> float | ScheduleSpec:
        if isinstance(value, ScheduleSpec):
            for field in ("start", "end"):
                number = getattr(value, field)
                if number is not None and not low <= number <= high:
                    limits = f"must lie between {low:g} and {high:g}"
                    raise refused(field, f"{limits}, not {number:g}")
        return value

    return AfterValidator(check)


class Optimizer(SpecTable):
    """How weights are updated."""

    name: Literal["adamw", "adamw8bit"] = "adamw"
    """`adamw8bit` keeps its state in 8 bits and needs bitsandbytes."""
    lr: Annotated[float, Field(gt=0, le=10, json_schema_extra={"filled": "by method"})]
    """Peak rate: 1e-5 for sft, rft, rce, distill; 1e-6 for grpo, dpo; 1e-4 with LoRA."""
    weight_decay: Annotated[float, Field(ge=0, le=100)] = 0.0
    """Decoupled weight decay."""
    betas: Betas = (0.9, 0.999)
    """Decay rates of the two moments."""
    schedule: Literal["constant", "cosine", "linear"] = "constant"
    """Shape after warm-up."""
    min_lr: Annotated[float, Field(ge=0, le=10)] | None = None
    """Where `cosine` and `linear` end; omitted: 0."""
    warmup: Share = 0.0
    """Share of the steps in which the rate rises."""
    clip_norm: Positive = 1.0
    """Gradients with a larger global norm are scaled down to it."""

    def _conflicts(self) -> Refusals:
        if self.min_lr is not None and self.schedule == "constant":
            fix = 'remove it, or schedule = "cosine" or "linear"'
            yield refused("min_lr", "a constant learning rate has no minimum", fix)
        elif (self.min_lr or 0) > self.lr:
            yield refused("min_lr", f"{self.min_lr:g} is more than lr = {self.lr:g}")


class FullAdapt(SpecTable):
    """`kind = "full"`, or nothing: every weight is trained."""

    kind: Literal["full"] = "full"
    """Which weights are trained."""


class LoraAdapt(SpecTable):
    """`kind = "lora"`: low-rank adapters are trained."""

    kind: Literal["lora"]
    """Which weights are trained."""
    rank: Few = 16
    """Rank of the adapters."""
    alpha: Annotated[float, Field(gt=0, le=1e6)] = 32.0
    """Adapters are scaled by alpha / rank."""
    targets: Annotated[Many[str], Field(min_length=1)] = ("all-linear",)
    """Linear layers by name or its end; `all-linear`: all but the output head."""
    dropout: Annotated[Annotated[float, Field(ge=0, lt=1)] | None, none_for(0)] = None
    """Dropout on the adapters' input, in `sft` stages only."""


class FreezeAdapt(SpecTable):
    """`kind = "freeze"`: some weights stay as they are."""

    kind: Literal["freeze"]
    """Which weights are trained."""
    patterns: Annotated[Many[str], Field(min_length=1)]
    """Weights whose names match stay frozen."""


Adapt = Annotated[FullAdapt | LoraAdapt | FreezeAdapt, Field(discriminator="kind")]


class SamplingSpec(SpecTable):
    """How completions are drawn for training. `top_p` below 1, `top_k` and `min_p` of grpo need
    `as_reported`."""

    temperature: Annotated[Temperature | ScheduleSpec, between(1e-3, 100)] = 1.0
    """Logits are divided by it."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Nucleus share; 1 samples from the full softmax."""
    top_k: Annotated[int, Field(ge=0)] = 0
    """Number of candidates; 0 means all."""
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    """Words less likely than this share of the likeliest are left out."""
    stop: Annotated[Many[Annotated[str, Field(min_length=1)]], Field(min_length=1)] | None = None
    """Texts that end an answer; it is judged without them."""
    max_tokens: Tokens = 256
    """Answers are cut, and counted as truncated, here."""

    @property
    def is_full(self) -> bool:
        """Whether words are drawn from the full softmax."""
        return self.top_p == 1 and not self.top_k and not self.min_p


LEARNING_RATES = {"sft": 1e-5, "rft": 1e-5, "rce": 1e-5, "distill": 1e-5}
LEARNING_RATES |= {"grpo": 1e-6, "dpo": 1e-6}
"""Full training: what the field's recipes for 0.5B to 8B models use."""
LORA_LEARNING_RATE = 1e-4
"""Much the same for supervised and reinforcement learning (Schulman et al., "LoRA Without
Regret", 2025)."""


class EveryEpochs(SpecTable):
    """Once every so many epochs, after the step that ends them."""

    epochs: Few
    """Whole passes over the data."""


class Curriculum(SpecTable):
    """Which of a stored group's candidates each epoch learns from, or which rows a round; omitted:
    all."""

    best: Annotated[Many[Few], Field(min_length=1)] | None = None
    """How many, epoch by epoch: `[3, 5]`; this or `by`."""
    by: str | None = None
    """A field; the round learns from its first value not yet passed (docs/rounds.md)."""
    passes: Share | None = None
    """Share of right dev answers that passes a value."""

    def _conflicts(self) -> Refusals:
        yield from self._one_of("best", "by")
        if (self.by is None) != (self.passes is None):
            yield refused("passes", "a level is passed by a share", "write by and passes together")


class Updates(SpecTable):
    """How one rollout is used."""

    minibatches: Few = 1
    """Optimizer steps per pass over the rollout."""
    epochs: Few = 1
    """Passes over the rollout."""


class AdaptiveKl(SpecTable):
    """Moves `coef` after each step, by the step's KL; `{}` as Lever-Plus does."""

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

    def _conflicts(self) -> Refusals:
        for low, high in (("below", "above"), ("least", "most")):
            if getattr(self, low) > getattr(self, high):
                yield refused(low, f"is more than {high!r}", f"lower it, or raise {high}")

    def next(self, coef: float, kl: float) -> float:
        """The coefficient after a step whose KL term was `kl`, without its coefficient."""
        if kl > self.above:
            coef *= self.factor
        elif kl < self.below:
            coef /= self.factor
        return min(max(coef, self.least), self.most)


class Kl(SpecTable):
    """Penalty for moving away from a reference."""

    coef: Annotated[Annotated[float, Field(ge=0, le=1e6)] | ScheduleSpec, between(0, 1e6)] = 0.0
    """Weight of the penalty."""
    estimator: str = "k3"
    """`k1` (in the reward only), `k2`, `k3` or others (docs/algorithms.md)."""
    where: Literal["loss", "reward"] = "loss"
    """Added to the loss, or subtracted from the reward."""
    reference: Literal["stage_start", "base"] = "stage_start"
    """The stage's start, or the experiment's model."""
    adaptive: AdaptiveKl | None = None

    def _conflicts(self) -> Refusals:
        if self.adaptive is None:
            return
        if isinstance(self.coef, ScheduleSpec):
            yield refused("adaptive", "coef follows a schedule", "write a number")
        elif not self.coef or self.where == "reward":
            yield refused("adaptive", "there is no KL in the loss", "write coef, the first value")


class Dynamic(SpecTable):
    """Dynamic sampling: groups that teach nothing are replaced by groups of new prompts."""

    max_batches: Few
    """Most batches of prompts for one step."""


class Overlong(SpecTable):
    """Soft punishment of long completions (DAPO)."""

    buffer: Count
    """The punishment rises linearly over so many tokens before `max_tokens`."""
    factor: Positive = 1.0
    """The punishment at `max_tokens`."""


Bound = Annotated[Positive | ScheduleSpec, between(1e-9, 1e6)]


class ClipSpec(SpecTable):
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


class AdvantageSpec(SpecTable):
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
    """Of a completion alone in its group: zero (default), or its reward as in verl."""
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


class ImportanceSpec(SpecTable):
    """Each token's policy loss times its probability in training over that in the rollout; omitted:
    token ratios held at 2."""

    mode: Literal["token", "sequence"] = "token"
    """One ratio a token, or their product over a completion."""
    how: Literal["truncate", "mask", "off"] = "truncate"
    """Ratios beyond the bounds are held there, or get no weight; `off`: no correction."""
    low: Annotated[float, Field(gt=0, le=1)] | None = None
    """Lower bound; omitted: none."""
    high: Annotated[float, Field(ge=1, le=1e6)] = 2.0
    """Upper bound."""

    def _conflicts(self) -> Refusals:
        if self.how == "off" and self.low is not None:
            yield refused("low", "nothing is corrected, so that there is nothing to bound")


Range = Annotated[tuple[float, float], Strict(False)]


class Pairs(SpecTable):
    """The pairs of stored groups; omitted: every two candidates of a group whose scores differ."""

    total: Count | None = None
    """Pairs drawn over all groups, with replacement, by (better - worse)^`power`."""
    per_group: Few | None = None
    """Pairs drawn so from each group."""
    power: Annotated[float, Field(ge=0, le=100)] | None = None
    """Larger prefers wide gaps; omitted: 3, as ScoreFlow."""
    least_gap: Positive | None = None
    """Smaller gaps make no pair."""

    def _conflicts(self) -> Refusals:
        if self.total is not None and self.per_group is not None:
            yield refused("total", "both of 'total' and 'per_group' given", "write one of them")
        if self.power is not None and self.total is None and self.per_group is None:
            yield refused("power", "no pair is drawn", "write total or per_group, or remove it")
