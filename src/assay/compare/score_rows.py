"""The scores of a run's checkpoints as rows of plain values, for data frames and for sinks.

The tables are those of `judged_table`; nothing is judged here.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from assay.compare.judged_table import compare_checkpoints
from assay.compare.table import Table
from assay.runs.history import evaluation_records, measured_checkpoints
from assay.runs.run_directory import RunDirectory


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """One checkpoint on one evaluation. Differences are to the control of its table."""

    evaluation: str
    benchmark: str
    checkpoint: str
    score: float
    low: float
    """Lower limit of the score's 95 % interval."""
    high: float
    items: int
    repeats: int
    abstained: int
    """Answers without a score, of items x repeats."""
    control: str = ""
    """"" for the control itself, as in all that follows."""
    verdict: str = ""
    difference: float | None = None
    difference_low: float | None = None
    difference_high: float | None = None
    p_value: float | None = None
    """Corrected for the family of the table."""


def score_rows(table: Table) -> list[ScoreRow]:
    """The lines of a table, in their order."""
    rows = []
    for line in table.lines:
        score = (line.score, line.interval.low, line.interval.high)
        size = (line.items, line.repeats, line.abstained)
        names = (table.evaluation.name, table.evaluation.benchmark, line.name)
        against: tuple[str | float, ...] = ()
        if line.to_control is not None:
            found = line.to_control.comparison
            limits = (found.interval.low, found.interval.high)
            verdict = (line.to_control.control, found.verdict)
            against = (*verdict, found.difference, *limits, found.adjusted_p)
        rows.append(ScoreRow(*names, *score, *size, *against))  # type: ignore[arg-type]
    return rows


def reported_rows(run: RunDirectory) -> Iterator[ScoreRow]:
    """The rows of every reporting evaluation of a run that has a finished record.

    Raises what reading the records raises.
    """
    for record in evaluation_records(run):
        measured = measured_checkpoints(run, record)
        if record.role == "report" and measured:
            yield from score_rows(compare_checkpoints(run, record.key, measured[0], measured[1:]))
