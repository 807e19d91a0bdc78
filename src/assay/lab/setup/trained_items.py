"""Whether the items of an evaluation were trained on: questions that training rows ask as well.

Worked examples, which some benchmarks put into their items, are meant to be shown and do not count.
What to do about it is decided by `lab.check.shared_items` before a run and by `fairness` after it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from assay.data.leakage import Overlap, overlap
from assay.data.row import Row
from assay.experiment.experiment import Experiment
from assay.experiment.tables import EvaluateSpec
from assay.lab.setup.prepare import DataSet, find_part
from assay.runs.manifest_file import Manifest
from assay.tasks.task import BenchmarkOptions, Task, benchmark

BASE = "base"
EXAMPLES = "examples"
"""The benchmark option that puts other rows' questions into an item."""

Trained = Mapping[str, tuple[Row, ...]]
"""The rows that stages train on, by `NAME` or `NAME.dev`."""


def trained_rows(experiment: Experiment, sets: Mapping[str, DataSet]) -> dict[str, tuple[Row, ...]]:
    """The rows that the experiment's stages train on."""
    names = dict.fromkeys(stage.data for stage in experiment.stage.values())
    return {name: find_part(sets, name) for name in names}


def bare_items(spec: EvaluateSpec, items: Sequence[Row], task: Task, root: Path) -> tuple[Row, ...]:
    """The items of an evaluation without worked examples."""
    if EXAMPLES not in spec.options or spec.benchmark is None:
        return tuple(items)
    options = {k: v for k, v in spec.options.items() if k != EXAMPLES}
    asked = {item.id for item in items}
    made = benchmark(task, spec.benchmark, BenchmarkOptions(options, root))
    return tuple(item for item in made.items if item.id in asked)


def shared_texts(shared: Overlap) -> tuple[str, ...]:
    """The training rows whose question is an item's, word for word or in normal form."""
    return tuple(dict.fromkeys(train for train, _ in shared.exact + shared.normalised))


def shared_questions(trained: Trained, items: Sequence[Row]) -> dict[str, int]:
    """For each training set, how many of its rows ask what one of the items asks."""
    return {name: len(shared_texts(overlap(rows, items))) for name, rows in trained.items()}


def trained_on(checkpoint: str, shared: Mapping[str, int] | None, manifest: Manifest) -> list[str]:
    """What a reader must know of a checkpoint's score, in words: training rows that ask what its
    items ask, or that nobody could look. `shared` is what the record of the evaluation says.
    """
    if checkpoint == BASE or not manifest.get("stages"):
        return []
    if shared is None:
        return ["whether its items were trained on is not known: the training rows are gone"]
    return [
        f"trained on test items: {rows} of {_rows_of(manifest, data)} rows of data.{data} ask what "
        "its items ask (no comparison takes this score)"
        for data, rows in shared.items()
        if rows
    ]


def _rows_of(manifest: Manifest, data: str) -> int:
    name, _, dev = data.partition(".")
    return manifest["data"][name]["dev" if dev else "train"]["rows"]
