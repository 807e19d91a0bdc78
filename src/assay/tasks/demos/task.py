"""The demos skill: pick demonstrations that help a frozen model answer a query.

What is trained is a selector (`model = "selector:pointer"`); the frozen model is the helper model
`[model.frozen]`. Rows carry their pools, see `demonstrations`.
"""

from assay.data.row import Message, Row
from assay.tasks.demos import easy_vqa, okvqa, subjects
from assay.tasks.demos.rewards import REWARDS
from assay.tasks.task import Dialogue, NoTargetError


class DemosTask:
    """The task called "demos"."""

    name = "demos"
    rewards = REWARDS
    reward_maximum = {}  # noqa: RUF012
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

    def prompt(self, row: Row) -> tuple[Message, ...]:
        """The query."""
        return row.prompt

    def target(self, row: Row) -> Message:
        """The stored selection with the highest reward, the first of equal ones.

        Raises NoTargetError for a row without stored selections.
        """
        stored = row.extra.get("candidates")
        if not stored:
            fix = "take rows of a [selections.NAME] table"
            raise NoTargetError(f"row {row.id} has no stored selections", fix=fix)
        return Message("assistant", max(stored, key=lambda each: each["reward"])["text"])

    def dialogue(self, row: Row) -> Dialogue | None:
        """None: a selection is one answer."""
        return None


TASK = DemosTask()
