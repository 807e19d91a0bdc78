"""What the GRPO comparison runs: its cells, prompts, rewards and settings, the same on every side.

Imports nothing outside the standard library, since each side reads it in an environment of its
own. Nothing here runs a model.

A cell's endings: `forced` completions all have the full length, as no token ends them; `natural`
ones end at one agreed token, which the driver picks so that a completion ends after about half the
full length (a model's own end token nearly never comes within 64 tokens of an arbitrary prompt).
"""

import os
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass

PROMPTS = 2
"""Prompts of one step."""
GROUP = 8
"""Completions of each prompt."""
ROWS = PROMPTS * GROUP
LEARNING_RATE = 1e-6
CLIP_NORM = 1.0
LORA_RANK, LORA_ALPHA = 16, 32.0
WARM_UP_PROMPT, WARM_UP_COMPLETION = 16, 8
"""The shape of step 0 at most, which makes the optimizer's moments and is not counted."""
MAX_STEPS = 21
MICRO_BATCHES = (2, 4, 8, 16)
"""TRL's per_device_train_batch_size; the accumulation is ROWS divided by it."""
CACHES = ("dynamic", "static")
"""TRL's cache_implementation: its default, and the static cache."""
CACHE_TRIAL_PROMPT, CACHE_TRIAL_COMPLETION = 128, 16
"""The caches are tried at this shape at most: prefill is the same with both."""
CHECK_PROMPT, CHECK_COMPLETION = 64, 16
"""Equality is checked at this shape at most."""
MODELS = {"smollm2": "SmolLM2-135M", "qwen3": "random Qwen3, 5 M"}
LONG = ((256, 1024), (128, 2048))
"""Reasoning shapes, on the small model only."""


@dataclass(frozen=True)
class Cell:
    """One comparison."""

    model: str
    """A name in MODELS."""
    prompt: int
    """Tokens of each prompt, exactly."""
    completion: int
    """Tokens of a completion: exactly, or at most with natural endings."""
    dtype: str = "fp32"
    """fp32, or bf16: matrix products in bf16 over fp32 weights on both sides."""
    endings: str = "forced"
    threads: int = 1
    lora: bool = False

    @property
    def name(self) -> str:
        """Names the cell's result."""
        parts = [self.model, f"{self.prompt}x{self.completion}", self.dtype, self.endings]
        return "-".join([*parts, f"{self.threads}t", *(["lora"] if self.lora else [])])


CORE_SHAPES = ((32, 64), (256, 32), (1024, 64))
FULL_SHAPES = (*CORE_SHAPES, (256, 128), (2048, 128))


def core_cells() -> list[Cell]:
    """The cells of `make bench`, in two threads where there are as many cores."""
    threads = min(2, os.cpu_count() or 1)
    return [
        Cell("smollm2", *shape, dtype, threads=threads)
        for shape in CORE_SHAPES
        for dtype in ("fp32", "bf16")
    ]


def full_cells() -> list[Cell]:
    """The whole grid, the core first."""
    shapes = [("smollm2", *shape) for shape in FULL_SHAPES]
    shapes += [("qwen3", *shape) for shape in (*FULL_SHAPES, *LONG)]
    cells = [
        Cell(*shape, dtype, endings, threads)
        for threads in (1, 2)
        for endings in ("forced", "natural")
        for dtype in ("fp32", "bf16")
        for shape in shapes
    ]
    cells.append(Cell("smollm2", 256, 32, lora=True))
    return list(dict.fromkeys([*core_cells(), *cells]))


def cell_record(cell: Cell) -> dict[str, object]:
    """The cell as JSON holds it."""
    return asdict(cell)


def prompt_of(cell: Cell, vocabulary: int, step: int, which: int) -> list[int]:
    """Token ids of a prompt: arbitrary ordinary tokens, the same on every side."""
    length = cell.prompt if step else min(WARM_UP_PROMPT, cell.prompt)
    generator = random.Random(f"prompt {step} {which}")
    return [generator.randrange(vocabulary // 8, vocabulary) for _ in range(length)]


def reward_of(tokens: Sequence[int]) -> float:
    """A reward that any two completions nearly surely differ in: their token sum modulo 97."""
    return (sum(tokens) % 97) / 97


def groups_with_signal(rewards: Sequence[float]) -> int:
    """How many groups of GROUP neighbours have rewards that are not all equal."""
    groups = [rewards[i : i + GROUP] for i in range(0, len(rewards), GROUP)]
    return sum(len(set(group)) > 1 for group in groups)
