"""How near Assay's update and rollout come to the arithmetic bound of this machine.

    python -m benchmarks.limit full
    python -m benchmarks.limit full --only bf16

Each cell works out the least time that the needed operations and bytes can take at the rates
measured on this machine in one thread (`roofline`), and measures the CPU-seconds of Assay's update
or of its generation, which includes laying the changed weights out for the sampler.
"""

from dataclasses import asdict, dataclass

import torch
from transformers import AutoConfig

from assay.models.memory import model_shape
from benchmarks.driver import (
    Limits,
    Side,
    chosen_cells,
    measure_in_turn,
    measure_missing,
    running,
)
from benchmarks.models import model_folder
from benchmarks.results import machine
from benchmarks.roofline import Load, Rates, rollout_parts, update_parts
from benchmarks.shapes import GrpoCell
from benchmarks.worker import Record

SUBJECT, MODEL = "limit", "smollm2"
ROUNDS = Limits(seconds=60, least=3, most=3)
PARTS = {"update": update_parts, "rollout": rollout_parts}


@dataclass(frozen=True)
class Cell:
    """What is measured against its bound."""

    what: str
    """`update` or `rollout`."""
    load: Load
    dtype: str

    @property
    def name(self) -> str:
        """Names the cell's result."""
        size = f"{self.load.prompt}x{self.load.completion}-{self.load.prompts}x{self.load.group}"
        return f"{self.what}-{size}-{self.dtype}"

    def side(self) -> Side:
        """Assay's side, with completions of forced lengths."""
        cell = GrpoCell(MODEL, dtype=self.dtype, **asdict(self.load))
        settings = {"method": "grpo", "cell": asdict(cell), "model": str(model_folder(MODEL))}
        return Side("assay", "benchmarks.assay_worker", settings)


UPDATES = ((32, 64), (256, 32), (1024, 64))


def cells() -> list[Cell]:
    """All cells."""
    dtypes = ("fp32", "bf16")
    updates = [Cell("update", Load(2, 8, *shape), d) for d in dtypes for shape in UPDATES]
    return [*updates, *(Cell("rollout", Load(8, 8, 64, 32), dtype) for dtype in dtypes)]


def measure(cell: Cell) -> Record:
    """The cell's result: the bound, the steps, and the profile."""
    torch.set_num_threads(1)
    shape = model_shape(AutoConfig.from_pretrained(model_folder(MODEL)))
    rates = Rates(shape, cell.dtype)
    parts = PARTS[cell.what](rates, cell.load)
    least = sum(part.seconds for part in parts)
    before = machine()
    with running([cell.side()]) as (workers, failures):
        measured = measure_in_turn(
            workers, failures, ROUNDS, lambda name, _: workers[name].ask("step")
        )
    found = {
        "cell": {"what": cell.what, "dtype": cell.dtype, **asdict(cell.load)},
        "model": MODEL,
        "parts": [part.record() for part in parts],
        "least_seconds": least,
        "bandwidth": rates.bandwidth,
        "best_rate": rates.best_rate(),
        "machine": before,
        **measured.record(),
    }
    if failures:
        return found
    clock = "update_cpu" if cell.what == "update" else "generation_cpu"
    taken = found["medians"]["assay"][clock]
    return found | {"cpu_seconds": taken, "share": least / taken}


def summary(result: Record) -> str:
    """The share of the bound."""
    return "  failed" if result["failures"] else f"  {result['share']:.0%} of the bound"


if __name__ == "__main__":
    _, chosen = chosen_cells(__doc__, Cell, {"full": cells})
    measure_missing(SUBJECT, chosen, measure, summary)
