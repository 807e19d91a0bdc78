"""The sinks: Weights & Biases, Trackio, MLflow and TensorBoard, and what is refused before a run.

One remote run for each run of Assay, in the project of the experiment. Keys are read as each
program reads them; console output and code are not sent.
"""

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from assay.compare.judged_table import ScoreRow
from assay.errors import InputError, nearest
from assay.experiment.tables import LogSpec
from assay.judge.confounds import dotted
from assay.runs.run_directory import RunDirectory, RunState

_UNUSUAL = re.compile(r"[^\w\-. :/]")
"""Characters that not every program takes in a name."""


@dataclass(frozen=True)
class Sink:
    """One remote run. Any method may raise any Exception; it is called again later."""

    client: Any
    """What an optional package gives for the remote run."""
    remote: str
    """The id by which a later process continues the remote run."""
    step: int | None = None
    """The last step that the remote run says it has; None where it does not say."""

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Finite numbers of one step, which is counted over all stages from 1."""
        self.client.log(dict(values), step=step)

    def scores(self, step: int, rows: Sequence[ScoreRow]) -> None:
        """Scores and verdicts of the reporting evaluations, after the last step."""
        raise NotImplementedError

    def close(self, state: RunState) -> None:
        """Deliver everything and end the remote run; it may be continued later."""
        raise NotImplementedError


@dataclass(frozen=True)
class SinkOpening:
    """What a sink is opened with."""

    run: RunDirectory
    seed: int
    log: LogSpec
    remote: str
    """The remote run to continue; "" for a new one."""
    step: int
    """The last step that it has."""
    config: Mapping[str, Any]
    """The resolved experiment and the fingerprints."""

    @property
    def project(self) -> str:
        """Where runs of one experiment stand together."""
        return self.log.project or self.run.name

    @property
    def name(self) -> str:
        """The name of the remote run: one for each seed."""
        return f"{self.run.name}#{self.seed}"

    @property
    def id(self) -> str:
        """A name that no other run has: the run's id, which has its time and random digits."""
        return f"{self.run.name[:60]}-{self.run.id}"

    @property
    def folder(self) -> Path:
        """Where files are written on this machine."""
        return self.run.root / "log"


def score_values(rows: Sequence[ScoreRow]) -> dict[str, float]:
    """Scores, limits and differences by name, such as `test/rl.last/score`."""
    values: dict[str, float | None] = {}
    for row in rows:
        place = f"{row.evaluation}/{row.checkpoint}"
        values |= {f"{place}/score": row.score, f"{place}/low": row.low, f"{place}/high": row.high}
        values |= {f"{place}/items": row.items, f"{place}/difference": row.difference}
    return {name: value for name, value in values.items() if value is not None}


def verdicts(rows: Sequence[ScoreRow]) -> dict[str, str]:
    """By the same names the verdict against the control."""
    return {f"{r.evaluation}/{r.checkpoint}/verdict": r.verdict for r in rows if r.verdict}


class Trackio(Sink):
    """See `Sink`."""

    def scores(self, step: int, rows: Sequence[ScoreRow]) -> None:
        """See `Sink.scores`."""
        self.client.log({**score_values(rows), **verdicts(rows)}, step=step)

    def close(self, state: RunState) -> None:
        """See `Sink.close`."""
        with redirect_stdout(sys.stderr):
            self.client.finish()


