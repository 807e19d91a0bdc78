"""The `[evaluate.NAME]`, `[note]`, `[log]`, `[guard.NAME]` and `[milestone.NAME]` tables.

Only the accepted values are defined here. Items are read in `lab.setup.evaluation`; guards and
milestones are applied in `lab.monitor`. Nothing is computed from `[note]`
and `[log]`.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from assay.errors import nearest
from assay.experiment.base_table import (
    Count,
    Few,
    Many,
    RenderingSettings,
    Table,
    Tokens,
    raise_all,
    refused,
)
from assay.experiment.checkpoint_reference import CheckpointReference, parse_checkpoint
from assay.experiment.data_tables import Take
from assay.experiment.reward_tables import Reward, RewardSettings


class EvaluationSampling(Table):
    """How answers are drawn for an evaluation."""

    temperature: Annotated[float, Field(ge=0, le=100)] = 0.0
    """0 is greedy decoding; else at least 0.001."""
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

    @model_validator(mode="after")
    def _is_greedy_or_draws(self) -> Self:
        if 0 < self.temperature < 1e-3:
            problem = f"must be 0 or at least 0.001, not {self.temperature:g}"
            raise refused("temperature", problem, "0 is greedy decoding")
        return self


class EvaluateSpec(RewardSettings, RenderingSettings):
    """Items of a benchmark, or of a data set with a reward. `rendering`, `template_options`,
    `keep_special`, `reward_...`: as in stages."""

    benchmark: str | None = None
    """Such as `bfcl/simple_python`; this or `data`."""
    data: str | None = None
    """Rows such as `train.dev`, scored by `reward`; this or `benchmark`."""
    role: Literal["select", "report"]
    """`select` may choose checkpoints (`STAGE.best`); `report` never does."""
    checkpoints: Annotated[Many[str], Field(min_length=1)]
    """`base`, `STAGE.best`, `STAGE.last`, `STAGE.step-N`, or `STAGE.all`."""
    repeats: Few = 1
    """Full passes over the items."""
    take: Take | None = None
    """Use only some items."""
    fewer: dict[str, Count] = Field(default_factory=dict)
    """Checkpoints (`base` or a stage) that answer only so many items, `{ base = 100 }`."""
    same_prompt: bool | None = None
    """Items share training prompts and differ in a hidden state. Omitted: so for dialogues."""
    sampling: EvaluationSampling = EvaluationSampling()
    """How answers are drawn."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the benchmark, such as `examples` in the prompt."""
    reward: Reward | None = None
    """How answers are scored, for `data`."""

    @model_validator(mode="after")
    def _items_come_from_one_place(self) -> Self:
        raise_all(self._conflicts())
        return self

    def _conflicts(self) -> Iterator[PydanticCustomError]:
        if self.fewer and self.role == "select":
            problem = "checkpoints are chosen on the same items"
            yield refused("fewer", problem, "remove it, or take fewer for all")
        known = sorted({text.partition(".")[0] for text in self.checkpoints})
        for name in sorted(self.fewer.keys() - set(known)):
            problem = f"no checkpoint of {name!r} is measured"
            yield refused(f"fewer.{name}", problem, "one of " + ", ".join(known))
        if (self.benchmark is None) == (self.data is None):
            found = "neither" if self.benchmark is None else "both"
            fix = "write one of them"
            yield refused("benchmark", f"{found} of 'benchmark' and 'data' given", fix)
            return
        if self.data is not None and self.reward is None:
            yield refused("reward", "an evaluation on data needs a reward")
        if self.benchmark is not None and self.reward is not None:
            yield refused("reward", "a benchmark is scored by its own checker", "remove it")
        if self.data is not None and self.options:
            yield refused("options", "only a benchmark has options", "remove it")


class ReportedRun(Table):
    """Where others' result is."""

    file: str
    """A record of reported results (docs/audit.md), beside this file, else in the lab."""
    run: str
    """The name of the run in it."""


