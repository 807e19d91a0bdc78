"""The `[engine]` table: who samples completions and where, what an engine cannot do, and how many
processes train."""

from collections.abc import Iterator, Mapping
from typing import Literal

from pydantic import Field
from pydantic_core import PydanticCustomError

from assay.experiment.base_table import Table, refused
from assay.experiment.stage_tables import SamplingStage, StageSpec
from assay.experiment.tables import EvaluateSpec
from assay.experiment.training_settings import Schedule

WITHOUT_TOKENS = ("openai:", "workflow:", "selector:")
"""Models that no engine samples tokens of."""
COLDEST, WARMEST = 0.01, 2.0
"""vLLM raises temperatures between 0 and the first to it, and refuses those above the second."""


class EngineSpec(Table):
    """Who samples completions, and how many train."""

    sample: Literal["own", "vllm"] = "own"
    """`own`: Assay's engines; `vllm`: vLLM in its own process, by `assay engines add vllm`. See
    docs/engines.md."""
    evaluate: str = "own"
    """Where evaluations are answered. `own`: in this process; `ray`: in processes that Ray spreads
    over this machine; `ray://HOST:10001` or `HOST:6379`: over the cluster there."""
    ranks: int = Field(default=1, ge=1, le=1024)
    """Processes that train one model together, each with a GPU or its share of the cores."""
    sharded: bool | None = None
    """Whether each of several `ranks` holds a part of weights, gradients and moments (FSDP2);
    absent: where they would not fit whole."""
    patience: float = Field(default=30, gt=0)
    """Minutes for which another process of a training may say nothing, a rank, vLLM's or a tool's;
    then the run ends, to be resumed."""


def patience_seconds(engine: EngineSpec | None) -> float:
    """For how long a process may say nothing."""
    return 60 * (engine or EngineSpec()).patience


def check_engine(
    engine: EngineSpec | None,
    model: str,
    stages: Mapping[str, StageSpec],
    evaluations: Mapping[str, EvaluateSpec],
) -> Iterator[PydanticCustomError]:
    """What an engine cannot honour is named, and never left out."""
    if engine is None:
        return
    if engine.sharded and engine.ranks == 1:
        yield refused("engine.sharded", "one process holds all weights", "set engine.ranks")
    if engine.sample == "own":
        return
    if engine.sharded:
        problem = "what vLLM answers is proven with whole weights on rank 0"
        yield refused("engine.sharded", problem, "leave it out, or engine.sample")
    if model.startswith(WITHOUT_TOKENS):
        problem = f"vLLM samples language models, and {model!r} is none with weights here"
        yield refused("engine.sample", problem, "remove it")
    tables = {f"stage.{n}": s for n, s in stages.items() if isinstance(s, SamplingStage)}
    for place, table in (tables | {f"evaluate.{n}": e for n, e in evaluations.items()}).items():
        written, field = table.sampling.temperature, f"{place}.sampling.temperature"
        ends = (written.start, written.end) if isinstance(written, Schedule) else (written,)
        for temperature in filter(None, ends):
            if temperature < COLDEST:
                problem = f"vLLM would sample at {COLDEST} instead of {temperature:g}"
                fix = "write 0 for the likeliest tokens, or leave engine.sample out"
                yield refused(field, problem, fix)
            elif temperature > WARMEST:
                problem = f"vLLM samples up to {WARMEST:g}, not at {temperature:g}"
                yield refused(field, problem, "leave engine.sample out")
