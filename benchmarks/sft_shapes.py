"""What the SFT comparison runs: its cells, documents and settings, the same on every side.

Imports nothing outside the standard library, since each side reads it in an environment of its
own. Documents come from the driver as a file: pairs of prompt and answer token ids.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

DOCUMENTS = 16
"""Documents of one optimizer update; with packing, packed rows of about as many tokens."""
LEARNING_RATE = 1e-5
CLIP_NORM = 1.0
MAX_STEPS = 40
MICRO_BATCHES = (2, 4, 8, 16)
"""TRL's per_device_train_batch_size without packing."""
PACKED_LENGTHS = (512, 1024, 2048)
"""TRL's max_length with packing, one packed row in a micro-batch."""
MODES = ("padded", "packed")
CHECKED, CHECK_LENGTH = 4, 1024
"""Documents whose loss and gradients are compared; packed, one row of at most this length."""

Document = tuple[list[int], list[int]]
"""Token ids of a prompt, and of the answer that is trained."""


@dataclass(frozen=True)
class SftCell:
    """One comparison."""

    model: str
    dtype: str = "fp32"
    threads: int = 1

    @property
    def name(self) -> str:
        """Names the cell's result."""
        return f"{self.model}-{self.dtype}-{self.threads}t"


def core_cells() -> list[SftCell]:
    """The cells of the short run."""
    return [SftCell("smollm2", dtype) for dtype in ("fp32", "bf16")]


def full_cells() -> list[SftCell]:
    """All cells, the core first."""
    rest = [
        SftCell(model, dtype, threads)
        for threads in (1, 2)
        for model in ("smollm2", "qwen3")
        for dtype in ("fp32", "bf16")
    ]
    return list(dict.fromkeys([*core_cells(), *rest]))


def cell_record(cell: SftCell) -> dict[str, object]:
    """The cell as JSON holds it."""
    return asdict(cell)


def read_documents(file: str) -> list[Document]:
    """The documents that the driver wrote."""
    return [(prompt, answer) for prompt, answer in json.loads(Path(file).read_text())]
