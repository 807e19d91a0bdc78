"""The demos skill: pick demonstrations that help a frozen model answer a query.

What is trained is a selector (`model = "selector:pointer"`); the frozen model is the helper model
`[model.frozen]`. Rows carry their pools, see `demonstrations`.

Arms that have seen the right answers find the selection of a pool that helps the most, by asking
the frozen model with every one of many. The first shot is searched among all candidates; a further
one extends the best selections so far, `breadth` of them, by every candidate that they lack, put
next to the query. So the best of two or more shots is a lower bound of the oracle.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from assay.data.episode import Completion
from assay.data.row import Message, Row
from assay.errors import InputError, look_up
from assay.experiment.experiment import Experiment
from assay.experiment.read_file import Problem
from assay.experiment.selection_tables import FILE, SELECTIONS
from assay.labs.demos import okvqa
from assay.labs.demos.demonstrations import FROZEN, POOL, SHOTS, selection_text
from assay.labs.demos.outcomes import Selection, SelectionOutcome, ask
from assay.labs.demos.rewards import REWARDS
from assay.labs.demos.stored import selection_record, selection_rows
from assay.runs.run_directory import SEEN_ANSWERS
from assay.tasks.helper_model import DECLARE
from assay.tasks.task import BaseTask, FixedArm, MadeSource, moved

Ask = Callable[[Sequence[Selection]], list[SelectionOutcome]]
"""What the frozen model does with selections, in order."""
Picks = tuple[int, ...]
Tried = tuple[Picks, SelectionOutcome]
"""A selection that was asked, with what came of it."""
BREADTH = 3
"""Selections that are extended."""


def ranked(tried: Sequence[Tried]) -> list[Picks]:
    """Selections by accuracy, then by how near the answer came to a right one, the best first; of
    equal ones the first."""
    key = lambda one: (one[1].accuracy.score, one[1].relevance)  # noqa: E731
    return [picks for picks, _ in sorted(tried, key=key, reverse=True)]


def search(ask: Ask, rows: Sequence[Row], shots: int, breadth: int | None) -> list[list[Tried]]:
    """The selections of so many demonstrations of each row that were asked.

    The first shot is searched whole; the last extends one selection after the other and leaves a
    row as soon as it has the full score, which changes no best score.
    """
    tried = [[((), outcome)] for outcome in ask([(row, ()) for row in rows])]
    for shot in range(1, shots + 1):
        begins = [ranked(each)[:breadth] for each in tried]
        tried = [list[Tried]() for _ in rows]
        most = max(map(len, begins))
        step = 1 if shot == shots > 1 else most
        for start in range(0, most, step):
            longer = [
                (n, (more, *picks))
                for n, row in enumerate(rows)
                if not any(one.accuracy.score >= 1 for _, one in tried[n])
                for picks in begins[n][start : start + step]
                for more in row.extra[POOL]
                if more not in picks
            ]
            outcomes = ask([(rows[n], picks) for n, picks in longer])
            for (n, picks), outcome in zip(longer, outcomes, strict=True):
                tried[n].append((picks, outcome))
    return tried


def best_picks(ask: Ask, rows: Sequence[Row], shots: int) -> list[Picks]:
    """The best selection of each row's pool that the search finds."""
    return [ranked(each)[0] for each in search(ask, rows, shots, BREADTH)]


def single_picks(ask: Ask, rows: Sequence[Row], shots: int) -> list[Picks]:
    """The demonstrations that help the most alone, the best one next to the query: what a
    selection is worth where they do not act together."""
    singles = search(ask, rows, 1, None)
    return [tuple(picks[0] for picks in ranked(each)[:shots]) for each in singles]


ARMS: Mapping[str, Callable[[Ask, Sequence[Row], int], list[Picks]]] = {
    "oracle": best_picks,
    "reversed": lambda *args: [picks[::-1] for picks in best_picks(*args)],
    "singles": single_picks,
}
"""By name: the best selection, the same in the opposite order, and the best demonstrations alone.
The last two say whether order and interaction matter."""


def searched_answers(
    name: str, helpers: Mapping[str, Any], rows: Sequence[Row]
) -> list[tuple[Completion, int]]:
    """The selection of each row that an arm finds by asking the frozen model, and the size of the
    pool. Raises HelperFailed."""
    answer = partial(ask, look_up(helpers, FROZEN, "helper model", DECLARE))
    best: dict[str, Picks] = {}
    for shots in sorted({row.extra[SHOTS] for row in rows}):
        same = [row for row in rows if row.extra[SHOTS] == shots]
        best |= zip([row.id for row in same], ARMS[name](answer, same, shots), strict=True)
    return [
        (Completion(selection_text(best[row.id]), best[row.id], "stop"), len(row.extra[POOL]))
        for row in rows
    ]


MOVED = {
    "verbs": "experiments/demos/verbs.py",
    "subjects": "experiments/demos/subjects.py",
    "easy-vqa": "experiments/demos/easy_vqa.py",
}
SELECTOR = "selector"
ORACLES = {
    f"{SELECTOR}:{name}": FixedArm(
        partial(searched_answers, name),
        needs=POOL,
        fix='choose a benchmark of task = "demos"',
        about={SEEN_ANSWERS: True, "breadth": BREADTH},
        helper=FROZEN,
        chunk=16,
    )
    for name in ARMS
}


class SelectionsSource:
    """See `tasks.task.MadeSource`: `source = "selections:NAME"`. Only what makes loads torch."""

    rows, record = staticmethod(selection_rows), staticmethod(selection_record)

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

    def generate(self, session: Any, table: str | None) -> list[Any]:
        """Make the selections of one table or of all."""
        from assay.labs.demos.generate import generate_tables

        return generate_tables(session, table)


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
