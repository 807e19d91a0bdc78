"""The `[note]` table: why an experiment is there, for the notebook. Nothing is computed from it."""

from assay.experiment.base_table import Many, Table


class ReportedRun(Table):
    """Where the result is that others reported of this experiment."""

    file: str
    """A record of reported results (docs/audit.md), relative to the lab's root."""
    run: str
    """The name of the run in it."""


class NoteSpec(Table):
    """Why the experiment is there, for the notebook; no result depends on it."""

    why: str = ""
    """The question that it answers."""
    expected: str = ""
    """What it should show, written down before it is run."""
    faults: Many[str] = ()
    """What is known to be wrong with it, a line each."""
    reported: ReportedRun | None = None
    """The result that others reported of it; the figures stay in their record."""
