"""The demos skill: pick demonstrations that help a frozen model answer a query.

What is trained is a selector (`model = "selector:pointer"`); the frozen model is the helper model
`[model.frozen]`. Rows carry their pools, see `demonstrations`.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from assay.data.row import Message, Row
from assay.runs.manifest_file import SEEN_ANSWERS
from assay.tasks.demos import easy_vqa, okvqa, subjects
from assay.tasks.demos.demonstrations import FROZEN, POOL
from assay.tasks.demos.oracle_search import BREADTH, oracle_answers
from assay.tasks.demos.rewards import REWARDS
from assay.tasks.task import BaseTask, FixedArm, NoTargetError

SELECTOR = "selector"
WEIGHTS = (".pt", ".pth", ".ckpt")
"""Endings of a `path:` model that is the weights of a selector trained elsewhere."""
ORACLE = FixedArm(
    oracle_answers,
    needs=POOL,
    fix='choose a benchmark of task = "demos"',
    about={SEEN_ANSWERS: True, "breadth": BREADTH},
    helper=FROZEN,
    chunk=16,
)


class DemosTask(BaseTask):
    """The task called "demos"."""

    name = "demos"
    kinds = (SELECTOR,)
    rewards = REWARDS
    benchmarks = {  # noqa: RUF012
        "demos/subjects": subjects.benchmark,
        "demos/easy-vqa": easy_vqa.benchmark,
        "demos/okvqa": okvqa.benchmark,
    }
    sources = {  # noqa: RUF012
        "subjects": subjects.read_subjects,
        "easy-vqa": easy_vqa.read_easy_vqa,
        "okvqa": okvqa.read_okvqa,
    }

    @property
    def arms(self) -> Mapping[str, FixedArm]:
        """The best selection by search, which has seen the right answers."""
        return {"selector:oracle": ORACLE}

    @property
    def checks(self) -> Mapping[str, Callable[[Any], Iterator[Any]]]:
        """See `tasks.demos.checks`."""
        from assay.tasks.demos.checks import CHECKS

        return CHECKS

    @property
    def rules(self) -> Mapping[str, Callable[[Any], Iterator[Any]]]:
        """See `tasks.demos.rules`."""
        from assay.tasks.demos.rules import RULES

        return RULES

    @property
    def tables(self) -> Mapping[str, Callable[..., Any]]:
        """What demonstrations can do at all."""
        from assay.lab.ceiling.measure import measure_demonstrations
        from assay.pages.command_tables.ceiling_tables import ceiling_blocks

        def measured(*given: Any) -> tuple[Any, Any]:
            found = measure_demonstrations(*given)
            return found, ceiling_blocks(found)

        return {"ceiling": measured}

    def brings(self, source: str) -> bool:
        """Whether a model source is a selector."""
        return source.startswith(f"{SELECTOR}:") or (
            source.startswith("path:") and source.endswith(WEIGHTS)
        )

    def learner(self, source: str) -> Callable[[Any], Any] | None:
        """A selector, which is opened for the oracle also: it reads the items."""
        if not self.brings(source):
            return None
        from assay.tasks.demos.selector_learner import SelectorLearner

        return SelectorLearner

    def target(self, row: Row) -> Message:
        """The stored selection with the highest reward, the first of equal ones.

        Raises NoTargetError for a row without stored selections.
        """
        stored = row.extra.get("candidates")
        if not stored:
            fix = "take rows of a [selections.NAME] table"
            raise NoTargetError(f"row {row.id} has no stored selections", fix=fix)
        return Message("assistant", max(stored, key=lambda each: each["reward"])["text"])


TASK = DemosTask()
