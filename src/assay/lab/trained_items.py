"""Whether the items of an evaluation were trained on: questions that training rows ask as well.

Worked examples, which some benchmarks put into their items, are meant to be shown and do not count.
What to do about it is decided by `checks.leakage` before a run and by `fairness` after it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from assay.data.leakage import Overlap, overlap
from assay.data.row import Row
from assay.lab.prepare import DataSet, find_part
from assay.lab.spec.evaluate import EvaluateSpec
from assay.lab.spec.experiment import Experiment
from assay.tasks.task import BenchmarkOptions, Task, benchmark

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
