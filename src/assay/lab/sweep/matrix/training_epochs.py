"""Training by epoch of the runs of a matrix: loss and its parts, KL, advantages, rewards.

Means over the steps of an epoch, from `metrics.jsonl`; the validation loss is the last one measured
in it. Also what each run learned from.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.experiment.experiment import Experiment
from assay.experiment.stage_tables import GrpoStage
from assay.lab.sweep.matrix.coordinates import epoch_of
from assay.runs.history import History
from assay.runs.manifest_file import read_manifest
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import experiment_of

MEANS = (
    "loss",
    "policy_loss",
    "kl",
    "advantage_std",
    "advantage_max",
    "kl_coef",
    "reward_mean",
)
"""Metrics of which an epoch shows the mean over its steps."""
LAST = "validation_loss"
Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Epoch:
    """One pass over the rows of a stage."""

    number: int
    """From 1; the last may be unfinished."""
    steps: int
    values: Mapping[str, float]
    """By metric: means over the steps, and the last validation loss."""


@dataclass(frozen=True, slots=True)
class StageEpochs:
    """The training of one stage of a run."""

    run: str
    stage: str
    method: str
    data: str
    """The data set that it learned from."""
    epochs: tuple[Epoch, ...]
    reference: str
    """The reference of the KL: `stage_start` or `base`; "" without one."""
    first_kl: float | None
    """The KL of the first step."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """The rows of a data set that some runs learned from."""

    name: str
    contents: str
    """Their fingerprint."""
    rows: int | None
    groups: Mapping[str, float]
    """Of stored candidates: see `lab.setup.manifest.group_figures`; empty for other rows."""
    runs: tuple[str, ...]


def trainings(runs: Iterable[RunDirectory]) -> Iterator[StageEpochs]:
    """The epochs of every stage of the runs that recorded steps and knows its rows."""
    for run in runs:
        history = History(run)
        experiment = history.experiment
        for name, spec in experiment.stage.items():
            own = history.lines(name)
            if epochs := _epochs(run, experiment, name, own):
                yield StageEpochs(
                    run=str(run),
                    stage=name,
                    method=spec.method,
                    data=spec.data.partition(".")[0],
                    epochs=epochs,
                    reference=spec.kl.reference if isinstance(spec, GrpoStage) else "",
                    first_kl=_number(own[0], "kl_loss", "kl"),
                )


def _epochs(
    run: RunDirectory, experiment: Experiment, stage: str, lines: Sequence[Line]
) -> tuple[Epoch, ...]:
    by_epoch: dict[int, list[Line]] = {}
    for line in lines:
        passed = epoch_of(run, experiment, stage, line["step"])
        if not isinstance(passed, int | float):
            return ()
        by_epoch.setdefault(max(math.ceil(passed), 1), []).append(line)
    return tuple(_epoch(number, own) for number, own in by_epoch.items())


def _epoch(number: int, lines: Sequence[Line]) -> Epoch:
    values: dict[str, float] = {}
    for name in (*MEANS, LAST):
        # The KL of the loss where there is one: what the coefficient multiplies.
        names = ("kl_loss", "kl") if name == "kl" else (name,)
        known = [v for line in lines if (v := _number(line, *names)) is not None]
        if known:
            values[name] = known[-1] if name == LAST else sum(known) / len(known)
    return Epoch(number, len(lines), values)


def _number(line: Line, *names: str) -> float | None:
    return next((line[name] for name in names if line.get(name) is not None), None)


def data_files(runs: Iterable[RunDirectory]) -> list[DataFile]:
    """The data that the runs learned from: each different content once, with its runs."""
    files: dict[tuple[str, str], DataFile] = {}
    for run in runs:
        used = {spec.data.partition(".")[0] for spec in experiment_of(run).stage.values()}
        for name, table in read_manifest(run).get("data", {}).items():
            if name not in used:
                continue
            contents = table.get("contents_sha256") or table.get("file_sha256") or ""
            rows, groups = table.get("train", {}).get("rows"), table.get("groups", {})
            before = files[name, contents].runs if (name, contents) in files else ()
            runs_of = (*before, str(run))
            files[name, contents] = DataFile(name, contents, rows, groups, runs_of)
    return list(files.values())
