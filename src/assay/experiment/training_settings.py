"""Settings that all training stages share: optimizer, adaptation, sampling.

Only the accepted values are defined here; `train`, `models` and `rollout` use them. The stages that
hold these tables are in `stage_tables`.
"""

from typing import Annotated, Literal

from pydantic import Field, Strict, field_validator

from assay.experiment.base_table import Few, Many, Positive, Share, Table, Temperature, Tokens

Betas = Annotated[
    tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]], Strict(False)
]


class Optimizer(Table):
    """How weights are updated."""

    name: Literal["adamw", "adamw8bit"] = "adamw"
    """`adamw8bit` keeps its state in 8 bits and needs bitsandbytes."""
    lr: Annotated[float, Field(gt=0, le=10, json_schema_extra={"filled": "by method"})]
    """Peak learning rate. Omitted: 1e-5 for sft, rft and rce, 1e-6 for grpo, and 1e-4 with
    LoRA."""
    weight_decay: Annotated[float, Field(ge=0, le=100)] = 0.0
    """Decoupled weight decay."""
    betas: Betas = (0.9, 0.999)
    """Decay rates of the two moments."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Shape of the learning rate after warm-up; `cosine` ends at 0."""
    warmup: Share = 0.0
    """Share of the steps over which the learning rate rises linearly."""
    clip_norm: Positive = 1.0
    """Gradients with a larger global norm are scaled down to it."""


class FullAdapt(Table):
    """Every weight is trained."""

    kind: Literal["full"] = "full"
    """Which weights are trained."""


class LoraAdapt(Table):
    """Low-rank adapters are trained, the base stays as it is."""

    kind: Literal["lora"]
    """Which weights are trained."""
    rank: Few = 16
    """Rank of the adapters."""
    alpha: Annotated[float, Field(gt=0, le=1e6)] = 32.0
    """Adapters are scaled by alpha / rank."""
    targets: Annotated[Many[str], Field(min_length=1)] = ("all-linear",)
    """Linear layers by name or by the end of their dotted name; `all-linear` is every one but the
    output head."""
    dropout: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Dropout on the adapters' input, in `sft` stages only."""

    @field_validator("dropout")
    @classmethod
    def _none_is_none(cls, value: float | None) -> float | None:
        return value or None


class FreezeAdapt(Table):
    """Some weights are kept as they are, the rest is trained."""

    kind: Literal["freeze"]
    """Which weights are trained."""
    patterns: Annotated[Many[str], Field(min_length=1)]
    """Weights whose names match one of these shell-style patterns stay frozen."""


Adapt = Annotated[FullAdapt | LoraAdapt | FreezeAdapt, Field(discriminator="kind")]


class Sampling(Table):
    """How completions are drawn for training."""

    temperature: Temperature = 1.0
    """Logits are divided by it; the training ratios use the same temperature."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Nucleus share; 1 samples from the full softmax. Refused for grpo unless `as_reported`."""
    top_k: Annotated[int, Field(ge=0)] = 0
    """Number of candidates; 0 means all. Refused for grpo unless `as_reported`."""
    max_tokens: Tokens = 256
    """Completions are cut, and counted as truncated, at this length."""


LEARNING_RATES = {"sft": 1e-5, "rft": 1e-5, "rce": 1e-5, "grpo": 1e-6}
"""Full training: what the field's recipes for 0.5B to 8B models use."""
LORA_LEARNING_RATE = 1e-4
"""Much the same for supervised and reinforcement learning (Schulman et al., "LoRA Without
Regret", 2025)."""


class EveryEpochs(Table):
    """Once every so many epochs, after the step that ends them."""

    epochs: Few
    """Whole passes over the data."""
