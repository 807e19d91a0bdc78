"""What the training method of a stage is built from.

Building it is `stage_methods`'s.
"""

from dataclasses import dataclass

from assay.data.row import Row
from assay.data.row_order import RowOrder
from assay.lab.setup.learner import Encoder
from assay.tasks.running import RewardRunner
from assay.tasks.task import Task
from assay.train.loop import Check as BatchCheck


@dataclass(frozen=True)
class StageInput:
    """The inputs that a method is built from."""

    task: Task
    rows: tuple[Row, ...]
    encoder: Encoder
    seed: int
    runner: RewardRunner | None
    """Judges completions; None for methods that do not sample."""
    positions: int | None = None
    """Tokens that the learner can read at once; None where nothing bounds them."""
    first_batch_check: BatchCheck | None = None
    """Checks the first update of a GRPO stage."""
    order: RowOrder | None = None
    """Order in which the stage visits the rows; None: shuffled anew each epoch."""
