"""The tables `[evaluate.NAME]`, `[note]`, `[log]`, `[engine]`, `[guard.NAME]`, `[milestone.NAME]`.

Only the accepted values are defined here. Items are read in `lab.session.evaluation`; guards and
milestones are applied in `lab.monitor`. Nothing is computed from `[note]` and `[log]`.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from assay.experiment.base_table import (
    Count,
    Few,
    Many,
    Positive,
    Refusals,
    RenderingSettings,
    SpecTable,
    refused,
)
from assay.experiment.checkpoint_reference import CheckpointReference, parse_checkpoint
from assay.experiment.data_tables import Take
from assay.experiment.reward_tables import Reward, RewardSettings
from assay.experiment.training_settings import SamplingSpec


class EvaluationSampling(SamplingSpec):
    """How answers are drawn for an evaluation."""

    temperature: Annotated[float, Field(ge=0, le=100)] = 0.0  # pyright: ignore[reportIncompatibleVariableOverride]
    """0 is greedy decoding; else at least 0.001."""

    def _conflicts(self) -> Refusals:
        if 0 < self.temperature < 1e-3:
            problem = f"must be 0 or at least 0.001, not {self.temperature:g}"
            yield refused("temperature", problem, "0 is greedy decoding")


class EvaluateSpec(RewardSettings, RenderingSettings):
    """Items of a benchmark, or of a data set with a reward. `rendering`, `template_options`,
    `keep_special`, `reward_...`: as in stages."""

    benchmark: str | None = None
    """Such as `bfcl/simple_python`; this or `data`."""
    data: str | None = None
    """Rows such as `train.dev`, scored by `reward`."""
    role: Literal["select", "report"]
    """`select` may choose checkpoints (`STAGE.best`); `report` never does."""
    checkpoints: Annotated[Many[str], Field(min_length=1)]
    """`base`, `STAGE.best`, `STAGE.last`, `STAGE.step-N`, or `STAGE.all`."""
    repeats: Few = 1
    """Full passes over the items."""
    take: Take | None = None
    fewer: dict[str, Count] = Field(default_factory=dict)
    """`base` or stages whose checkpoints answer only so many items, `{ base = 100 }`."""
    same_prompt: bool | None = None
    """Items may share training prompts, because a hidden state differs; omitted: those of
    dialogues."""
    sampling: EvaluationSampling = EvaluationSampling()
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the benchmark, such as `examples` in the prompt."""
    reward: Reward | None = None
    """Scores answers to `data`."""

    @property
    def references(self) -> list[CheckpointReference]:
        """What `checkpoints` name; the experiment has checked that each of them parses."""
        return [each for each in map(parse_checkpoint, self.checkpoints) if each is not None]

    def _conflicts(self) -> Refusals:
        if self.fewer and self.role == "select":
            problem = "checkpoints are chosen on the same items"
            yield refused("fewer", problem, "remove it, or take fewer for all")
        known = sorted({text.partition(".")[0] for text in self.checkpoints})
        for name in sorted(self.fewer.keys() - set(known)):
            problem = f"no checkpoint of {name!r} is measured"
            yield refused(f"fewer.{name}", problem, "one of " + ", ".join(known))
        yield from (wrong := [*self._one_of("benchmark", "data")])
        if not wrong and self.data is not None and self.reward is None:
            yield refused("reward", "an evaluation on data needs a reward")
        if not wrong and self.benchmark is not None and self.reward is not None:
            yield refused("reward", "a benchmark is scored by its own checker", "remove it")
        if not wrong and self.data is not None and self.options:
            yield refused("options", "only a benchmark has options", "remove it")


class NoteSpec(SpecTable):
    """For the notebook; no result depends on it."""

    why: str = ""
    """The question that it answers."""
    expected: str = ""
    """What it should show, written before it is run."""
    faults: Many[str] = ()
    """What is wrong with it, a line each."""


