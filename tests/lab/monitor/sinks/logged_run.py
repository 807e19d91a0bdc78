"""A run without a model whose steps a test writes, as the recorder does, and sends to its sinks."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.compare.judged_table import ScoreRow
from assay.experiment.experiment import Experiment
from assay.experiment.toml_write import experiment_toml
from assay.lab.monitor.observer import Observer, Silent
from assay.lab.monitor.sender import sending
from assay.lab.monitor.sinks import SinkOpening
from assay.runs.metrics import append_metrics, read_metrics, truncate_metrics
from assay.runs.run_directory import RunDirectory, RunState, SinkState, create_run, read_sink_states

STAGE = {"method": "sft", "data": "rows", "steps": 4, "batch": 1}
SPEC: dict[str, Any] = {
    "name": "logged",
    "about": "sends what it does",
    "task": "math",
    "data": {"rows": {"source": "path:rows.jsonl", "format": "messages"}},
    "stage": {"warm": STAGE, "sft": STAGE},
}
Steps = Sequence[tuple[str, int]]
ALL: Steps = [(stage, step) for stage in ("warm", "sft") for step in range(1, 5)]


@dataclass
class Noted(Silent):
    """An observer that keeps the notes."""

    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.notes.append(text)


@dataclass(frozen=True)
class Kept:
    """A sink that keeps what it gets, and fails while `broken` says so."""

    given: SinkOpening
    calls: list[tuple[Any, ...]]
    broken: Callable[[], str]
    remote: str = "remote-1"
    step: int | None = None

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self._keep("metrics", step, dict(values))

    def scores(self, step: int, rows: Sequence[ScoreRow]) -> None:
        self._keep("scores", step, list(rows))

    def close(self, state: RunState) -> None:
        self._keep("close", state)

    def _keep(self, *call: Any) -> None:
        if why := self.broken():
            raise ConnectionError(why)
        self.calls.append(call)


def make_run(root: Path, **log: Any) -> tuple[Experiment, RunDirectory]:
    """An experiment with this `[log]` table, and a run of it that has done nothing yet."""
    experiment = Experiment.model_validate({**SPEC, "log": log} if log else SPEC)
    text = experiment_toml(experiment)
    run = create_run(root, experiment.name, seed=42, spec=text, new=True)
    run.manifest.write_text(json.dumps({"packages": {"a": "1"}, "data": {"rows": {"sha": "ab"}}}))
    return experiment, run


def nll(stage: str, step: int) -> float:
    """The loss that a step records: a number that float32 has not."""
    return 1 / (step + (10 if stage == "sft" else 0.1))


def do_steps(run: RunDirectory, observer: Observer, steps: Steps) -> None:
    """Record steps and report them, stage by stage, from wherever the run is."""
    for stage in dict.fromkeys(stage for stage, _ in steps):
        own = [step for name, step in steps if name == stage]
        truncate_metrics(run.metrics, stage, own[0] - 1)
        observer.stage(stage, "sft", own[0] - 1, 4)
        for step in own:
            values = {"seconds": 0.5, "nll": nll(stage, step), "odd": float("nan")}
            append_metrics(run.metrics, stage, step, **values)
            observer.step(step, values)


@contextmanager
def logging(
    experiment: Experiment, run: RunDirectory, observer: Observer | None = None
) -> Iterator[Observer]:
    """The run at work, with its sinks behind the observer."""
    with sending(experiment, run, 1, observer or Silent()) as several:
        several.begin(run)
        yield several
        several.end(run)


def logged(made: tuple[Experiment, RunDirectory], steps: Steps, observer: Any = None) -> None:
    """A process of the run that does these steps and ends."""
    with logging(*made, observer) as several:
        do_steps(made[1], several, steps)


def state(run: RunDirectory, sink: str) -> SinkState:
    """What the run's folder says of a sink."""
    return read_sink_states(run.path).of(sink)


def expected(run: RunDirectory, metric: str = "nll") -> list[tuple[int, str, float]]:
    """Step over all stages, name and value of a metric, from metrics.jsonl."""
    lines = enumerate(read_metrics(run.metrics), 1)
    return [(step, f"{line['stage']}/{metric}", line[metric]) for step, line in lines]
