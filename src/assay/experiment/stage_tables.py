"""The `[stage.NAME]` tables: one model per training method.

Stages run in file order. The tables inside them are in `training_settings`. Names of presets,
estimators and rewards are checked in `lab.session.validate`, because their registers are elsewhere.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, TypeAdapter, model_validator

from assay.errors import InputError
from assay.experiment.base_table import (
    Count,
    Few,
    Many,
    Name,
    Positive,
    Refusals,
    RenderingSettings,
    Share,
    Temperature,
    Weight,
    none_for,
    refused,
)
from assay.experiment.checkpoint_reference import (
    CheckpointReference,
    parse_checkpoint,
)
from assay.experiment.reward_tables import Reward, RewardSettings
from assay.experiment.training_settings import (
    LEARNING_RATES,
    LORA_LEARNING_RATE,
    Adapt,
    AdvantageSpec,
    ClipSpec,
    Curriculum,
    Dynamic,
    EveryEpochs,
    FullAdapt,
    ImportanceSpec,
    Kl,
    LoraAdapt,
    Optimizer,
    Overlong,
    Pairs,
    Range,
    SamplingSpec,
    ScheduleSpec,
    Updates,
    between,
)


class CommonStage(RenderingSettings):
    """What every training stage has."""

    data: str
    """The data set to train on."""
    start: Annotated[str, Field(json_schema_extra={"filled": "the stage before"})] = "base"
    """`base`, `STAGE.best`, `STAGE.last`, `STAGE.step-N`, `STAGE.dev_score`, `STAGE.reward_trend`,
    `run:NAME@CHECKPOINT` (docs/rounds.md)."""
    steps: Count | None = None
    """Optimizer steps (sft) or rounds of sampling and updating; this or `epochs`."""
    epochs: Count | None = None
    """Passes over the data."""
    optimizer: Annotated[Optimizer, Field(json_schema_extra={"filled": "its defaults"})]
    adapt: Adapt = FullAdapt()
    other_rendering_than: Many[str] | None = None
    """Evaluations that may use another rendering than this stage."""
    micro_tokens: Count = 2048
    """Tokens of one pass; the gradient does not depend on it."""
    checkpoint_every: Count | EveryEpochs | None = None
    """Steps between checkpoints, or `{ epochs = 1 }`; omitted: after the last."""
    validation: str | None = None
    """Rows whose loss is recorded as `validation_loss`, such as `train.dev`."""
    validation_every: Count | EveryEpochs | None = None
    """Steps between measurements, or `{ epochs = 1 }`; omitted: after the last."""
    max_skipped_steps: Annotated[int, Field(ge=0)] = 3
    """More steps with a non-finite gradient stop the run."""
    trainer: Annotated[Literal["assay", "trl", "verl", "swift"] | None, none_for("assay")] = None
    """`assay` (default), or another tool for `sft` and `grpo` (docs/trainers.md)."""
    allow: Many[str] | None = Field(default=None, min_length=1)
    """Settings that the tool lacks and trains without: `["importance"]`."""

    @property
    def starts_from(self) -> CheckpointReference | None:
        """The checkpoint of its own run that the stage starts from; None where it lies in another
        run: `runs.run_names.stage_start` finds any."""
        return parse_checkpoint(self.start)

    @property
    def reads(self) -> tuple[str, ...]:
        """The data sets, `NAME` or `NAME.dev`, that the stage trains on or is validated on."""
        return (self.data,) if self.validation is None else (self.data, self.validation)

    @model_validator(mode="before")
    @classmethod
    def _default_learning_rate(cls, values: Any) -> Any:
        """Fill in the rate by method and adaptation, so that the resolved spec shows it."""
        optimizer = values.get("optimizer", {})
        adapt = values.get("adapt", {})
        if not isinstance(optimizer, Mapping) or not isinstance(adapt, Mapping):
            return values
        lora = adapt.get("kind") == "lora"
        rate = LORA_LEARNING_RATE if lora else LEARNING_RATES[values["method"]]
        return {**values, "optimizer": {"lr": rate, **optimizer}}

    def _conflicts(self) -> Refusals:
        yield from self._one_of("steps", "epochs")
        if self.steps is not None:
            yield from (refused(*late) for late in late_schedules(self, self.steps))
        if self.allow is not None and self.trainer is None:
            yield refused("allow", "Assay trains the stage, with all its settings", "remove it")
        if self.validation is None and self.validation_every is not None:
            fix = f'name rows, for example validation = "{self.data.partition(".")[0]}.dev"'
            yield refused("validation_every", "there is no validation to measure", fix)
        if self.validation == self.data:
            problem = "these rows are trained on; their loss would only say how well they are known"
            fix = f'hold some out: split = {{ dev = 0.05 }} and validation = "{self.data}.dev"'
            yield refused("validation", problem, fix)


class SftStage(CommonStage):
    """Supervised fine-tuning: negative log-likelihood of the assistant's messages."""

    method: Literal["sft"]
    """The method."""
    batch: Few = 16
    """Rows per optimizer step; packs with `pack_tokens`."""
    pack_tokens: Count | None = None
    """Tokens of a pack, at most, by ms-swift's rule; no row sees another."""
    loss_on: Literal["all", "last"] = "all"
    """Which assistant messages are trained on."""


