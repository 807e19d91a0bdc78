"""Decides when a progress report is due, and keeps the journal of reports, `reports.jsonl`.

Has one line for each report. Contents are computed from the records on demand, and `report` writes
the pages.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from assay.data.files import append_line, atomic_write_text
from assay.experiment.experiment import Experiment
from assay.runs.run_directory import RunDirectory
from assay.runs.run_files import entries, named_line
from assay.runs.status import read_status

JOURNAL = "reports.jsonl"


@dataclass(frozen=True, slots=True)
class ReportEntry:
    """One progress report."""

    stage: str
    step: int
    why: str
    """`steps`, `milestone`, `end`, `guard` or `asked`."""
    at: str
    """ISO 8601 in UTC."""


def why_due(experiment: Experiment, stage: str, step: int, steps: int) -> str:
    """Why a report is due after `step` of a stage's `steps`; "" where none is."""
    every = experiment.report_every
    if any(m.stage == stage and m.step == step for m in experiment.milestone.values()):
        return "milestone"
    if every and step % every == 0:
        return "steps"
    return "end" if step == steps and (every or experiment.milestone) else ""


def note_report(run: RunDirectory, stage: str, step: int, why: str) -> None:
    """Append a report to the journal."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    file, entry = run.path / JOURNAL, ReportEntry(stage, step, why, now)
    append_line(file, named_line(file, asdict(entry)))


def note_asked(run: RunDirectory) -> None:
    """Append a report that a user asked for on a live run, once for a step."""
    status = read_status(run.path)
    place = (status.stage, status.step)
    known = {(entry.stage, entry.step) for entry in read_reports(run)}
    if status.status != "finished" and status.step and place not in known:
        note_report(run, *place, "asked")


def read_reports(run: RunDirectory) -> list[ReportEntry]:
    """The journal, in the order in which reports were made; a torn last line does not count."""
    return entries(run.path / JOURNAL, ReportEntry)


def forget_reports(run: RunDirectory, kept: Callable[[str, int], bool]) -> None:
    """Remove the reports on stages and steps that are trained again from the journal."""
    reports = read_reports(run)
    left = [entry for entry in reports if kept(entry.stage, entry.step)]
    if left != reports:
        lines = (json.dumps(asdict(entry)) + "\n" for entry in left)
        atomic_write_text(run.path / JOURNAL, "".join(lines))


def last_report(run: RunDirectory, stage: str, before: int) -> ReportEntry | None:
    """The latest step of a stage before `before` that was reported on."""
    earlier = [e for e in read_reports(run) if e.stage == stage and e.step < before]
    return max(earlier, key=lambda e: (e.step, e.at), default=None)


def report_file(run: RunDirectory, stage: str, step: int) -> Path:
    """The Markdown file of the report that was made after a step."""
    return run.path / "reports" / stage / f"step-{step:06d}.md"
