"""The keys by which runs, checkpoints and records can be pivoted, their values, and places.

Keys are dotted paths of the experiment (`stage.rl.kl.coef`), `name` and `seed` of the run, `stage`,
`step`, `epoch` and `checkpoint`, and fields of a record such as `evaluation.items`.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from assay.data.hashing import canonical_json
from assay.errors import InputError, nearest
from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.experiment.experiment import Experiment
from assay.experiment.stage_tables import StageSpec, counts_rows, rows_per_step
from assay.runs.manifest_file import read_manifest
from assay.runs.records import EvaluationRecord
from assay.runs.run_directory import RunDirectory

CHECKPOINT_KEYS = ("checkpoint", "stage", "step", "epoch")
RECORD = "evaluation."

Value = str | int | float | bool | None
"""A value on an axis; tables and arrays as their JSON text, None where a run has no such key."""
Place = tuple[Value, ...]
"""Row, column, then one value for each layer key."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The keys of rows, columns and layers."""

    rows: str
    columns: str | None
    """None: one column."""
    layers: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of all axes."""
        return tuple(k for k in (self.rows, self.columns, *self.layers) if k is not None)

    def values(self, place: Place) -> dict[str, Value]:
        """The value of each key at a place."""
        keys = (self.rows, self.columns, *self.layers)
        return {k: v for k, v in zip(keys, place, strict=True) if k is not None}

    def place(self, coordinates: Mapping[str, Any]) -> Place:
        """The place that has these coordinates."""
        keys = (self.rows, self.columns, *self.layers)
        return tuple(None if k is None else place_value(coordinates.get(k)) for k in keys)


def place_value(value: Any) -> Value:
    """A coordinate as a value on an axis."""
    return canonical_json(value) if isinstance(value, list | tuple | Mapping) else value


def is_late(key: str) -> bool:
    """Whether only what was measured has a key."""
    return key in CHECKPOINT_KEYS or key.startswith(RECORD)


def run_coordinates(name: str, experiment: Experiment) -> dict[str, Any]:
    """The values of a run's resolved experiment, by dotted path, and its name."""
    values = experiment.model_dump(mode="json", exclude={"seeds", "vary", "name", "about", "note"})
    return {**_flat(values), "name": name}


def checkpoint_coordinates(
    run: RunDirectory, experiment: Experiment, checkpoint: str
) -> dict[str, Any]:
    """Stage, step and epoch of a checkpoint as records name it; the base is step 0 of `base`."""
    reference = parse_checkpoint(checkpoint)
    if reference is None or reference.stage is None:
        return {"checkpoint": checkpoint, "stage": "base", "step": 0, "epoch": 0}
    step = reference.step or 0
    epoch = epoch_of(run, experiment, reference.stage, step)
    return {"checkpoint": checkpoint, "stage": reference.stage, "step": step, "epoch": epoch}


def epoch_of(run: RunDirectory, experiment: Experiment, stage: str, step: int) -> Value:
    """Passes over the stage's rows after `step`, to two decimals; None where rows are unknown."""
    spec = experiment.stage.get(stage)
    rows = _epoch_rows(run, spec) if spec is not None else None
    if spec is None or not rows:
        return None
    epoch = round(step * rows_per_step(spec) / rows, 2)
    return int(epoch) if epoch == int(epoch) else epoch


def step_of_epoch(
    run: RunDirectory, experiment: Experiment, stage: str, epoch: float
) -> int | None:
    """The first step of a stage at or behind the end of an epoch; None where rows are unknown."""
    spec = experiment.stage.get(stage)
    rows = _epoch_rows(run, spec) if spec is not None else None
    # Parts of an epoch are binary fractions, which may come out a little above a whole step.
    return math.ceil(epoch * rows / rows_per_step(spec) - 1e-9) if spec and rows else None


def _epoch_rows(run: RunDirectory, spec: StageSpec) -> int | None:
    """The rows that one epoch of a stage visits, as the manifest counts them; None of others."""
    if not counts_rows(spec):
        return None
    name, _, part = spec.data.partition(".")
    counts = read_manifest(run).get("data", {}).get(name, {}).get(part or "train", {})
    return counts.get("epoch_rows", counts.get("rows"))


def record_coordinates(record: EvaluationRecord) -> dict[str, Any]:
    """The fields of a record's evaluation."""
    table = {
        "name": record.name,
        "benchmark": record.benchmark,
        "items": len(record.items),
        "repeats": record.repeats,
        "sampling": dict(record.sampling),
        "options": dict(record.options),
    }
    return {RECORD + key: value for key, value in _flat(table).items()}


def _flat(table: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Nested tables by dotted path, each inner table also as a whole."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if value is not None:
            flat[f"{above}{key}"] = value
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{above}{key}.")
    return flat


def check_key(key: str, known: Iterable[Mapping[str, Any]]) -> None:
    """Raise InputError, with the nearest key, where no coordinates have this one."""
    names = sorted({*CHECKPOINT_KEYS, "name", "seed", *(n for each in known for n in each)})
    if key not in names:
        simple = [n for n in names if not n.endswith((".sampling", ".options"))]
        raise InputError(f"no run can be pivoted by {key!r}", fix=nearest(key, simple))


def ordered(values: Iterable[Value]) -> tuple[Value, ...]:
    """Different values: numbers by size, others as they came, None last."""
    unique = list(dict.fromkeys(values))
    numbers = [v for v in unique if isinstance(v, int | float) and not isinstance(v, bool)]
    others = [v for v in unique if v not in numbers and v is not None]
    return (*sorted(numbers), *others, *([None] if None in unique else []))