class SamplingStage(CommonStage, RewardSettings):
    """They learn from groups of rewarded completions, sampled or stored."""

    prompts: Few
    """Prompts per step."""
    group: Few = 8
    """Completions per prompt."""
    candidates: Literal["sampled", "stored"] | None = None
    """Sampled from the model (default), or held by the data."""
    reward: Reward | None = None
    """Required for sampled candidates; omitted for stored ones: what they carry."""
    curriculum: Curriculum | None = None
    require_positive: bool | None = None
    """Leave out stored groups without a right candidate."""
    sampling: SamplingSpec = SamplingSpec()
    max_abstained_share: Share = 0.1
    """A larger share of unscored completions stops the run."""

    @property
    def stored(self) -> bool:
        """Whether the stage learns from candidates that the data holds, and samples nothing."""
        return self.candidates == "stored"

    @property
    def needs_reward(self) -> bool:
        """Whether what it samples must be judged."""
        return not self.stored

    def _conflicts(self) -> Refusals:
        yield from super()._conflicts()
        if self.needs_reward and self.reward is None:
            yield refused("reward", "sampled candidates need a reward")
        if not self.stored:
            keys = ["require_positive"]
            if self.curriculum is None or self.curriculum.by is None:
                keys = ["curriculum", "require_positive"]
            fix = 'candidates = "stored", or remove it'
            yield from self._unread(keys, "candidates are sampled", fix)
        if isinstance(self.adapt, LoraAdapt) and self.adapt.dropout is not None:
            problem = "completions are sampled without dropout, their likelihoods would be with it"
            yield refused("adapt.dropout", problem, "remove it; sft stages can have it")


class RftStage(SamplingStage):
    """Rejection fine-tuning: sample, keep what was rewarded, train on it like SFT."""

    method: Literal["rft"]
    """The method."""
    keep: float = 1.0
    """Smallest reward of kept completions."""
    batch: Few = 16
    """Kept completions per optimizer step."""
    likelihood_temperature: Temperature = 1.0
    """Temperature of the likelihood that is learned."""


class RceStage(SamplingStage):
    """Reward-weighted fine-tuning: softmax(reward / tau) inside a group weighs the likelihood."""

    method: Literal["rce"]
    """The method."""
    candidates: Literal["sampled", "stored"] = (  # pyright: ignore[reportIncompatibleVariableOverride]
        "sampled"
    )
    """Of the model, or of the data."""
    tau: Annotated[Annotated[float, Field(ge=1e-6, le=1e6)] | ScheduleSpec, between(1e-6, 1e6)] = (
        ScheduleSpec(start=1.0)
    )
    """Temperature of the weights; small picks the best candidate."""
    rewards: Literal["raw", "normalised"] | None = None
    """What is divided by tau: rewards (default), or those standardised in their group and held in
    [-3, 3]."""
    degenerate: Literal["skip", "imitate"] = "skip"
    """Groups of equal rewards are left out, or learned all alike."""
    likelihood_temperature: Temperature = 1.0
    """Temperature of the likelihood that is learned."""