class LogSpec(SpecTable):
    """Programs that get metrics, scores and verdicts."""

    to: Annotated[Many[str], Field(min_length=1)]
    """`wandb`, `trackio`, `mlflow`, `tensorboard`; each needs the extra of its name."""
    project: str | None = None
    """Project, or experiment of `mlflow`; omitted: the experiment's name. Not for `tensorboard`."""


class GuardSpec(SpecTable):
    """Stops the run, with its checkpoint kept, where a metric meets it."""

    metric: str
    """Of `metrics.jsonl`, such as `truncated_share`."""
    above: float | None = None
    """Stop above this; this or `below`. Values that are not finite stop too."""
    below: float | None = None
    """Stop below this."""
    steps: Count = 1
    """Steps in a row that record the metric."""
    stage: str | None = None
    """Omitted: every stage."""

    def _conflicts(self) -> Refusals:
        return self._one_of("above", "below")


class MilestoneSpec(SpecTable):
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
    """Whose verdict is expected at `step`."""
    verdict: Literal["better", "worse", "equivalent"] | None = None
    """Of `evaluation`, item by item against `against`."""
    against: str = "base"
    """The checkpoint compared with."""

    def _conflicts(self) -> Refusals:
        if self.evaluation is None:
            if self.verdict is not None:
                yield refused("verdict", "a verdict needs the evaluation that gives it")
            if self.against != "base":
                yield refused("against", "nothing is compared without an evaluation", "remove it")
            if self.metric is not None:
                yield from self._one_of("above", "below")
            elif self.above is not None or self.below is not None:
                yield refused("metric", "a bound needs the metric that it is about")
            elif self.step is None:
                yield refused("step", "a milestone needs a step, a metric, or both")
            return
        if self.verdict is None:
            fix = "write better, worse or equivalent"
            yield refused("verdict", "an evaluation needs the verdict that is expected", fix)
        if self.step is None:
            yield refused("step", "a verdict is of the checkpoint at a step", "write the step")
        keys, problem = ("metric", "above", "below"), "a milestone is on a metric or on a verdict"
        yield from self._unread(keys, problem, "write two")


class AgentSpec(SpecTable):
    """A program that asks the policy through OpenAI's interface, once for each row; what it returns
    is the reward (docs/agents.md). `agent = "path:FILE.py:FUNCTION"` is short for `function`, a
    bare `"verifiers"` for that task's program."""

    function: str | None = None
    """`path:FILE.py:FUNCTION`, called with the row and a client of OpenAI's shape; this or
    `command`."""
    command: Annotated[Many[str], Field(min_length=1)] | None = None
    """A program: its row is its standard input, as JSON; its last line is `{"reward": 1.0}`."""
    kept: bool = False
    """A command that reads a row a line, `{"row", "api_key", "base_url"}`, and goes on."""
    concurrency: Few = 16
    """Episodes at once."""
    deadline: Positive = 600.0
    """Seconds for an episode."""

    def _conflicts(self) -> Refusals:
        yield from self._one_of("function", "command")
        if self.kept and self.command is None:
            yield refused("kept", "is for a command", "remove it: functions are kept loaded")


class EngineSpec(SpecTable):
    """Who samples completions, and how many train."""

    sample: Literal["own", "vllm"] = "own"
    """Assay's engines, or vLLM in its own process (docs/engines.md)."""
    evaluate: str = "own"
    """Who answers evaluations: this process, or `ray` on this machine, or the cluster at
    `ray://HOST:10001` or `HOST:6379`."""
    ranks: int = Field(default=1, ge=1, le=1024)
    """Processes that train one model, each with a GPU or its share of the cores."""
    sharded: bool | None = None
    """Each rank holds a part of weights, gradients and moments (FSDP2); omitted: where whole ones
    would not fit."""
    patience: float = Field(default=30, gt=0)
    """Minutes that a rank, vLLM or another tool may be silent before the run ends, to be
    resumed."""


def patience_seconds(engine: EngineSpec | None) -> float:
    """For how long a process may say nothing."""
    return 60 * (engine or EngineSpec()).patience
