"""Training by epoch of the runs of a matrix: loss and its parts, KL, advantages, rewards.

Means over the steps of an epoch, from `metrics.jsonl`; the validation loss is the last one measured
in it. Also checks that the recorded loss is the sum of its parts, and what each run learned from.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from assay.experiment.experiment import Experiment
from assay.experiment.read_file import read_experiment
from assay.experiment.stage_tables import GrpoStage
from assay.lab.sweep.matrix.coordinates import epoch_of
from assay.lab.sweep.matrix.model import DataFile, Epoch, LossIdentity, StageEpochs
from assay.runs.manifest_file import read_manifest
from assay.runs.metrics import read_metrics
from assay.runs.run_directory import RunDirectory

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


def trainings(runs: Iterable[RunDirectory]) -> Iterator[StageEpochs]:
    """The epochs of every stage of the runs that recorded steps and knows its rows."""
    for run in runs:
        experiment = read_experiment(run.spec)
        lines = read_metrics(run.metrics) if run.metrics.exists() else []
        for name, spec in experiment.stage.items():
            own = [line for line in lines if line["stage"] == name]
            epochs = _epochs(run, experiment, name, own)
            if epochs:
                reference = spec.kl.reference if isinstance(spec, GrpoStage) else ""
                identity = loss_identity(own)
                first = _number(own[0], "kl_loss", "kl")
                data = spec.data.partition(".")[0]
                yield StageEpochs(
                    str(run), name, spec.method, data, epochs, identity, reference, first
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
    for name in MEANS:
        # The KL of the loss where there is one: what the coefficient multiplies.
        names = ("kl_loss", "kl") if name == "kl" else (name,)
        found = [v for line in lines if (v := _number(line, *names)) is not None]
        if found:
            values[name] = sum(found) / len(found)
    last = [v for line in lines if (v := _number(line, LAST)) is not None]
    return Epoch(number, len(lines), values | ({LAST: last[-1]} if last else {}))


def _number(line: Line, *names: str) -> float | None:
    return next((line[name] for name in names if line.get(name) is not None), None)


def loss_identity(lines: Sequence[Line]) -> LossIdentity | None:
    """Whether loss = policy_loss + kl_coef * kl_loss - entropy_coef * entropy_bonus at every step;
    None where no step has the parts."""
    gaps: dict[int, float] = {}
    wrong = []
    for line in lines:
        parts = [_part(line, *each) for each in PARTS if line.get(each[0]) is not None]
        if line.get("loss") is None or line.get("policy_loss") is None:
            continue
        gap = abs(line["loss"] - sum(parts))
        gaps[line["step"]] = gap
        if gap > TOLERANCE * max(1e-3, abs(line["loss"]), *map(abs, parts)):
            wrong.append(line["step"])
    return LossIdentity(len(gaps), tuple(wrong), max(gaps.values())) if gaps else None


def _part(line: Line, name: str, coefficient: str | None, sign: int) -> float:
    factor = 1.0 if coefficient is None else line.get(coefficient) or 0.0
    return sign * factor * line[name]


def percent_change(before: Epoch, after: Epoch, name: str) -> float | None:
    """The change of a metric as a share of its value before; None where that is not above 0, which
    no change is a share of."""
    first, second = before.values.get(name), after.values.get(name)
    return None if first is None or second is None or first <= 0 else second / first - 1


def data_files(runs: Iterable[RunDirectory]) -> list[DataFile]:
    """What the runs learned from: each different content of a data set once, with its runs."""
    found: dict[tuple[str, str], DataFile] = {}
    for run in runs:
        used = {spec.data.partition(".")[0] for spec in read_experiment(run.spec).stage.values()}
        for name, table in read_manifest(run).get("data", {}).items():
            contents = table.get("contents_sha256") or table.get("file_sha256") or ""
            if name in used:
                known = found.get((name, contents))
                groups = table.get("groups", {})
                rows = table.get("train", {}).get("rows")
                before = known.runs if known else ()
                found[name, contents] = DataFile(name, contents, rows, groups, (*before, str(run)))
    return list(found.values())