class GrpoStage(SamplingStage):
    """Group-relative policy optimisation and relatives."""

    method: Literal["grpo"]
    """The method."""
    algorithm: str = "grpo"
    """Preset of advantage, loss, aggregation, denominator and clip."""
    group: Few = 8
    """Completions per prompt; 1 where the estimator compares with no group."""
    updates: Updates = Updates()
    kl: Kl = Kl()
    """Penalty for moving away from a reference."""
    drop_without_signal: bool | Literal["auto"] = "auto"
    """Leave out groups of equal rewards; `auto`: where no KL, entropy term or whitening acts."""
    dynamic: Dynamic | None = None
    mask_truncated: bool = False
    """Give truncated completions no weight in the update."""
    overlong: Overlong | None = None
    entropy_coef: Weight = 0.0
    """Weight of the entropy bonus."""
    top_entropy_share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Learn only at this share of the tokens, of highest entropy (arXiv 2506.01939: 0.2); costs a
    forward pass."""
    clip: ClipSpec = ClipSpec()
    importance: ImportanceSpec | None = None
    advantage: str | None = None
    """Estimator by name, in place of the preset's."""
    advantage_options: AdvantageSpec | None = None
    loss: str | None = None
    """By name, in place of the preset's."""
    aggregation: str | None = None
    """By name, in place of the preset's."""
    rewards: Literal["raw", "normalised"] | None = None
    """`normalised`: standardised before the estimator (reports 002, 004). Needs `as_reported`."""
    dropout: bool | None = None
    """A selector's update has dropout, its sampling none (reports 002, 004). Needs
    `as_reported`."""
    max_rollout_gap: Positive = 0.25
    """A larger mean gap of log-probs between rollout and training stops the run."""
    max_steps_without_bonus: Count = 5
    """So many steps with signal in a row, their `egpo` bonus below a thousandth of the advantages,
    stop the run."""

    @property
    def keeps_start(self) -> bool:
        """Whether the weights at the stage's start are kept: a KL reference, or what the ratios of
        stored candidates are taken to."""
        return bool(self.kl.coef) or self.stored

    def _conflicts(self) -> Refusals:
        yield from super()._conflicts()
        samples = "stored candidates are no samples of the model in training"
        start = "stored candidates are compared with the weights at the stage's start"
        only_sampled = (
            ("dynamic", self.dynamic, samples),
            ("overlong", self.overlong, samples),
            ("mask_truncated", self.mask_truncated, samples),
            ("importance", self.importance, samples),
            ("kl.where", self.kl.where == "reward", samples),
            ("kl.reference", self.kl.reference == "base", start),
        )
        for field, there, problem in only_sampled if self.stored else ():
            if there:
                yield refused(field, problem, "remove it")
        if self.kl.where == "loss" and self.kl.estimator == "k1":
            fix = "use 'k2' or 'k3', or where = \"reward\""
            yield refused("kl.estimator", "k1 as a loss has zero gradient in expectation", fix)
        if self.drop_without_signal is True and (self.kl.coef or self.entropy_coef):
            problem = "groups without signal still carry KL or entropy gradient"
            yield refused("drop_without_signal", problem, 'use "auto"')
        if self.group == 1 and self.dynamic is not None:
            problem = "groups of one completion have no variance to look for"
            yield refused("dynamic", problem, "remove it, or sample larger groups")


class DistillStage(SamplingStage):
    """On-policy distillation (GKD): the student's own completions and stored answers, learned by
    their divergence from a teacher."""

    method: Literal["distill"]
    """The method."""
    teacher: Name = "teacher"
    """The helper model learned from; its vocabulary is the student's."""
    group: Few = 1
    """Completions per prompt that the student answers."""
    lmbda: Share = 1.0
    """Share of visits to prompts that the student answers; else the row's answer is learned."""
    beta: Share = 1.0
    """Divergence: 0 is KL(teacher || student), 1 is KL(student || teacher)."""
    loss_temperature: Temperature = 1.0
    """Of both models in the divergence, not of the samples."""
    loss_top_k: Few | None = None
    """Only the teacher's likeliest words are told apart; an `openai:` teacher needs it."""
    reward: Reward | None = None
    """Recorded, not learned from."""

    @property
    def needs_reward(self) -> bool:
        """What the student writes is judged by the teacher alone."""
        return False

    def _conflicts(self) -> Refusals:
        yield from super()._conflicts()
        if self.candidates is not None:
            problem = "what is not sampled are the rows' own answers"
            yield refused("candidates", problem, "remove it; lmbda = 0 samples nothing")


class DpoStage(CommonStage, RewardSettings):
    """Direct preference optimisation on pairs of stored candidates, against the weights at the
    stage's start."""

    method: Literal["dpo"]
    """The method."""
    batch: Few = 16
    """Pairs per optimizer step; an epoch visits each once."""
    beta: Annotated[float, Field(gt=0, le=1000)] = 0.1
    """Scale of the implicit reward; larger stays closer to the start."""
    scores: Literal["plain", "score"] = "plain"
    """`score`: Score-DPO (docs/algorithms.md)."""
    score_range: Range | None = None
    """Scores that become 0 and 1 for Score-DPO; omitted: 0 and 1. Scores beyond are refused."""
    label_smoothing: Annotated[float, Field(ge=0, lt=0.5)] = 0.0
    """Share of pairs taken to be the wrong way round (cDPO)."""
    pairs: Pairs = Pairs()
    reward: Reward | None = None
    """Judges candidates again; omitted: what they carry."""
    require_positive: bool | None = None
    """Leave out groups without a right candidate."""

    @property
    def stored(self) -> bool:
        """The candidates of the data are learned from; nothing is sampled."""
        return True

    def _conflicts(self) -> Refusals:
        yield from super()._conflicts()
        if self.score_range is not None and self.scores == "plain":
            yield refused("score_range", "only Score-DPO reads it", 'scores = "score"')
        if self.score_range is not None and not self.score_range[0] < self.score_range[1]:
            yield refused("score_range", "the least is not below the greatest", "write [low, high]")
        if isinstance(self.adapt, LoraAdapt) and self.adapt.dropout is not None:
            problem = "the reference has no dropout, and the policy is compared with it"
            yield refused("adapt.dropout", problem, "remove it, as TRL's disable_dropout does")


