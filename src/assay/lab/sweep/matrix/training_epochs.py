"""Training by epoch of the runs of a matrix: loss and its parts, KL, advantages, rewards.

Means over the steps of an epoch, from `metrics.jsonl`; the validation loss is the last one measured
in it. Also checks that the recorded loss is the sum of its parts, and what each run learned from.
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
PARTS = (("policy_loss", None, 1), ("kl_loss", "kl_coef", 1), ("entropy_bonus", "entropy_coef", -1))
"""The parts of a loss of GRPO, the metric of the coefficient of each, and its sign."""
TOLERANCE = 1e-6
"""How far the sum of the parts may be from the loss, as a share of the largest of them."""

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
class LossIdentity:
    """Whether the recorded loss is the sum of its recorded parts."""

    steps: int
    """Steps with both."""
    wrong: tuple[int, ...]
    """Those where it is not."""
    largest: float
    """The largest gap."""


@dataclass(frozen=True, slots=True)
class StageEpochs:
    """The training of one stage of a run."""

    run: str
    stage: str
    method: str
    data: str
    """The data set that it learned from."""
    epochs: tuple[Epoch, ...]
    identity: LossIdentity | None
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
                    identity=loss_identity(own),
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


def loss_identity(lines: Sequence[Line]) -> LossIdentity | None:
    """Whether loss = policy_loss + kl_coef * kl_loss - entropy_coef * entropy_bonus at every step;
    None where no step has the parts."""
    gaps: dict[int, float] = {}
    wrong = []
    for line in lines:
        if line.get("loss") is None or line.get("policy_loss") is None:
            continue
        parts = [
            sign * (1.0 if factor is None else line.get(factor) or 0.0) * line[name]
            for name, factor, sign in PARTS
            if line.get(name) is not None
        ]
        gap = gaps[line["step"]] = abs(line["loss"] - sum(parts))
        if gap > TOLERANCE * max(1e-3, abs(line["loss"]), *map(abs, parts)):
            wrong.append(line["step"])
    return LossIdentity(len(gaps), tuple(wrong), max(gaps.values())) if gaps else None


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
