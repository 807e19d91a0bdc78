"""Trackio: one run for each run of Assay, in the project of the experiment.

On this machine, in TRACKIO_DIR, or in a Space of Hugging Face with the token of `hf auth login`.
"""

import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from assay.compare.score_rows import ScoreRow
from assay.lab.monitor.sinks.sink import Opening, flattened, score_values, verdicts
from assay.runs.status import RunState

if TYPE_CHECKING:  # an optional package
    from trackio import Run  # type: ignore[import-not-found]


@dataclass(frozen=True)
class Trackio:
    """See `sink.Sink`."""

    run: "Run"
    remote: str
    step: int | None

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """See `Sink.metrics`."""
        self.run.log(dict(values), step=step)

    def scores(self, step: int, rows: Sequence[ScoreRow]) -> None:
        """See `Sink.scores`."""
        self.run.log({**score_values(rows), **verdicts(rows)}, step=step)

    def pages(self, files: Sequence[Path]) -> None:
        """An artifact of each page."""
        for file in files:
            name = f"{self.remote}-{file.name}"
            self.run.log_artifact(file, name=name, type="report")

    def close(self, state: RunState) -> None:
        """See `Sink.close`."""
        with redirect_stdout(sys.stderr):
            self.run.finish()


def open_trackio(given: Opening) -> Trackio:
    """The run with this name, continued if it exists."""
    with redirect_stdout(sys.stderr):  # a program may read what Assay prints
        import trackio  # type: ignore[import-not-found]

        run = trackio.init(
            project=given.project,
            name=given.remote or given.id,
            space_id=given.log.space,
            config=flattened(given.config),
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
    # It stores steps in batches, of which a killed process loses the last.
    return Trackio(run, run.name, run._next_step - 1 if given.remote else None)