class NoteSpec(Table):
    """For the notebook; no result depends on it."""

    why: str = ""
    """The question that it answers."""
    expected: str = ""
    """What it should show, written before it is run."""
    faults: Many[str] = ()
    """What is wrong with it, a line each."""
    reported: ReportedRun | None = None
    """The result that others reported of it."""


class LogSpec(Table):
    """Programs that get metrics, scores, verdicts and pages."""

    to: Annotated[Many[str], Field(min_length=1)]
    """`wandb`, `trackio`, `mlflow`, `tensorboard`; each needs the extra of its name."""
    project: str | None = None
    """Project, or experiment of `mlflow`; omitted: the experiment's name. Not for `tensorboard`."""
    name: str | None = None
    """Name of the remote run, to which `#SEED` is added; omitted: the experiment's. `wandb`,
    `mlflow`."""
    dir: str | None = None
    """Folder for local files; omitted: `log`. Not for `trackio`."""
    entity: str | None = None
    """Team of `wandb`."""
    offline: bool = False
    """Write `wandb` files to send later by `wandb sync`."""
    space: str | None = None
    """Space of `trackio` at Hugging Face; omitted: this machine."""
    uri: str | None = None
    """Server or file of `mlflow`; omitted: `MLFLOW_TRACKING_URI`, else a file in `dir`."""

    @model_validator(mode="after")
    def _holds_no_key(self) -> Self:
        if self.uri is not None and "@" in self.uri.partition("://")[2].partition("/")[0]:
            fix = "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD in the environment"
            raise refused("uri", "holds a user or a password", fix)
        return self


class GuardSpec(Table):
    """Stops the run, with its checkpoint kept, where a metric meets it."""

    metric: str
    """Of `metrics.jsonl`, such as `truncated_share`."""
    above: float | None = None
    """Stop above this; this or `below`. Values that are not finite meet any."""
    below: float | None = None
    """Stop below this; this or `above`."""
    steps: Count = 1
    """Steps in a row that record the metric."""
    stage: str | None = None
    """Omitted: every stage."""

    @model_validator(mode="after")
    def _has_one_bound(self) -> Self:
        check_bounds(self.above, self.below)
        return self


class MilestoneSpec(Table):
    """A step to reach, or an expected value of a metric."""

    stage: str
    """The stage it is about."""
    about: str = ""
    """What it means, in a sentence."""
    step: Count | None = None
    """Where it is scored; omitted: the first step that reaches the value."""
    metric: str | None = None
    """Omitted: reaching the step is all."""
    above: float | None = None
    """Values above this are expected; this or `below`."""
    below: float | None = None
    """Values below this are expected."""
    evaluation: str | None = None
    """The evaluation whose verdict is expected at `step`."""
    verdict: Literal["better", "worse", "equivalent"] | None = None
    """Expected item by item against `against`; with `evaluation`."""
    against: str = "base"
    """The checkpoint compared with."""

    @model_validator(mode="after")
    def _expects_something(self) -> Self:
        raise_all(self._of_verdict())
        if self.evaluation is not None:
            return self
        if self.metric is not None:
            check_bounds(self.above, self.below)
        elif self.above is not None or self.below is not None:
            raise refused("metric", "a bound needs the metric that it is about")
        elif self.step is None:
            raise refused("step", "a milestone needs a step, a metric, or both")
        return self

    def _of_verdict(self) -> Iterator[PydanticCustomError]:
        """What does not go together in a milestone on a verdict."""
        if self.evaluation is None:
            if self.verdict is not None:
                yield refused("verdict", "a verdict needs the evaluation that gives it")
            if self.against != "base":
                yield refused("against", "nothing is compared without an evaluation", "remove it")
            return
        if self.verdict is None:
            fix = "write better, worse or equivalent"
            yield refused("verdict", "an evaluation needs the verdict that is expected", fix)
        if self.step is None:
            yield refused("step", "a verdict is of the checkpoint at a step", "write the step")
        for name in ("metric", "above", "below"):
            if getattr(self, name) is not None:
                yield refused(name, "a milestone is on a metric or on a verdict", "write two")


