"""Follows a run from outside: what it looks like now, again whenever something has changed.

Reads the records only, so that watching disturbs nothing. Drawing on the screen is the command
line's part.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from assay.lab.monitor.progress import Progress, progress
from assay.report.progress_terminal import progress_view
from assay.report.words import visible, words
from assay.runs.run_directory import RunDirectory
from assay.runs.status import Status, read_status


@dataclass(frozen=True)
class Seen:
    """A run at one moment."""

    run: RunDirectory
    status: Status
    records: int
    """Finished evaluation records."""
    progress: Progress | None
    """None before the first step."""

    @property
    def ended(self) -> bool:
        """Whether the run is no longer at work."""
        return self.status.status != "running"


def follow(run: RunDirectory, every: float, sleep: Callable[[float], None]) -> Iterator[Seen]:
    """The run now, and again at every change until it has ended; looks every `every` seconds."""
    last: tuple[object, ...] = ()
    while True:
        status, records = read_status(run.path), count_records(run)
        now = (status, records)
        if now != last:
            last = now
            yield Seen(run, status, records, progress(run))
        if status.status != "running":
            return
        sleep(every)


def count_records(run: RunDirectory) -> int:
    """Finished evaluation records of a run."""
    return sum(not file.name.startswith(".") for file in run.evaluations.glob("*/*.parquet"))


def headline(seen: Seen, lang: str = "en") -> str:
    """Where the run is, in one line."""
    w, status = words(lang), seen.status
    key = "watch.step" if status.stage else "watch.begins"
    planned = seen.progress.planned if seen.progress else None
    line = w(
        key,
        run=seen.run,
        status=w(f"status.{status.status}"),
        stage=status.stage,
        step=status.step,
        planned=planned or "?",
        records=seen.records,
    )
    return line + (f": {visible(status.message)}" if status.message else "")


def watch_view(seen: Seen, lang: str = "en") -> RenderableType:
    """The run as it looks now."""
    line = Text(headline(seen, lang), "bold")
    return Group(line, progress_view(seen.progress, lang)) if seen.progress else line
