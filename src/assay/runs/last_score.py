"""The score that stands for a run in a list: its last checkpoint on its first reporting evaluation.

One number without interval or verdict; `judged_table` and `report` say what it is worth.
"""

from dataclasses import dataclass

from assay.errors import InputError
from assay.runs.run_directory import RunDirectory


@dataclass(frozen=True, slots=True)
class LastScore:
    """A score and what it is of; None and the reason where it cannot be read."""

    score: float | None = None
    on: str = ""


def last_score(run: RunDirectory) -> LastScore:
    """Read a run's score; one whose files are damaged names them in place of it."""
    if not any(run.evaluations.glob("*/evaluation.json")):
        return LastScore()
    try:
        return _measured(run)
    except InputError as error:
        # A list of many runs is shown whatever became of one of them, and says so.
        place = "" if error.file is None else str(error.file).removeprefix(f"{run.path}/")
        return LastScore(None, f"cannot be read: {place or error.problem}")


def _measured(run: RunDirectory) -> LastScore:
    from assay.runs.measurements import evaluation_records, measured_checkpoints
    from assay.runs.records import read_scores  # loads pyarrow, which an index does without

    for record in evaluation_records(run):
        measured = measured_checkpoints(run, record)
        if record.role == "report" and measured:
            score = read_scores(run, record, measured[-1]).mean
            return LastScore(score, f"{record.name} of {measured[-1]}")
    return LastScore()