def open_trackio(opening: SinkOpening) -> Trackio:
    """The run with this name, continued if it exists."""
    with redirect_stdout(sys.stderr):  # a program may read what Assay prints
        import trackio  # type: ignore[import-not-found]

        run = trackio.init(
            project=opening.project,
            name=opening.remote or opening.id,
            config=dotted(opening.config),
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
    # It stores steps in batches, of which a killed process loses the last.
    return Trackio(run, run.name, run._next_step - 1 if opening.remote else None)


class TensorBoard(Sink):
    """See `Sink`."""

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """See `Sink.metrics`."""
        for name, value in values.items():
            self.client.add_scalar(name, value, step)
        self.client.flush()

    def scores(self, step: int, rows: Sequence[ScoreRow]) -> None:
        """See `Sink.scores`."""
        self.metrics(step, score_values(rows))
        for name, verdict in verdicts(rows).items():
            self.client.add_text(name, verdict, step)

    def close(self, state: RunState) -> None:
        """See `Sink.close`."""
        self.client.close()


def open_tensorboard(opening: SinkOpening) -> TensorBoard:
    """The event files of a run; what a killed process wrote beyond the last step is taken back."""
    from torch.utils.tensorboard.writer import SummaryWriter

    folder = opening.folder / "tensorboard" / opening.run.name / opening.id
    resumed = opening.step + 1 if opening.remote else None
    writer = SummaryWriter(str(folder), purge_step=resumed)
    if not opening.remote:
        text = json.dumps(opening.config, indent=2, ensure_ascii=False)
        writer.add_text("config", f"```json\n{text}\n```")
    writer.flush()
    return TensorBoard(writer, opening.id)


LONGEST, MOST = 6000, 100
"""Characters of a parameter, and parameters of one request, that MLflow takes."""
STATES: Mapping[RunState, str] = {"finished": "FINISHED", "failed": "FAILED"}
"""Other states are KILLED."""


class MLflow(Sink):
    """See `Sink`."""

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """See `Sink.metrics`."""
        from mlflow.entities import Metric  # type: ignore[import-not-found]

        now = int(time.time() * 1000)
        metrics = [
            Metric(_UNUSUAL.sub("_", name), value, now, step) for name, value in values.items()
        ]
        self.client.log_batch(self.remote, metrics=metrics)

    def scores(self, step: int, rows: Sequence[ScoreRow]) -> None:
        """Scores are metrics, verdicts are tags."""
        self.metrics(step, score_values(rows))
        for name, verdict in verdicts(rows).items():
            self.client.set_tag(self.remote, _UNUSUAL.sub("_", name), verdict)

    def close(self, state: RunState) -> None:
        """See `Sink.close`."""
        self.client.set_terminated(self.remote, STATES.get(state, "KILLED"))


def open_mlflow(opening: SinkOpening) -> MLflow:
    """The run with this id, continued; a new one in the project's experiment if there is none."""
    from mlflow import MlflowClient  # type: ignore[import-not-found]
    from mlflow.entities import Param  # type: ignore[import-not-found]

    folder = opening.folder / "mlflow"
    uri = os.environ.get("MLFLOW_TRACKING_URI")
    if uri is None:
        folder.mkdir(parents=True, exist_ok=True)
        uri = f"sqlite:///{folder / 'mlflow.db'}"
    client = MlflowClient(tracking_uri=uri)
    if opening.remote:
        client.update_run(opening.remote, status="RUNNING")
        metrics = client.get_run(opening.remote).data.metrics
        # Every step of a stage has its seconds.
        times = [name for name in metrics if name.endswith("/seconds")]
        points = [p for name in times for p in client.get_metric_history(opening.remote, name)]
        return MLflow(client, opening.remote, max((p.step for p in points), default=0))
    known = client.get_experiment_by_name(opening.project)
    place = (folder / "artifacts").as_uri() if uri.startswith("sqlite:") else None
    experiment = known.experiment_id if known else client.create_experiment(opening.project, place)
    made = client.create_run(
        experiment, run_name=opening.name, tags={"assay.run": str(opening.run)}
    )
    pairs = dotted(opening.config).items()
    params = [Param(_UNUSUAL.sub("_", key), str(value)[:LONGEST]) for key, value in pairs]
    for start in range(0, len(params), MOST):
        client.log_batch(made.info.run_id, params=params[start : start + MOST])
    return MLflow(client, made.info.run_id)


class WeightsAndBiases(Sink):
    """See `Sink`."""

    def scores(self, step: int, rows: Sequence[ScoreRow]) -> None:
        """In the summary of the run."""
        self.client.summary.update({**score_values(rows), **verdicts(rows)})

    def close(self, state: RunState) -> None:
        """See `Sink.close`."""
        self.client.finish(exit_code=0 if state == "finished" else 1)


def open_wandb(opening: SinkOpening) -> WeightsAndBiases:
    """The run with this id, continued if it exists."""
    import wandb  # type: ignore[import-not-found]

    opening.folder.mkdir(parents=True, exist_ok=True)
    quiet = wandb.Settings(console="off", silent=True, disable_code=True, save_code=False)
    run = wandb.init(
        project=opening.project,
        name=opening.name,
        id=opening.remote or opening.id,
        resume="allow",
        dir=opening.folder,
        config=dict(opening.config),
        reinit="create_new",
        settings=quiet,
    )
    return WeightsAndBiases(run, run.id)


SINKS: dict[str, Callable[[SinkOpening], Sink]] = {
    "wandb": open_wandb,
    "trackio": open_trackio,
    "mlflow": open_mlflow,
    "tensorboard": open_tensorboard,
}
"""By the name in `[log] to`. Called in the sink's thread; only then a package is imported."""
PACKAGES = ("wandb", "trackio", "mlflow")
"""Sinks that need the package of their name, which the extra of that name installs."""


def refusals(log: LogSpec) -> Iterator[tuple[str, str]]:
    """Sinks that are not known or not installed, with what to do."""
    for name in log.to:
        if name not in SINKS:
            yield f"unknown sink {name!r}", nearest(name, SINKS)
        elif name in PACKAGES and not installed(name):
            fix = f"pip install 'assay-lab[{name}]'"
            yield f"{name} needs the package {name!r}, which is not installed", fix


def check_log(log: LogSpec) -> None:
    """Raise InputError for the first refusal."""
    for problem, fix in refusals(log):
        raise InputError(problem, field="log.to", fix=fix)


def installed(package: str) -> bool:
    """Whether a package can be imported; a folder of its name, as `wandb` leaves one, is none."""
    spec = find_spec(package)
    return spec is not None and spec.origin is not None