def check_bounds(above: float | None, below: float | None) -> None:
    """Raise where not exactly one of the bounds is given."""
    if (above is None) == (below is None):
        found = "neither" if above is None else "both"
        raise refused("above", f"{found} of 'above' and 'below' given", "write one of them")


def check_watched(
    guards: Mapping[str, GuardSpec],
    milestones: Mapping[str, MilestoneSpec],
    stages: Mapping[str, int | None],
) -> Iterator[PydanticCustomError]:
    """Guards and milestones name stages that exist; `stages` has their steps where given."""
    for name, guard in guards.items():
        if guard.stage is not None and guard.stage not in stages:
            fix = nearest(guard.stage, stages)
            yield refused(f"guard.{name}.stage", f"no stage {guard.stage!r}", fix)
    for name, milestone in milestones.items():
        place = f"milestone.{name}"
        if milestone.stage not in stages:
            fix = nearest(milestone.stage, stages)
            yield refused(f"{place}.stage", f"no stage {milestone.stage!r}", fix)
        steps = stages.get(milestone.stage)
        if steps is not None and milestone.step is not None and milestone.step > steps:
            problem = f"step {milestone.step} never comes: {milestone.stage!r} has {steps} steps"
            yield refused(f"{place}.step", problem, "write an earlier step")


def check_verdicts(
    milestones: Mapping[str, MilestoneSpec],
    evaluations: Mapping[str, EvaluateSpec],
    stages: Mapping[str, tuple[int | None, int | None]],
) -> Iterator[PydanticCustomError]:
    """Milestones on a verdict name evaluations that measure both checkpoints; `stages` has their
    steps and after how many a checkpoint is made, where both are counted in steps."""
    for name, milestone in milestones.items():
        place, evaluation = f"milestone.{name}", milestone.evaluation
        if evaluation is None or milestone.step is None or milestone.stage not in stages:
            continue
        if evaluation not in evaluations:
            fix = nearest(evaluation, evaluations) if evaluations else "add it"
            yield refused(f"{place}.evaluation", f"no evaluation {evaluation!r}", fix)
            continue
        steps, every = stages[milestone.stage]
        is_last = milestone.step == steps
        # A stage counted in epochs, or with checkpoints by epochs, has its steps counted at work.
        if steps and not is_last and (every is None or milestone.step % every):
            problem = f"no checkpoint is made at step {milestone.step}"
            fix = f"write {steps}, the last" + (f", or a multiple of {every}" if every else "")
            yield refused(f"{place}.step", problem, fix)
        yield from _unmeasured(place, milestone, evaluations[evaluation], is_last)


def _unmeasured(
    place: str, milestone: MilestoneSpec, evaluation: EvaluateSpec, is_last: bool
) -> Iterator[PydanticCustomError]:
    """The checkpoints of a milestone that its evaluation does not measure."""
    own = CheckpointReference(milestone.stage, "step", milestone.step)
    measured = [parse_checkpoint(text) for text in evaluation.checkpoints]
    same = {own, CheckpointReference(milestone.stage, "all")}
    same |= {CheckpointReference(milestone.stage, "last")} if is_last else set()
    if not same.intersection(filter(None, measured)):
        text = f"{milestone.stage}.step-{milestone.step}"
        problem = f"evaluation {milestone.evaluation!r} does not measure {text}"
        yield refused(f"{place}.step", problem, f'add "{text}" to its checkpoints')
    against = parse_checkpoint(milestone.against)
    if against is None or against.which == "all":
        fix = "write base, STAGE.best, STAGE.last or STAGE.step-N"
        yield refused(f"{place}.against", f"{milestone.against!r} is not a checkpoint", fix)
    elif against == own:
        yield refused(f"{place}.against", "it is the checkpoint itself", "name another")
    elif not {against, CheckpointReference(against.stage, "all")}.intersection(
        filter(None, measured)
    ):
        problem = f"evaluation {milestone.evaluation!r} does not measure {milestone.against}"
        yield refused(f"{place}.against", problem, f'add "{milestone.against}" to its checkpoints')
