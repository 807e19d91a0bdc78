"""The `[engine]` table: who samples completions and where, and how many processes train."""

from typing import Literal

from pydantic import Field

from assay.experiment.base_table import Table


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
