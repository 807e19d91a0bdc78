"""The `[evaluate.NAME]` tables: what is measured, on which checkpoints, and what for."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from assay.experiment.base_table import Count, Few, Many, Table, Tokens, raise_all, refused
from assay.experiment.data_table import Take
from assay.experiment.training_tables import Reward


class EvaluationSampling(Table):
    """How answers are drawn for an evaluation."""

    temperature: Annotated[float, Field(ge=0, le=100)] = 0.0
    """0 is greedy decoding; else at least 0.001."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Nucleus share; 1 samples from the full softmax."""
    top_k: Annotated[int, Field(ge=0)] = 0
    """Number of candidates; 0 means all."""
    max_tokens: Tokens = 256
    """Answers are cut, and counted as truncated, at this length."""

    @model_validator(mode="after")
    def _is_greedy_or_draws(self) -> Self:
        if 0 < self.temperature < 1e-3:
            problem = f"must be 0 or at least 0.001, not {self.temperature:g}"
            raise refused("temperature", problem, "0 is greedy decoding")
        return self


class EvaluateSpec(Table):
    """One evaluation: items from a benchmark, or from a data set with a reward."""

    benchmark: str | None = None
    """A benchmark by name, such as `bfcl/simple_python`; this or `data`."""
    data: str | None = None
    """Rows of a data set, such as `train.dev`, scored by `reward`; this or `benchmark`."""
    role: Literal["select", "report"]
    """`select` may choose checkpoints (`STAGE.best`); `report` never chooses. Items of one never
    serve the other. `STAGE.best` is the stage's start unless a later checkpoint is better."""
    checkpoints: Annotated[Many[str], Field(min_length=1)]
    """`base`, `STAGE.best`, `STAGE.last`, `STAGE.step-N`, or `STAGE.all` for every checkpoint."""
    repeats: Few = 1
    """Full passes over the items."""
    take: Take | None = None
    """Use only some items; omitted means all."""
    fewer: dict[str, Count] = Field(default_factory=dict)
    """Checkpoints that answer only so many of the items: `base` or a stage, with a number, such as
    `{ base = 100 }`. They are drawn by their ids before anything is measured, and comparisons are
    made on the items that both sides answered. Not where items choose."""
    sampling: EvaluationSampling = EvaluationSampling()
    """How answers are drawn."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the benchmark, such as `examples` in the prompt; its page lists them."""
    reward: Reward | None = None
    """How answers are scored, for `data`; a benchmark has its own checker."""
    rendering: str = "auto"
    """How conversations become text, as for stages."""

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
