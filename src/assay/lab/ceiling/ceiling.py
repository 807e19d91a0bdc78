"""The ceiling of an experiment: what can be won on its problems at all, before it is trained.

A task measures its own (`BaseTask.tables`, "ceiling"); this is what they share.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.data.row import Row
from assay.errors import InputError
from assay.experiment.read_file import ExperimentSource, lines_named
from assay.lab.monitor.observer import Observer
from assay.lab.setup.evaluation import Evaluation, make_evaluation
from assay.lab.setup.session import Session
from assay.lab.setup.validate import read_whole
from assay.tasks.task import labs, task


class NoPools(InputError):
    """An experiment without an evaluation whose items its ceiling can be measured on."""


@dataclass(frozen=True, slots=True)
class CeilingRequest:
    """What is measured."""

    evaluation: str | None = None
    """Name of the evaluation; None for the first that fits."""
    items: int | None = None
    """Only the first so many items."""
    draws: int = 4
    """Random choices, or repeats, of each item."""
    breadth: int | None = 3
    """Selections that a search extends; None for every ordered selection."""


def measure_ceiling(
    source: ExperimentSource,
    overrides: Sequence[str],
    root: Path,
    request: CeilingRequest,
    observer: Observer,
) -> tuple[Any, Sequence[Any]]:
    """What the experiment's task measures in the lab at `root`, and the blocks that show it.

    Raises NoPools, UnknownHelper, HelperFailed, and what reading the experiment raises.
    """
    experiment = read_whole(source, overrides, root)
    own = labs(task(experiment.task, root), experiment.model)
    makers = [lab.tables["ceiling"] for lab in own if "ceiling" in lab.tables]
    if not makers:
        problem = f"the task {experiment.task!r} has no ceiling"
        raise NoPools(problem, field="task", fix="its items are answered freely: nothing to choose")
    with lines_named(source, overrides):
        return makers[0](experiment, root, request, observer)


def opened(session: Session, name: str) -> Evaluation:
    """An evaluation of the experiment; the learner is opened only for items out of data sets."""
    spec = session.experiment.evaluate[name]
    sets = session.sets if spec.data is not None else {}
    return make_evaluation(name, spec, session.task, sets, "", session.seed, root=session.run.root)


def first(rows: Sequence[Row], count: int | None) -> tuple[Row, ...]:
    """The first rows, as evaluations with fewer items take them."""
    if count is not None and count > len(rows):
        raise NoPools(f"{count} of {len(rows)} items", field="items", fix=f"at most {len(rows)}")
    return tuple(rows[:count])
