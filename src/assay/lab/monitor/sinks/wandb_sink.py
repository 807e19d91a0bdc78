"""Weights & Biases: one run for each run of Assay, in the project of the experiment.

The key is WANDB_API_KEY or the one that `wandb login` stored. Console output and code are not sent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from assay.compare.score_rows import ScoreRow
from assay.lab.monitor.sinks.sink import Opening, score_values, verdicts
from assay.runs.status import RunState

if TYPE_CHECKING:  # an optional package
    from wandb import Run  # type: ignore[import-not-found]


@dataclass(frozen=True)
class WeightsAndBiases:
    """See `sink.Sink`."""

    run: "Run"
    remote: str
    step: None = None

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """See `Sink.metrics`."""
        self.run.log(dict(values), step=step)

    def scores(self, step: int, rows: Sequence[ScoreRow]) -> None:
        """In the summary of the run."""
        self.run.summary.update({**score_values(rows), **verdicts(rows)})

    def pages(self, files: Sequence[Path]) -> None:
        """An artifact of all pages."""
        import wandb  # type: ignore[import-not-found]

        artifact = wandb.Artifact(f"report-{self.remote}", type="report")
        for file in files:
            artifact.add_file(str(file))
        self.run.log_artifact(artifact)

    def close(self, state: RunState) -> None:
        """See `Sink.close`."""
        self.run.finish(exit_code=0 if state == "finished" else 1)


def open_wandb(given: Opening) -> WeightsAndBiases:
    """The run with this id, continued if it exists."""
    import wandb  # type: ignore[import-not-found]

    given.folder.mkdir(parents=True, exist_ok=True)
    quiet = wandb.Settings(console="off", silent=True, disable_code=True, save_code=False)
    run = wandb.init(
        entity=given.log.entity,
        project=given.project,
        name=given.name,
        id=given.remote or given.id,
        resume="allow",
        dir=given.folder,
        config=dict(given.config),
        mode="offline" if given.log.offline else None,
        reinit="create_new",
        settings=quiet,
    )
    return WeightsAndBiases(run, run.id)
