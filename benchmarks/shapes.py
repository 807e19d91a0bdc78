"""What the comparisons with TRL run: cells, prompts, rewards and settings, the same on every side.

Imports nothing outside the standard library, since each side reads it in an environment of its
own. Runs no model.
"""

import json
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PEERS = ("trl-1.16", "trl-1.12")
MODELS = {"smollm2": "SmolLM2-135M", "qwen3": "Qwen3-5M"}
CLIP_NORM = 1.0
MICRO_BATCHES = (2, 4, 8, 16)
"""TRL's per_device_train_batch_size."""
CHECK_PROMPT, CHECK_COMPLETION = 64, 16
"""Loss and gradients of GRPO are compared at this shape at most."""

GRPO_RATE, SFT_RATE = 1e-6, 1e-5
LORA_RANK, LORA_ALPHA = 16, 32.0
WARM_UP_PROMPT, WARM_UP_COMPLETION = 16, 8
"""The shape of step 0 at most, which makes the optimizer's moments and is not counted."""
GRPO_STEPS, SFT_STEPS = 21, 40
"""Steps that TRL's trainers are made for."""
CACHES = ("dynamic", "static")
"""TRL's cache_implementation: its default, and the static cache."""
CACHE_PROMPT, CACHE_COMPLETION = 128, 16
"""The caches are tried at this shape at most: reading the prompt costs the same with both."""

DOCUMENTS = 16
"""Documents of one SFT update; with TRL's packing, packed rows of about as many tokens."""
PACKED_LENGTHS = (512, 1024, 2048)
"""TRL's max_length with packing, one packed row in a micro-batch."""
UNCUT = 1024
"""TRL's max_length without packing: longer than any document."""
MODES = ("padded", "packed")
CHECKED, CHECK_LENGTH = 4, 1024
"""Documents whose loss and gradients are compared; packed, one row of at most this length."""

Document = tuple[list[int], list[int]]
"""Token ids of a prompt, and of the answer that is trained."""


@dataclass(frozen=True)
class GrpoCell:
    """One comparison of GRPO steps."""

    model: str
    """A name in MODELS."""
    prompt: int
    """Tokens of each prompt, exactly."""
    completion: int
    """Tokens of a completion: exactly, or at most with natural endings."""
    dtype: str = "fp32"
    """fp32, or bf16: matrix products in bf16 over fp32 weights on both sides."""
    endings: str = "forced"
    """`forced`: all have the full length; `natural`: they end at one agreed token, chosen so that
    a completion ends after about half of it."""
    threads: int = 1
    lora: bool = False
    prompts: int = 2
    """Prompts of one step."""
    group: int = 8
    """Completions of each prompt."""

    @property
    def name(self) -> str:
        """Names the cell's result."""
        parts = [self.model, f"{self.prompt}x{self.completion}", self.dtype, self.endings]
        return "-".join([*parts, f"{self.threads}t", *(["lora"] if self.lora else [])])

    @property
    def rows(self) -> int:
        """Completions of one step."""
        return self.prompts * self.group


CORE_SHAPES = ((32, 64), (256, 32), (1024, 64))
FULL_SHAPES = (*CORE_SHAPES, (256, 128), (2048, 128))
LONG_SHAPES = ((256, 1024), (128, 2048))
"""Reasoning shapes, on the small model only."""


def grpo_core() -> list[GrpoCell]:
    """The cells of `make bench`, in two threads where there are as many cores."""
    threads = min(2, os.cpu_count() or 1)
    return [
        GrpoCell("smollm2", *shape, dtype, threads=threads)
        for shape in CORE_SHAPES
        for dtype in ("fp32", "bf16")
    ]


def grpo_full() -> list[GrpoCell]:
    """The whole grid, the core first."""
    shapes = [("smollm2", *shape) for shape in FULL_SHAPES]
    shapes += [("qwen3", *shape) for shape in (*FULL_SHAPES, *LONG_SHAPES)]
    cells = [
        GrpoCell(*shape, dtype, endings, threads)
        for threads in (1, 2)
        for endings in ("forced", "natural")
        for dtype in ("fp32", "bf16")
        for shape in shapes
    ]
    cells.append(GrpoCell("smollm2", 256, 32, lora=True))
    return list(dict.fromkeys([*grpo_core(), *cells]))


@dataclass(frozen=True)
class SftCell:
    """One comparison of SFT updates."""

    model: str
    dtype: str = "fp32"
    threads: int = 1
    side: str = ""
    """The only one of TRL's that is measured, such as `trl-1.16 packed`; all where it is empty."""

    @property
    def name(self) -> str:
        """Names the cell's result."""
        own = f"-{self.side.replace(' ', '-')}" if self.side else ""
        return f"{self.model}-{self.dtype}-{self.threads}t{own}"


def sft_core() -> list[SftCell]:
    """The cells of the short run."""
    return [SftCell("smollm2", dtype) for dtype in ("fp32", "bf16")]


def sft_full() -> list[SftCell]:
    """All cells, the core first."""
    rest = [
        SftCell(model, dtype, threads)
        for threads in (1, 2)
        for model in ("smollm2", "qwen3")
        for dtype in ("fp32", "bf16")
    ]
    return list(dict.fromkeys([*sft_core(), *rest]))


def read_documents(file: str) -> list[Document]:
    """The documents that the driver wrote."""
    return [(prompt, answer) for prompt, answer in json.loads(Path(file).read_text())]


def prompt_of(cell: GrpoCell, vocabulary: int, step: int, which: int) -> list[int]:
    """Token ids of a prompt: arbitrary ordinary tokens, the same on every side."""
    length = cell.prompt if step else min(WARM_UP_PROMPT, cell.prompt)
    generator = random.Random(f"prompt {step} {which}")
    return [generator.randrange(vocabulary // 8, vocabulary) for _ in range(length)]


def as_text(tokens: Sequence[int]) -> str:
    """The text that `models.id_tokenizer` turns into exactly these ids, for TRL's text prompts."""
    return " ".join(f"<{token}>" for token in tokens)


def reward_of(tokens: Sequence[int]) -> float:
    """A reward that any two completions nearly surely differ in: their token sum modulo 97."""
    return (sum(tokens) % 97) / 97


def completion_facts(completions: Sequence[Sequence[int]], group: int) -> dict[str, int]:
    """Lengths, and how many groups of neighbours have rewards that are not all equal."""
    rewards = list(map(reward_of, completions))
    groups = [rewards[i : i + group] for i in range(0, len(rewards), group)]
    lengths = list(map(len, completions))
    return {
        "completion_tokens": sum(lengths),
        "longest": max(lengths),
        "groups_with_signal": sum(len(set(each)) > 1 for each in groups),
    }
