"""TensorBoard: event files under `DIR/tensorboard/NAME/ID`, written by PyTorch's writer.

Values are stored as float32, as TensorBoard's scalars are.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from assay.compare.score_rows import ScoreRow
from assay.lab.monitor.sinks.sink import Opening, score_table, score_values
from assay.runs.status import RunState

if TYPE_CHECKING:  # an optional package
    from torch.utils.tensorboard.writer import SummaryWriter


@dataclass(frozen=True)
class TensorBoard:
    """See `sink.Sink`."""

    writer: "SummaryWriter"
    remote: str
    step: None = None

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """See `Sink.metrics`."""
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()

    def scores(self, step: int, rows: Sequence[ScoreRow]) -> None:
        """See `Sink.scores`."""
        for name, value in score_values(rows).items():
            self.writer.add_scalar(name, value, step)
        self.writer.add_text("verdicts", score_table(rows), step)

    def pages(self, files: Sequence[Path]) -> None:
        """The Markdown page, as text."""
        for file in files:
            if file.suffix == ".md":
                self.writer.add_text("report", file.read_text(encoding="utf-8"))

    def close(self, state: RunState) -> None:
        """See `Sink.close`."""
        self.writer.close()


def open_tensorboard(given: Opening) -> TensorBoard:
    """The event files of a run; what a killed process wrote beyond the last step is taken back."""
    from torch.utils.tensorboard.writer import SummaryWriter

    folder = given.folder / "tensorboard" / given.run.name / given.id
    resumed = given.step + 1 if given.remote else None
    writer = SummaryWriter(str(folder), purge_step=resumed)
    if not given.remote:
        text = json.dumps(given.config, indent=2, ensure_ascii=False)
        writer.add_text("config", f"```json\n{text}\n```")
    writer.flush()
    return TensorBoard(writer, given.id)
