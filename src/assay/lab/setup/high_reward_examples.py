"""Gives rows worked examples: the best completions that a run recorded for other rows.

An example is never of the row's own conversation or question, never of an evaluation that reports,
and which ones a row gets depends on ids alone. How a prompt shows them is the task's choice; they
lie in `extra.examples`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.data.hashing import normalise_text
from assay.data.leakage import question
from assay.data.row import Row
from assay.data.row_fields import field_value
from assay.data.splits import conversation_of, drawn
from assay.errors import InputError
from assay.experiment.data_tables import Examples
from assay.lab.setup.run_rows import RowsOf, asked_rows, records_of
from assay.runs.history import NothingRecorded, Sample
from assay.runs.run_files import read_json

EXAMPLES = "examples"
"""The field of `extra`: a list of {row, question, text, reward}."""
FEWER = "fewer examples than shots"
"""The remark on rows for which the run recorded too little."""


class LeakedExample(InputError):
    """An example that tells what is asked in a test."""


@dataclass(frozen=True, slots=True)
class Example:
    """The best completion of one row."""

    row: Row
    text: str
    reward: float

    @property
    def asks(self) -> str:
        """The question in a normal form."""
        return normalise_text(question(self.row))

    @property
    def told(self) -> dict[str, Any]:
        """What a row holds of it."""
        asked = {"row": self.row.id, "question": question(self.row)}
        return {**asked, "text": self.text, "reward": self.reward}


def with_examples(
    rows: Sequence[Row], table: Examples, root: Path, rows_of: RowsOf
) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """The rows with `extra.examples`, and the ids of those that have fewer than `shots`.

    Raises LeakedExample for answers of an evaluation that reports, NothingRecorded where no answer
    earned `least`, and what reading the run raises.
    """
    found = records_of(root, table.run, table)
    if table.evaluation is not None:
        stored = read_json(found.files[0].parent / "evaluation.json", dict)
        if stored["role"] == "report":
            problem = f"{table.evaluation!r} of {found.run} reports: its items are a test"
            fix = "take the samples of a stage, or an evaluation with role select"
            raise LeakedExample(problem, field="examples.evaluation", fix=fix)
    pool = best_answers(found.answers, asked_rows(found, table, root, rows_of), table.least)
    if not pool:
        problem = f"no completion of {found.run} has a reward of at least {table.least:g}"
        raise NothingRecorded(problem, field="examples.least", fix="lower it")
    given = [high_reward_examples(row, pool, table.shots, table.same) for row in rows]
    fewer = tuple(r.id for r, own in zip(rows, given, strict=True) if len(own) < table.shots)
    return tuple(
        replace(row, extra={**row.extra, EXAMPLES: [each.told for each in own]})
        for row, own in zip(rows, given, strict=True)
    ), fewer


def best_answers(
    answers: Iterable[Sample], asked: Mapping[str, Row], least: float
) -> tuple[Example, ...]:
    """The best single answer of each row that earned `least` or more; of equal ones the first."""
    best: dict[str, Example] = {}
    for answer in answers:
        if answer.reward is None or answer.reward < least or answer.messages:
            continue
        if answer.row in asked and (
            answer.row not in best or answer.reward > best[answer.row].reward
        ):
            best[answer.row] = Example(asked[answer.row], answer.text, answer.reward)
    return tuple(best.values())


def high_reward_examples(
    row: Row, pool: Sequence[Example], shots: int, same: str | None = None, seed: int = 0
) -> list[Example]:
    """Up to `shots` examples for a row, drawn from those of other conversations and questions.

    With `same`, a field such as `extra.problem_type`, only from rows that have the row's value
    there. The draw depends on the seed and on ids alone.
    """
    asks, own = normalise_text(question(row)), conversation_of(row)
    value = field_value(row, same) if same is not None else None
    others = {
        each.row.id: each
        for each in pool
        if conversation_of(each.row) != own
        and each.asks != asks
        and (same is None or field_value(each.row, same) == value)
    }
    names = drawn({f"{row.id}\n{name}" for name in others}, shots, seed)
    return [others[name.removeprefix(f"{row.id}\n")] for name in names]


def refuse_leaked(rows: Sequence[Row], tested: Sequence[Row], test: str) -> None:
    """Raise LeakedExample where an example of a row asks what an item of a test asks."""
    asked = {normalise_text(question(item)) for item in tested}
    for row in rows:
        for each in row.extra.get(EXAMPLES, ()):
            if normalise_text(each["question"]) in asked:
                problem = f"row {row.id} has an example that asks what {test} asks: {each['row']}"
                fix = "let the run of the examples train on rows that share no question with it"
                raise LeakedExample(problem, field="examples", fix=fix)
