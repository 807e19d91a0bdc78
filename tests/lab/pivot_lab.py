"""Finished runs with records and manifests, as sweeps leave them, written without training."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from assay.experiment.read_file import read_experiment
from assay.experiment.toml_write import experiment_toml
from assay.lab.sweep.model import Matrix
from assay.lab.sweep.request import make_matrix
from assay.runs.records import EvaluationRecord
from assay.runs.run_directory import RunDirectory, create_run, stored_status, write_status
from tests.pages.synthetic import RECORD, add_record, answer

BASE = """\
name = "base"
model = "path:model"
task = "math"
seeds = [1]

[data.sums]
source = "path:sums.jsonl"
format = "messages"
take = { rows = 100, how = "first" }
split = { dev = 0.2 }

[stage.sft]
method = "sft"
data = "sums"
steps = 40
batch = 4
checkpoint_every = 20
optimizer = { lr = 1e-3 }

[evaluate.dev]
data = "sums.dev"
reward = "accuracy"
role = "select"
checkpoints = ["base", "sft.all"]

[evaluate.test]
benchmark = "math/gsm8k"
role = "report"
checkpoints = ["base", "sft.all"]

[evaluate.hard]
benchmark = "math/gsm8k"
options = { path = "hard.jsonl" }
role = "report"
checkpoints = ["base", "sft.last"]
"""
LAST = "sft.step-000040"
TEST = replace(RECORD, name="test", benchmark="math/gsm8k")
DEV = replace(RECORD, name="dev", benchmark="sums.dev", role="select")
HARD = replace(RECORD, name="hard", benchmark="math/gsm8k", options={"path": "hard.jsonl"})


@dataclass(frozen=True)
class PivotLab:
    """A lab's root with its base experiment."""

    root: Path

    @property
    def base(self) -> Path:
        return self.root / "base.toml"

    def sweep(self, text: str, name: str = "sweep.toml") -> Path:
        """Write a sweep file."""
        file = self.root / name
        file.write_text(text, encoding="utf-8")
        return file

    def matrix(self, text: str, on: str | None = None, allow: Sequence[str] = ()) -> Matrix:
        """The matrix of a sweep."""
        return make_matrix(self.root, self.sweep(text), on, allow)

    def run(
        self,
        name: str,
        *overrides: str,
        seed: int = 1,
        status: str = "finished",
        manifest: Mapping[str, Any] | None = None,
        rows: int = 80,
    ) -> RunDirectory:
        """A run of the base experiment with values replaced; its manifest follows from them."""
        settings = [f'name="{name}"', *overrides]
        experiment = read_experiment(self.base, settings)
        text = experiment_toml(experiment)
        run = create_run(self.root, name, seed=seed, spec=text, new=True)
        values = experiment.model_dump(mode="json", exclude_none=True)
        data = {
            key: {
                **table,
                "source": "path",
                "file_sha256": "f" * 8,
                "train": {"rows": rows, "row_ids_sha256": f"{table.get('take')}"},
                "dev": {"rows": 20, "row_ids_sha256": f"{table.get('take')}"},
            }
            for key, table in values["data"].items()
        }
        made = {
            "name": name,
            "seed": seed,
            "base_weights": {"source": experiment.model, "sha256": experiment.model},
            "data": data,
            "stages": values["stage"],
            **(manifest or {}),
        }
        run.manifest.write_text(json.dumps(made), encoding="utf-8")
        write_status(run.path, replace(stored_status(run.path), status=status))  # type: ignore[arg-type]
        return run


def make_pivot_lab(root: Path) -> PivotLab:
    """A lab without a model or rows: its runs are written, never executed."""
    (root / "base.toml").write_text(BASE, encoding="utf-8")
    (root / "runs").mkdir()
    return PivotLab(root)


def score(
    run: RunDirectory,
    checkpoint: str,
    scores: Sequence[float | None] | np.ndarray,
    record: EvaluationRecord = TEST,
    first: int = 0,
    fallback: int = 0,
) -> EvaluationRecord:
    """A record of one checkpoint; items are numbered from `first`, two axes are repeats, and the
    first `fallback` answers were scored by a fallback metric."""
    table = np.asarray(scores, object)
    table = table[:, None] if table.ndim == 1 else table
    lines = [
        answer(record.name, checkpoint, f"item_{first + i}", r, None if s is None else float(s))
        for i, row in enumerate(table)
        for r, s in enumerate(row)
    ]
    lines[:fallback] = [{**line, "parts": '{"fallback": 1.0}'} for line in lines[:fallback]]
    return add_record(run, checkpoint, lines, replace(record, repeats=table.shape[1]))


def ones(right: int, items: int) -> list[float]:
    """The first `right` of `items` right."""
    return [1.0] * right + [0.0] * (items - right)
