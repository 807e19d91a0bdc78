"""MLflow: one run for each run of Assay, in an MLflow experiment named after the project.

At `uri`, else MLFLOW_TRACKING_URI, else in a file of SQLite under `DIR/mlflow`.
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from assay.compare.score_rows import ScoreRow
from assay.lab.monitor.sinks.sink import Opening, flattened, score_values, usual, verdicts
from assay.runs.status import RunState

if TYPE_CHECKING:  # an optional package
    from mlflow import MlflowClient  # type: ignore[import-not-found]

LONGEST, MOST = 6000, 100
"""Characters of a parameter, and parameters of one request, that MLflow takes."""
STATES: Mapping[RunState, str] = {"finished": "FINISHED", "failed": "FAILED"}
"""Other states are KILLED."""


@dataclass(frozen=True)
class MLflow:
    """See `sink.Sink`."""

    client: "MlflowClient"
    remote: str
    step: int | None = None

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """See `Sink.metrics`."""
        from mlflow.entities import Metric  # type: ignore[import-not-found]

        now = int(time.time() * 1000)
        found = [Metric(usual(name), value, now, step) for name, value in values.items()]
        self.client.log_batch(self.remote, metrics=found)

    def scores(self, step: int, rows: Sequence[ScoreRow]) -> None:
        """Scores are metrics, verdicts are tags."""
        self.metrics(step, score_values(rows))
        for name, verdict in verdicts(rows).items():
            self.client.set_tag(self.remote, usual(name), verdict)

    def pages(self, files: Sequence[Path]) -> None:
        """Artifacts of the run."""
        for file in files:
            self.client.log_artifact(self.remote, str(file))

    def close(self, state: RunState) -> None:
        """See `Sink.close`."""
        self.client.set_terminated(self.remote, STATES.get(state, "KILLED"))


def open_mlflow(given: Opening) -> MLflow:
    """The run with this id, continued; a new one in the project's experiment if there is none."""
    from mlflow import MlflowClient  # type: ignore[import-not-found]
    from mlflow.entities import Param  # type: ignore[import-not-found]

    folder = given.folder / "mlflow"
    uri = given.log.uri or os.environ.get("MLFLOW_TRACKING_URI")
    if uri is None:
        folder.mkdir(parents=True, exist_ok=True)
        uri = f"sqlite:///{folder / 'mlflow.db'}"
    client = MlflowClient(tracking_uri=uri)
    if given.remote:
        client.update_run(given.remote, status="RUNNING")
        return MLflow(client, given.remote, last_step(client, given.remote))
    known = client.get_experiment_by_name(given.project)
    place = (folder / "artifacts").as_uri() if uri.startswith("sqlite:") else None
    experiment = known.experiment_id if known else client.create_experiment(given.project, place)
    made = client.create_run(experiment, run_name=given.name, tags={"assay.run": str(given.run)})
    found = flattened(given.config).items()
    params = [Param(usual(key), str(value)[:LONGEST]) for key, value in found]
    for start in range(0, len(params), MOST):
        client.log_batch(made.info.run_id, params=params[start : start + MOST])
    return MLflow(client, made.info.run_id)


def last_step(client: "MlflowClient", run: str) -> int:
    """The last step of a run; every step of a stage has its seconds."""
    names = [n for n in client.get_run(run).data.metrics if n.endswith("/seconds")]
    return max((m.step for n in names for m in client.get_metric_history(run, n)), default=0)