StageSpec = Annotated[
    SftStage | RftStage | RceStage | GrpoStage | DistillStage | DpoStage,
    Field(discriminator="method"),
]


StoredStage = SamplingStage | DpoStage
"""The stages that may learn from candidates of the data; `stored` says whether one does."""


def kept_reference(stage: StageSpec) -> Literal["stage_start", "base"] | None:
    """The frozen weights that a stage compares its own with; None where it compares with none."""
    if isinstance(stage, DpoStage):
        return "stage_start"
    return stage.kl.reference if isinstance(stage, GrpoStage) and stage.keeps_start else None


def schedules_in(table: BaseModel, path: str = "") -> Iterator[tuple[str, ScheduleSpec]]:
    """The schedules of a table and its inner tables, by dotted path."""
    for key in type(table).model_fields:
        value = getattr(table, key)
        if isinstance(value, ScheduleSpec):
            yield path + key, value
        elif isinstance(value, BaseModel):
            yield from schedules_in(value, f"{path}{key}.")


def late_schedules(stage: CommonStage, steps: int) -> Iterator[tuple[str, str, str]]:
    """Field, problem and fix of each schedule that ends after the last step."""
    for path, schedule in schedules_in(stage):
        if schedule.steps is not None and schedule.steps > steps:
            problem = f"{schedule.steps} is past the stage's last step, {steps}"
            yield f"{path}.steps", problem, "leave it out to end at the last step"


def steps_of(stage: StageSpec, rows: int) -> int:
    """Steps of the stage: as written, or what its epochs over `rows`, pairs or packs come to.

    Raises InputError, which a stage of written steps raises when it is read.
    """
    if stage.steps is not None:
        return stage.steps
    steps = math.ceil((stage.epochs or 1) * rows / rows_per_step(stage))
    for path, problem, fix in late_schedules(stage, steps):
        raise InputError(problem, field=path, fix=fix)
    return steps


def counts_rows(stage: StageSpec) -> bool:
    """Whether an epoch of the stage is counted in rows, not in pairs or packs, which are known once
    the rows are read."""
    packs = isinstance(stage, SftStage) and stage.pack_tokens is not None
    return not packs and not isinstance(stage, DpoStage)


def rows_per_step(stage: StageSpec) -> int:
    """Rows of the data set that one step takes; pairs of a dpo stage, packs with `pack_tokens`."""
    return stage.batch if isinstance(stage, SftStage | DpoStage) else stage.prompts


def due_steps(every: int | EveryEpochs | None, stage: StageSpec, rows: int) -> frozenset[int]:
    """The steps after which something is due: every so many steps, or the first step at or behind
    the end of every so many epochs over `rows`; and the last step."""
    last = steps_of(stage, rows)
    if every is None:
        return frozenset({last})
    if isinstance(every, int):
        return frozenset({*range(every, last, every), last})
    epochs = range(every.epochs, last * rows_per_step(stage) // rows + 1, every.epochs)
    ends = (math.ceil(epoch * rows / rows_per_step(stage)) for epoch in epochs)
    return frozenset({last, *(step for step in ends if step < last)})


@dataclass(frozen=True, slots=True)
class StageSteps:
    """The steps of a stage: how many, and after which of them something is due."""

    last: int
    saved: frozenset[int]
    """After which a checkpoint is written."""
    validated: frozenset[int]
    """After which the validation is measured."""


def planned(stage: StageSpec, rows: int) -> StageSteps:
    """The steps of a stage, whose epoch has so many rows, pairs or packs. Raises what `steps_of`
    does."""
    saved = due_steps(stage.checkpoint_every, stage, rows)
    return StageSteps(steps_of(stage, rows), saved, due_steps(stage.validation_every, stage, rows))


OTHER_RUN = "run:"
"""How a start begins that is a checkpoint of another run."""


def plain(spec: Reward) -> Any:
    """The reward as the file has it: text, numbers and tables."""
    settings: Any = {"mode": "json", "exclude_none": True, "exclude_defaults": True}
    return TypeAdapter[Any](Reward).dump_python(spec, **settings)
