"""The score that others reported of an experiment, read from the record that its note names.

Their items are not there, so that the interval is that of one binomial over the items, as for every
score without items; passes over the same items are no further items.
"""

from dataclasses import dataclass
from pathlib import Path

from assay.data.reported.read_reported import read_reported
from assay.errors import InputError, nearest
from assay.experiment.note_table import ReportedRun
from assay.judge.audit.cells import cells
from assay.judge.intervals import Interval, wilson


class UnknownReportedRun(InputError):
    """A record of reported results that has no run of this name."""


@dataclass(frozen=True, slots=True)
class ReportedScore:
    """The mean score of a reported run on one benchmark or subset."""

    cell: str
    """The benchmark or subset, as the record calls it; "" where it has one only."""
    score: float
    """A share, over all passes."""
    passes: int
    items: int | None
    interval: Interval | None
    """None where the record does not say how many items there are."""


def reported_scores(root: Path, reference: ReportedRun) -> list[ReportedScore]:
    """What the record says of the run; nothing where the run has no result in it.

    Raises ReportedError where the record cannot be read, UnknownReportedRun.
    """
    report = read_reported(root / reference.file)
    run = report.run(reference.run)
    if run is None:
        names = [each.name for each in report.runs]
        problem = f"has no run {reference.run!r}"
        raise UnknownReportedRun(problem, file=reference.file, fix=nearest(reference.run, names))
    return [
        ReportedScore(
            name,
            cell.mean,
            len(cell.values),
            cell.items,
            wilson(cell.successes, cell.items) if cell.items else None,
        )
        for name, cell in cells(report, run).items()
    ]
