"""The demos skill: pick demonstrations that help a frozen model answer a query.

What is trained is a selector (`model = "selector:pointer"`); the frozen model is the helper model
`[model.frozen]`. Rows carry their pools, see `demonstrations`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.data.loaded import Loaded
from assay.data.row import Message, Row
from assay.errors import InputError
from assay.experiment.experiment import Experiment
from assay.experiment.problems import Problem
from assay.experiment.selection_tables import FILE, SELECTIONS
from assay.labs.demos import okvqa
from assay.labs.demos.demonstrations import FROZEN, POOL
from assay.labs.demos.oracle_search import ARMS, BREADTH
from assay.labs.demos.rewards import REWARDS
from assay.labs.demos.stored import selection_record, selection_rows
from assay.runs.manifest_file import SEEN_ANSWERS
from assay.tasks.task import BaseTask, FixedArm, MadeSource, moved

MOVED = {
    "verbs": "experiments/demos/verbs.py",
    "subjects": "experiments/demos/subjects.py",
    "easy-vqa": "experiments/demos/easy_vqa.py",
}
SELECTOR = "selector"
ORACLES = {
    f"{SELECTOR}:{name}": FixedArm(
        answers,
        needs=POOL,
        fix='choose a benchmark of task = "demos"',
        about={SEEN_ANSWERS: True, "breadth": BREADTH},
        helper=FROZEN,
        chunk=16,
    )
    for name, answers in ARMS.items()
}


class SelectionsSource:
    """See `tasks.task.MadeSource`: `source = "selections:NAME"`. Only what makes loads torch."""

    def rows(self, experiment: Experiment, table: str, rows: Sequence[Row], root: Path) -> Loaded:
        """The rows of a table's queries with their selections."""
        return selection_rows(experiment, table, rows, root)

    def record(self, experiment: Experiment, table: str, root: Path) -> dict[str, Any]:
        """The settings of a table and the sha256 of its file."""
        return selection_record(experiment, table, root)

    def absent(self, experiment: Experiment, root: Path) -> Iterator[Problem]:
        """Files of stored selections that are not there."""
        for name, spec in experiment.selections.items():
            file = root / (spec.file or "").removeprefix(FILE)
            if spec.file is not None and not file.is_file():
                problem = f"{file}: no such file"
                yield Problem((SELECTIONS, name, "file"), problem, f"it counts from {root}")

    def unmade(self, session: Any) -> Iterator[Any]:
        """The selections that a run would make first."""
        from assay.labs.demos.generate import not_made

        return not_made(session)

    def make(self, session: Any) -> None:
        """Make what data sets take and nobody made."""
        from assay.labs.demos.generate import generate_missing

        generate_missing(session)

    def generate(self, session: Any, table: str | None, shard: str) -> list[Any]:
        """Make the selections of one table or of all."""
        from assay.labs.demos.generate import generate_tables

        return generate_tables(session, table, shard)


class DemosTask(BaseTask):
    """The task called "demos"."""

    name = "demos"
    kinds = (SELECTOR,)
    rewards = REWARDS
    benchmarks = {  # noqa: RUF012
        "demos/okvqa": okvqa.benchmark,
        **{f"demos/{name}": moved(file) for name, file in MOVED.items()},
    }
    sources = {  # noqa: RUF012
        "okvqa": okvqa.read_okvqa,
        **{name: moved(file) for name, file in MOVED.items()},
    }

    @property
    def made(self) -> Mapping[str, MadeSource]:
        """Stored selections."""
        return {SELECTIONS: SelectionsSource()}

    @property
    def arms(self) -> Mapping[str, FixedArm]:
        """Selections by search, which has seen the right answers."""
        return ORACLES

    @property
    def checks(self) -> Mapping[str, Callable[[Any], Iterator[Any]]]:
        """See `labs.demos.checks`."""
        from assay.labs.demos.checks import CHECKS

        return CHECKS

    def learner(self, source: str) -> Callable[[Any], Any] | None:
        """A selector, which is opened for the oracle also: it reads the items."""
        if not self.brings(source):
            return None
        from assay.labs.demos.selector_learner import SelectorLearner

        return SelectorLearner

    def target(self, row: Row) -> Message:
        """The stored selection with the highest reward, the first of equal ones.

        Raises InputError for a row without stored selections.
        """
        stored = row.extra.get("candidates")
        if not stored:
            fix = "take rows of a [selections.NAME] table"
            raise InputError(f"row {row.id} has no stored selections", fix=fix)
        return Message("assistant", max(stored, key=lambda each: each["reward"])["text"])


TASK = DemosTask()
