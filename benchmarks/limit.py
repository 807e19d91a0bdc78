"""How near Assay's rollout and update come to what this machine can do, and where the rest goes.

    python benchmarks/limit.py             all cells that have no result
    python benchmarks/limit.py --only bf16

Each cell measures, in one thread, the machine's rate for the products of that shape and its memory
bandwidth, works out the least time the needed work can take (`roofline`), measures the CPU-seconds
that Assay takes (the median of a few, after a warm-up) and profiles one more call by part.
"""

import argparse
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from cells import result_file, save_result
from profile_parts import profile_shares
from roofline import Load, Machine, Part, rollout_parts, update_parts
from steps import (
    MODEL,
    Trainee,
    arbitrary_tokens,
    batch_of,
    make_trainee,
    sample_groups,
    single_turns,
    timed,
    train_on,
)
from workers import machine

from assay.models.memory import model_shape
from assay.models.precision import bf16_hardware

NAME = "limit"
REPEATS = 3


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


UPDATES = ((32, 64), (256, 32), (1024, 64))
CELLS = [
    *(Cell("update", Load(2, 8, *shape), d) for d in ("fp32", "bf16") for shape in UPDATES),
    *(Cell("rollout", Load(8, 8, 64, 32), dtype) for dtype in ("fp32", "bf16")),
]


def actions(trainee: Trainee, cell: Cell) -> Callable[[int], object]:
    """The call to be measured, by repeat.

    A rollout has other prompts each time, and the weights count as changed before it, as they are
    in training: laying them out anew for the sampler is part of its cost.
    """
    load = cell.load

    def rollout(repeat: int) -> Any:
        trainee.policy.updated()
        names = [f"limit {repeat} {n}" for n in range(load.prompts)]
        prompts = [arbitrary_tokens(load.prompt, name) for name in names]
        return sample_groups(trainee, prompts, load.group, load.completion, repeat)

    if cell.what == "rollout":
        return rollout
    packed = batch_of(single_turns(rollout(0), load.group))
    return lambda repeat: train_on(trainee, packed)


def measure(cell: Cell) -> dict[str, Any]:
    """The cell's result."""
    trainee = make_trainee(cell.dtype)
    shape = model_shape(trainee.config)
    rates = Machine(shape, cell.dtype)
    parts = (rollout_parts if cell.what == "rollout" else update_parts)(rates, cell.load)
    action = actions(trainee, cell)
    action(0)
    taken = [timed(partial(action, 1 + n))[0] for n in range(REPEATS)]
    shares = profile_shares(partial(action, 1 + REPEATS), shape.vocabulary)
    return {
        "cell": {"what": cell.what, "dtype": cell.dtype, **asdict(cell.load)},
        "model": MODEL,
        "parts": [part.record() for part in parts],
        "bandwidth": rates.bandwidth,
        "best_rate": rates.best_rate(),
        **bound(parts, rates.best_rate(), statistics.median(taken)),
        "cpu_seconds_all": taken,
        "profile": shares,
        "machine": machine(),
    }


def bound(parts: list[Part], best_rate: float, taken: float) -> dict[str, float]:
    """The least time and the share of it; a second one if every product ran at the best rate."""
    least = sum(part.seconds for part in parts)
    ideal = sum(max(part.flops / best_rate, part.bytes / part.bandwidth) for part in parts)
    return {
        "least_seconds": least,
        "cpu_seconds": taken,
        "share": least / taken,
        "share_of_best_rate": ideal / taken,
    }


def main() -> None:
    """Measure the cells that have no result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="cells whose name contains this")
    only = parser.parse_args().only
    for cell in CELLS:
        if cell.dtype == "bf16" and not bf16_hardware("cpu"):
            continue
        if only in cell.name and not result_file(NAME, cell.name).exists():
            result = measure(cell)
            file = save_result(NAME, cell.name, result)
            print(f"{file.stem}: {result['share']:.0%} of the roofline", flush=True)


if __name__ == "__main__":
    main()
